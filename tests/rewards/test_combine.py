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
    assert (won.value, won.parts, won.is_valid) == (1.0, {"outcome": 1.0}, True)


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
