import asyncio
import dataclasses
import io
import json
from types import SimpleNamespace

import pytest
from PIL import Image

from configs import judge_sft
from openwebrl_jax.core import checks
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Reward
from openwebrl_jax.policy import remote, served
from openwebrl_jax.rewards import evidence
from openwebrl_jax.rollout import score, store
from openwebrl_jax.runtime import demonstrate, evaluate, judge, own_judge, worker
from tests.policy import endpoints
from tests.rewards import stories


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setattr(remote, "RETRIES", 0)
    made = endpoints.Endpoint()
    yield made
    made.close()


@pytest.fixture
def config(endpoint):
    made = judge_sft.get_config("tiny")
    made.reward.judge.base_url, made.reward.judge.api_key_env = endpoint.url, ""
    return made


@pytest.fixture
def stored(tmp_path):
    """Two successes, two failures, a void and one that no judge is asked about."""
    out = io.BytesIO()
    Image.new("RGB", (160, 224)).save(out, "PNG")
    final = dataclasses.replace(stories.page(9), screenshot=out.getvalue())
    for answer, value, is_valid, cause in (
        ("a", 1.0, True, Cause.DONE),
        ("b", 1.0, True, Cause.DONE),
        ("c", 0.0, True, Cause.DONE),
        ("d", 0.0, True, Cause.DONE),
        ("e", 0.0, False, Cause.DONE),
        ("f", 0.0, True, Cause.MAX_TURNS),
    ):
        story = stories.story(answer=answer, cause=cause, final=final)
        reward = Reward(value=value, parts={}, is_valid=is_valid)
        store.save(tmp_path / "played" / store.FOLDER, story, reward)
    return tmp_path / "played"


def test_what_is_judged_is_not_asked_again_and_an_outage_is(
    endpoint, config, stored, tmp_path
):
    down = endpoints.Say({}, 402)
    endpoint.script = [endpoints.verdict("success")] * 2 + [down]
    out = tmp_path / "out"
    judge.run(config, str(out), stored=[str(stored)], model="")
    assert len(judge.read(out / judge.JUDGEMENTS)) == 2
    endpoint.script = [endpoints.verdict("failure")]
    asked = len(endpoint.asked)
    judge.run(config, str(out), stored=[str(stored)], model="")
    assert len(endpoint.asked) == asked + 3
    lines = judge.read(out / judge.JUDGEMENTS)
    assert sorted(line["verdict"] for line in lines) == [False] * 3 + [True] * 2
    labels = [line["label"] for line in lines]
    assert sorted(map(str, labels)) == ["False", "False", "None", "True", "True"]
    assert {line["site"] for line in lines} == {"shop.test"}
    judge.run(config, str(out), stored=[str(stored)], model="")
    assert len(endpoint.asked) == asked + 3


def test_an_outage_shows_in_the_report_and_an_endless_one_is_an_error(
    endpoint, config, stored, tmp_path
):
    """R39."""
    down = endpoints.Say({}, 402)
    endpoint.script = [endpoints.verdict("success")] * 2 + [down]
    out = str(tmp_path / "out")
    told = judge.run(config, out, stored=[str(stored)], model="")
    assert (told["asked"], told["judged"], told["not_judged"]) == (5, 2, 3)
    endpoint.script = [down]
    with pytest.raises(RuntimeError, match="answered none of 5"):
        judge.run(config, str(tmp_path / "new"), stored=[str(stored)], model="")
    with pytest.raises(ValueError, match="nothing in .* can be asked about"):
        judge.run(config, str(tmp_path / "new"), stored=[str(tmp_path)], model="")


def test_a_judge_is_held_against_the_checker_and_not_against_itself(tmp_path):
    """RL by a judge keeps both words; only one of them is a reference."""
    checked = ({"kind": "fact", "name": "x", "equals": 1},)
    for n, (task, parts, wanted) in enumerate(
        (
            ((), {"judge": 1.0, "checker": 0.0}, (False, "checker")),
            ((), {"judge": 0.0, "checker": 1.0}, (True, "checker")),
            (checked, {"outcome": 1.0, "process": -0.5}, (True, "checker")),
            ((), {"outcome": 1.0}, (True, "judge")),
            ((), {"judge": 1.0}, (True, "judge")),
        )
    ):
        reward = Reward(value=parts.get("judge", 0.5), parts=parts, is_valid=True)
        kept = tmp_path / str(n)
        store.save(kept / store.FOLDER, stories.story(task), reward)
        (found,) = judge.load([kept])
        assert (found.is_success, found.labelled_by) == wanted


def test_a_line_that_a_crash_cut_is_asked_again(endpoint, config, stored, tmp_path):
    endpoint.script = [endpoints.verdict("success")]
    out = tmp_path / "out"
    judge.run(config, str(out), stored=[str(stored)], model="")
    kept = out / judge.JUDGEMENTS
    kept.write_text(kept.read_text()[:-40])
    assert len(judge.read(kept)) == 4
    judge.run(config, str(out), stored=[str(stored)], model="")
    assert len({line["trajectory"] for line in judge.read(kept)}) == 5


def test_verdicts_of_two_judges_do_not_come_into_one_file(
    endpoint, config, stored, tmp_path
):
    """Web case 45."""
    endpoint.script = [endpoints.verdict("success"), endpoints.text("hm")]
    told = judge.run(config, str(tmp_path / "out"), stored=[str(stored)], model="")
    assert told["judge"]["protocol"] == "single" and len(told["judge"]["prompt"]) == 16
    assert told["judge"]["screenshots"] == 0
    assert told["void_causes"] == {"judge_unparseable": 4}
    assert told["labels"] == {"judge": 4, "nobody": 1}
    config.reward.judge.protocol = "webvoyager"
    with pytest.raises(ValueError, match="'single'.*'webvoyager'.*another --workdir"):
        judge.run(config, str(tmp_path / "out"), stored=[str(stored)], model="")


def test_what_cannot_be_read_is_void_and_kept(endpoint, config, stored, tmp_path):
    endpoint.script = [endpoints.text("hm")]
    judge.run(config, str(tmp_path / "out"), stored=[str(stored)], model="")
    lines = judge.read(tmp_path / "out" / judge.JUDGEMENTS)
    assert [line["verdict"] for line in lines] == [None] * 5
    assert {line["cause"] for line in lines} == {Cause.JUDGE_UNPARSEABLE}


def test_labels_of_another_judge_come_with_its_reasons(
    endpoint, config, stored, tmp_path
):
    endpoint.script = [endpoints.verdict("failure")]
    judge.run(config, str(tmp_path / "out"), stored=[str(stored)], model="")
    found, reasons = judge.relabelled(judge.load([stored]), str(tmp_path / "out"))
    assert [each.is_success for each in found] == [False] * 4
    judge.demonstrate(found, str(tmp_path / "data"), config, reasons)
    made = demonstrate.load(tmp_path / "data")
    assert len(made) == 4
    for shown in made.values():
        assert shown.turns[-1].reply_text == 'seen</think>{"verdict": "failure"}'


def test_nobody_to_ask_and_a_workdir_of_no_judge_are_refused(config, tmp_path):
    config.reward.judge.base_url = ""
    with pytest.raises(ValueError, match="nobody to ask"):
        judge.run(config, str(tmp_path), stored=["x"], model="")
    with pytest.raises(ValueError, match="no judge's workdir"):
        own_judge.own_config(str(tmp_path))


def test_a_judge_is_asked_as_it_was_trained(tmp_path):
    config = judge_sft.get_config("tiny")
    checks.keep_config(tmp_path, config)
    other = judge_sft.get_config()
    other.reward.judge.workdir = str(tmp_path)
    made = own_judge.as_trained(other)
    assert (made.reward.judge.prompt, made.reward.judge.screenshots) == ("short", 0)
    assert other.reward.judge.prompt == "full"
    own = own_judge.own_config(str(tmp_path))
    assert tuple(own.sample.prompt_buckets) == config.sample.prompt_buckets


def test_a_judge_that_was_trained_again_is_another_one(tmp_path):
    """Web case 45: in the same workdir, asked in the same way."""
    config = judge_sft.get_config("tiny")
    checks.keep_config(tmp_path, config)
    config = judge_sft.get_config()
    config.reward.judge.workdir = str(tmp_path)
    export = tmp_path / "export"
    export.mkdir()
    (export / "config.json").write_text("{}")
    told = []
    for weights in (b"a" * 99, b"b" * 99):
        (export / "model.safetensors").write_bytes(weights)
        told.append(own_judge.identity(config))
    assert told[0] != told[1] and told[0]["screenshots"] == 0
    assert told[0] == {**told[1], "weights": told[0]["weights"]}


def test_a_success_with_a_penalty_is_a_success():
    """Of an evaluation as of training."""
    reward = Reward(value=0.9, parts={"outcome": 1.0, "process": -0.1}, is_valid=True)
    result = worker.Result(
        task_id="t",
        trajectory="",
        is_success=score.is_success(reward),
        spent={"usd": 0.5},
        cause=Cause.DONE,
        turns=1,
        format={},
    )
    told = evaluate._summary([result])
    assert told["rate"] == 1.0 and told["judge_spent"] == {"usd": 0.5}


def test_results_under_two_judges_are_not_compared():
    """Web case 45."""
    episodes = [{"success": True}, {"success": False}]
    before = {"episodes": episodes, "judge": {"protocol": "single"}}
    same = evaluate.gain(before, json.loads(json.dumps(before)))
    assert same["value"] == 0.0
    other = before | {"judge": {"protocol": "webvoyager"}}
    with pytest.raises(ValueError, match="the same judge"):
        evaluate.gain(before, other)


async def test_a_judge_of_our_own_that_hangs_is_away(config):
    never = SimpleNamespace(remote=lambda request: asyncio.Future())
    gone = SimpleNamespace(remote=lambda name: None)
    actor = SimpleNamespace(sample=never, release=gone)
    config.sample.timeout_s = 0.01
    for complete in (
        served.Served(worker.RemoteSampler(actor, 0.01)),
        judge._spoken(actor, config),  # the driver's, for canaries and second opinions
    ):
        with pytest.raises(Failure) as failure:
            await complete(evidence.ask("judge", "done?"), seed=42)
        assert failure.value.cause is Cause.JUDGE_UNAVAILABLE
