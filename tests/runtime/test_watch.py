from types import SimpleNamespace

import pytest

from configs import grpo_short, judge_sft
from openwebrl_jax.core import checks
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import Reward, Slot
from openwebrl_jax.policy import remote
from openwebrl_jax.rollout import score, store
from openwebrl_jax.runtime import watch
from tests.policy import endpoints
from tests.rewards import stories


def slots(tn, fp, fn, tp):
    cells = [(0.0, 0.0, tn), (0.0, 1.0, fp), (1.0, 0.0, fn), (1.0, 1.0, tp)]
    return [
        Slot(
            index=0,
            trajectory="x",
            reward=Reward(
                value=said,
                parts={"checker": true, "judge": said},
                is_valid=True,
                spent={"replies": 2.0, "unparseable": 1.0, "usd": 0.5},
            ),
            cause=Cause.DONE,
            versions=(),
            turns=1,
        )
        for true, said, count in cells
        for _ in range(count)
    ]


@pytest.fixture
def config():
    return grpo_short.get_config("tiny")


def test_the_gap_between_judge_and_checker_is_told(config, caplog):
    """R38: so is a rate of unreadable replies over 2 %."""
    told = watch.Watch(config, None).see(1, slots(40, 10, 0, 50))
    assert "50.0 % of the judge's replies say nothing" in caplog.text
    assert told["judge/gap"] == pytest.approx(0.1)
    assert told["judge/false_positive_rate"] == pytest.approx(0.2)
    assert told["judge/kappa"] == pytest.approx(0.8)
    assert told["judge/unparseable_frac"] == 0.5
    assert told["judge/usd"] == 50.0
    assert sum(told["reward/judge"]) == 60.0


def test_a_run_is_paused_when_the_judge_drifts(config):
    config.reward.judge.least_kappa = 0.5
    config.reward.judge.most_false_positives = 0.3
    seen = watch.Watch(config, None)
    few = seen.see(1, slots(0, 50, 0, 50))
    seen.check(few)  # too few to say
    told = seen.see(2, slots(0, 50, 0, 50))
    with pytest.raises(score.JudgeDriftError, match="kappa.*0.000.*false_positive"):
        seen.check(told)


def test_a_run_that_has_nothing_left_to_fail_is_not_paused(config):
    """All are successes and the judge says so: kappa has no value, and no alarm."""
    config.reward.judge.least_kappa = 0.5
    seen = watch.Watch(config, None)
    told = seen.see(1, slots(0, 0, 0, 200))
    assert told["judge/agreement"] == 1.0 and "judge/kappa" not in told
    seen.check(told)


def test_without_a_checker_there_is_nothing_to_compare(config):
    told = watch.Watch(config, None).see(1, [])
    assert "judge/kappa" not in told
    watch.Watch(config, None).check(told)


def test_canaries_are_asked_when_they_are_due(config, tmp_path):
    endpoint = endpoints.Endpoint()
    endpoint.script = [endpoints.verdict("success")]
    turns = (stories.turn(1),)
    for answer, value in (("good", 1.0), ("bad", 0.0)):
        store.save(
            tmp_path / store.FOLDER,
            stories.story(turns=turns, answer=answer),
            Reward(value=value, parts={"outcome": value}, is_valid=True),
        )
    asked = config.reward.judge
    asked.base_url, asked.api_key_env = endpoint.url, ""
    asked.canaries, asked.canaries_every = str(tmp_path), 2
    asked.most_false_positives = 0.5
    seen = watch.Watch(config, None)
    assert "judge/canary_gap" not in seen.see(1, [])
    told = seen.see(2, [])
    endpoint.close()
    assert told["judge/canary_agreement"] == 0.5
    assert told["judge/injected_false_positive_rate"] == 1.0
    with pytest.raises(score.JudgeDriftError, match="injected_false_positive_rate"):
        seen.check(told)


def test_canaries_that_are_told_apart_no_more_pause_the_run(config):
    """Canaries of one kind say nothing of kappa; of both kinds they do at once."""
    config.reward.judge.least_kappa = 0.2
    seen = watch.Watch(config, None)
    seen.check({"judge/canary_kappa": 0.0})
    good, bad = (SimpleNamespace(is_success=each) for each in (True, False))
    seen._canaries = [good, bad]
    with pytest.raises(score.JudgeDriftError, match="canary_kappa 0.000"):
        seen.check({"judge/canary_kappa": 0.0})


def kept(folder, count, parts, spent, value=1.0):
    """Results whose trajectories are stored, each with one call and an answer."""
    found = []
    for n in range(count):
        reward = Reward(value=value, parts=parts, is_valid=True, spent=spent)
        told = stories.story(turns=(stories.turn(n),), answer=f"{parts} {n}")
        name = store.save(folder, told, reward)
        found.append(
            Slot(
                index=0, trajectory=name, reward=reward, cause=told.cause,
                versions=(), turns=1,
            )
        )  # fmt: skip
    return found


@pytest.fixture
def asked(config, monkeypatch):
    """An endpoint that says what its script says, and the config that names it."""
    monkeypatch.setattr(remote, "RETRIES", 0)
    made = endpoints.Endpoint()
    config.reward.judge.base_url, config.reward.judge.api_key_env = made.url, ""
    config.reward.judge.second_share = 1.0
    yield made
    made.close()


def test_a_second_opinion_is_another_model_and_other_seeds(asked, config, tmp_path):
    config.reward.judge.second_model = "other"
    config.reward.judge.second_protocol = "webvoyager"
    asked.script = [endpoints.verdict("success")] * 3 + [endpoints.verdict("failure")]
    found = kept(tmp_path, 4, {"judge": 1.0}, {"replies": 1.0})
    found += kept(tmp_path, 2, {"judge": 0.0}, {}, value=0.0)  # of an ending that tells
    told = watch.Watch(config, None, str(tmp_path)).see(1, found)
    assert {body["model"] for body in asked.asked} == {"other"}
    assert {body["seed"] for body in asked.asked} == {1042}
    assert len(asked.asked) == 4
    assert "History:" not in str(asked.asked[0])  # the other protocol
    assert told["judge/second_disagreement"] == 0.25
    assert told["judge/second_gap"] == 0.25
    assert told["judge/second_kappa"] == 0.0
    assert told["judge/second_verdicts"] == 4
    assert told["judge/watch_calls"] == 4
    assert "judge/kappa" not in told


def test_a_judge_that_another_one_contradicts_pauses_the_run(
    asked, config, tmp_path, monkeypatch
):
    monkeypatch.setattr(watch, "LEAST", 8)
    config.reward.judge.least_kappa = 0.3
    asked.script = [endpoints.verdict("failure")]
    found = kept(tmp_path, 4, {"judge": 1.0}, {"replies": 1.0})
    seen = watch.Watch(config, None, str(tmp_path))
    seen.check(seen.see(1, found))
    with pytest.raises(score.JudgeDriftError, match="second_kappa 0.000"):
        seen.check(seen.see(2, found))


def test_what_a_checker_alone_has_scored_the_judge_is_asked_about(
    asked, config, tmp_path
):
    """Reward hacking shows even where no reward is the judge's."""
    asked.script = [endpoints.verdict("success")]
    found = kept(tmp_path, 3, {"outcome": 1.0}, {})
    found += kept(tmp_path, 1, {"outcome": 0.0}, {}, value=0.0)
    told = watch.Watch(config, None, str(tmp_path)).see(1, found)
    assert told["judge/gap"] == 0.25
    assert told["judge/false_positive_rate"] == 1.0
    assert "judge/second_kappa" not in told


def test_an_outage_of_the_second_judge_changes_nothing(asked, config, tmp_path):
    asked.script = [endpoints.Say({}, 402)]
    seen = watch.Watch(config, None, str(tmp_path))
    found = kept(tmp_path, 2, {"judge": 1.0}, {"replies": 1.0})
    told = seen.see(1, found)
    seen.check(told)
    assert "judge/second_kappa" not in told
    assert told["judge/watch_failures"] == 2


def test_the_share_is_that_of_trajectories_and_the_same_in_every_life(tmp_path):
    found = kept(tmp_path, 200, {"judge": 1.0}, {})
    drawn = [slot for slot in found if watch.is_drawn(slot, 0.25)]
    assert 25 < len(drawn) < 75
    assert not any(watch.is_drawn(slot, 0.0) for slot in found)
    assert all(watch.is_drawn(slot, 1.0) for slot in found)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"second_share": 0.5}, "second_share is set and there is no judge"),
        ({"second_protocol": "single"}, "without a base_url"),
        ({"second_share": 2.0}, "second_share=2.0"),
        ({"base_url": "http://a", "workdir": "b"}, "wanted one judge, or second_share"),
    ],
)
def test_a_second_opinion_that_nobody_can_give_is_refused(config, settings, told):
    config.reward.judge.update({"api_key_env": "", **settings})
    with pytest.raises(ValueError, match=told):
        checks.check_config(config, look_at_disk=False)


def test_a_judge_of_our_own_is_asked_as_it_was_trained(config, tmp_path):
    """And an endpoint beside it gives the second opinions, in its own way."""
    checks.keep_config(tmp_path, judge_sft.get_config("tiny"))
    asked = config.reward.judge
    asked.workdir = str(tmp_path)
    alone = watch.Watch(config, "actor")
    for one in (alone._first, alone._second):
        assert one.serving == "actor"
        assert one.config.reward.judge.prompt == "short"
    assert (alone._first.is_second, alone._second.is_second) == (False, True)
    asked.base_url, asked.second_protocol = "http://127.0.0.1:1/v1", "webjudge"
    both = watch.Watch(config, "actor")
    assert both._first.config.reward.judge.protocol == "single"
    assert both._second.serving is None
    assert both._second.config.reward.judge.protocol == "webjudge"
    assert both._second.config.reward.judge.prompt == "full"
