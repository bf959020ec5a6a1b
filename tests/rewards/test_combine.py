import pytest

from configs import common
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rewards import combine
from tests.rewards import stories

RAW = {"kind": "fact", "name": "raw_reward", "equals": 1.0}
WON = {"facts": {"raw_reward": 1.0}, "cause": Cause.PAGE_DONE}


@pytest.fixture
def config():
    return common.get_config().reward


async def must_not_be_asked(messages, *, seed):
    raise AssertionError("the judge was asked")


async def yes(messages, *, seed):
    return '{"verdict": "success"}'


async def test_checks_decide_and_no_judge_is_asked(config):
    reward = combine.make_reward(config, must_not_be_asked)
    won = await reward(stories.story((RAW,), **WON))
    lost = await reward(stories.story((RAW,), cause=Cause.DONE))
    assert (won.value, won.parts, won.is_valid) == (1.0, {"outcome": 1.0}, True)
    assert (lost.value, lost.is_valid) == (0.0, True)


async def test_without_checks_the_judge_decides(config):
    won = await combine.make_reward(config, yes)(stories.story())
    assert (won.value, won.is_valid) == (1.0, True)
    assert won.parts == {"outcome": 1.0, "judge": 1.0}


@pytest.mark.parametrize("cause", [cause for cause in Cause if not cause.is_scored])
async def test_what_the_policy_did_not_cause_is_void(config, cause):
    story = stories.story((RAW,), facts={"raw_reward": 1.0}, cause=cause)
    reward = await combine.make_reward(config, must_not_be_asked)(story)
    assert not reward.is_valid


@pytest.mark.parametrize(
    "cause",
    [
        cause
        for cause in Cause
        if cause.is_scored and cause not in (Cause.DONE, Cause.PAGE_DONE)
    ],
)
async def test_other_scored_endings_are_no_success(config, cause):
    story = stories.story((RAW,), facts={"raw_reward": 1.0}, cause=cause)
    reward = await combine.make_reward(config, must_not_be_asked)(story)
    expected = -1.0 if cause is Cause.FORMAT_ERROR else 0.0
    assert (reward.value, reward.is_valid) == (expected, True)


async def test_done_without_an_answer_convinces_no_judge(config):
    story = stories.story(answer="")
    reward = await combine.make_reward(config, must_not_be_asked)(story)
    assert (reward.value, reward.is_valid) == (0.0, True)


async def test_a_judge_that_says_nothing_usable_makes_a_void_slot(config):
    async def hm(messages, *, seed):
        return "hm"

    reward = await combine.make_reward(config, hm)(stories.story())
    assert (reward.is_valid, reward.cause) == (False, Cause.JUDGE_UNPARSEABLE)


async def test_parts_are_weighed(config):
    config.weights.outcome = 0.5
    reward = await combine.make_reward(config, None)(stories.story((RAW,), **WON))
    assert (reward.value, reward.parts) == (0.5, {"outcome": 1.0})


def test_an_unknown_part_is_refused(config):
    with config.unlocked():
        config.weights.style = 1.0
    with pytest.raises(ValueError, match=r"names \['style'\]"):
        combine.make_reward(config, None)


async def test_a_task_that_nothing_can_score_is_refused(config):
    with pytest.raises(ValueError, match="config.reward.judge.base_url"):
        await combine.make_reward(config, None)(stories.story())


def weigh(config, **weights):
    with config.unlocked():
        config.weights = weights
    return config


async def test_a_part_of_weight_0_is_told_and_counts_for_nothing(config):
    config = weigh(config, judge=1.0, checker=0.0)
    story = stories.story((RAW,), facts={"raw_reward": -1.0})
    reward = await combine.make_reward(config, yes)(story)
    assert (reward.value, reward.parts) == (1.0, {"judge": 1.0, "checker": 0.0})


async def test_the_checker_is_always_told_beside_the_judge(config):
    config = weigh(config, judge=1.0)
    reward = await combine.make_reward(config, yes)(stories.story((RAW,)))
    assert (reward.value, reward.parts) == (1.0, {"judge": 1.0, "checker": 0.0})


async def test_a_void_part_of_weight_0_voids_nothing(config):
    async def hm(messages, *, seed):
        return "hm"

    config = weigh(config, outcome=1.0, judge=0.0)
    reward = await combine.make_reward(config, hm)(stories.story((RAW,), **WON))
    assert (reward.value, reward.parts) == (1.0, {"outcome": 1.0, "checker": 1.0})
    assert reward.spent == {"replies": 3.0, "unparseable": 3.0}


async def test_a_task_without_checks_has_no_checker_part(config):
    config = weigh(config, judge=1.0, checker=1.0)
    reward = await combine.make_reward(config, yes)(stories.story())
    assert (reward.value, reward.parts) == (1.0, {"judge": 1.0})


async def test_one_question_is_asked_once(config):
    asked = []

    async def complete(messages, *, seed):
        asked.append(seed)
        return await yes(messages, seed=seed)

    config = weigh(config, outcome=1.0, judge=0.5)
    reward = await combine.make_reward(config, complete)(stories.story())
    assert reward.value == 1.5 and reward.spent == {"replies": 1.0} and len(asked) == 1


async def test_penalties_lower_a_success(config):
    config = weigh(config, outcome=1.0, process=0.1)
    turns = tuple(stories.turn(n, "clicked div: nothing changed") for n in (9, 9))
    story = stories.story((RAW,), turns=turns, **WON)
    reward = await combine.make_reward(config, None)(story)
    assert reward.parts["process"] == -0.5
    assert reward.value == pytest.approx(0.95)
    assert reward.parts["process_ineffective"] == 2.0


def test_tasks_that_could_not_be_scored_are_found_before_they_are_played():
    good = stories.story((RAW,)).task
    bad = stories.story(({"kind": "url", "matches": "("},)).task
    combine.check_tasks([good], False, False)
    combine.check_tasks([stories.story().task], True, False)
    with pytest.raises(ValueError, match="no checks, and there is no judge"):
        combine.check_tasks([stories.story().task], False, False)
    with pytest.raises(ValueError, match="regular expression"):
        combine.check_tasks([bad], True, True)
    rules = {
        "eval_types": ["string_match"],
        "reference_answers": {"fuzzy_match": ["a"]},
    }
    graded = stories.story(({"kind": "webarena", "eval": rules},)).task
    combine.check_tasks([graded], True, True)
    with pytest.raises(ValueError, match="fuzzy_match"):
        combine.check_tasks([graded], True, False)
