import pytest

from configs import grpo_short
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import Reward, Slot
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
