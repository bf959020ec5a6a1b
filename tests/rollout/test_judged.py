import dataclasses
import io

import pytest
from PIL import Image

from configs import judge_sft
from openwebrl_jax.batch import demos, feed
from openwebrl_jax.core import dialogue
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rewards import injections, judge, verdict
from openwebrl_jax.rollout import judged
from tests.rewards import stories


def png(shade):
    out = io.BytesIO()
    Image.new("RGB", (160, 224), (shade, 9, 9)).save(out, "PNG")
    return out.getvalue()


def seen(page, shade):
    return dataclasses.replace(page, screenshot=png(shade))


@pytest.fixture
def played():
    turn = stories.turn(1, "clicked button 'OK': it is pressed")
    turn = dataclasses.replace(turn, observation=seen(turn.observation, 10))
    return stories.story(turns=(turn,), final=seen(stories.page(9), 20))


@pytest.fixture
def config():
    return judge_sft.get_config("tiny")


@pytest.mark.parametrize("screenshots", [-1, 0, 1])
@pytest.mark.parametrize("is_success", [True, False])
def test_what_is_learnt_is_what_will_be_asked(
    tiny_folder, config, played, screenshots, is_success
):
    config.reward.judge.screenshots = screenshots
    config.agent.context_screenshots = screenshots + 1 or 1
    made = feed.make_feed(tiny_folder, config)
    shown = judged.demonstration(played, is_success, "", config)
    shown = dataclasses.replace(
        shown, context_screenshots=config.agent.context_screenshots
    )
    (row,) = demos.acting(shown, "d", made.chat, made.image_tokens)
    question = judged.question(played, config.reward.judge)
    segments, images = dialogue.segments(question)
    prompt = made.chat.prompt(segments, lambda key: made.image_tokens(images[key]))
    assert tuple(row.ids[: len(prompt)]) == prompt
    assert not row.loss_weight[: len(prompt)].any()
    assert row.loss_weight[len(prompt) :].all()
    assert list(row.images) == list(images.values())
    said = made.chat.decode(row.ids[len(prompt) :].tolist())
    reason, _, answer = said.partition("</think>")
    assert reason == "Buy milk OK"
    assert verdict.read(answer) == float(is_success)
    assert len(prompt) <= max(config.sample.prompt_buckets)


def test_a_judges_own_rationale_is_kept(config, played):
    shown = judged.demonstration(played, True, "the milk is there", config)
    assert shown.turns[-1].reply_text.startswith("the milk is there</think>")
    assert judged.reason('{"reason": "why", "verdict": "success"}') == "why"
    assert judged.reason("nothing of that kind") == ""


@pytest.mark.parametrize(
    ("ending", "is_open"),
    [
        ({"cause": Cause.PAGE_DONE, "answer": ""}, True),
        ({"cause": Cause.DONE}, True),
        ({"cause": Cause.DONE, "answer": ""}, False),
        ({"cause": Cause.MAX_TURNS}, False),
        ({"cause": Cause.DNS}, False),
    ],
)
def test_only_endings_that_may_be_a_success_are_judged(played, ending, is_open):
    assert judged.can_be_judged(dataclasses.replace(played, **ending)) is is_open


def test_facts_and_rewards_of_the_page_reach_no_judge(config, played):
    played = dataclasses.replace(played, facts={"raw_reward": 0.123456})
    for style in ("full", "short"):
        config.reward.judge.prompt = style
        assert "0.123456" not in str(judged.question(played, config.reward.judge))


@pytest.mark.parametrize("protocol", judge.PROTOCOLS)
async def test_each_injection_reaches_the_judge_by_each_protocol(
    config, played, protocol
):
    """Quoted: that none of them can leave its quotes is shown elsewhere."""

    async def questions(story):
        asked = []

        async def complete(messages, *, seed):
            asked.append(str(messages))
            return (
                '{"verdict": "success", "key_points": ["x"], "score": 5, '
                '"completion": 3, "action": 3, "trajectory": 3, "reason": "r"}'
            )

        with config.reward.judge.unlocked():
            config.reward.judge.protocol = protocol
        config.reward.judge.prompt = "full"
        await judge.judge(story, complete, config.reward.judge)
        return asked

    plain = await questions(played)
    for each in judged.injected(played, protocol):
        assert await questions(each) != plain


def test_each_injection_stands_once_in_the_last_feedback(config, played):
    made = judged.injected(played, "single")
    assert len(made) == len(injections.INJECTIONS)
    for each, words in zip(made, injections.INJECTIONS, strict=True):
        assert each.turns[-1].feedback[-1].text.endswith(f"appeared: '{words}'")
