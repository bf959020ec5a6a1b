import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from configs import common
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Feedback
from openwebrl_jax.rewards import combine, judge
from openwebrl_jax.rewards import decision_tree as tree
from tests.rewards import stories


def png(*dots, size=(64, 48)):
    grey = np.full(size[::-1], 200, np.uint8)
    for x, y in dots:
        grey[y : y + 3, x : x + 3] = 0
    out = io.BytesIO()
    Image.fromarray(grey).save(out, "PNG")
    return out.getvalue()


def walk(*said, states=None, error="", shots=None):
    """Turns with that feedback; `shots` are the screenshots, one more than turns."""
    shots = shots or [png()] * (len(said) + 1)
    turns = []
    for n, text in enumerate(said):
        line = Feedback(tool="click", state=(states or {}).get(n, "effect"), text=text)
        seen = dataclasses.replace(stories.page(0), screenshot=shots[n])
        turns.append(
            dataclasses.replace(
                stories.turn(n), feedback=(line,), observation=seen, parse_error=error
            )
        )
    final = dataclasses.replace(stories.page(0), screenshot=shots[-1])
    return stories.story(turns=tuple(turns), final=final)


DIV, BUTTON = "clicked div: nothing changed", "clicked button 'OK': it is pressed"


@pytest.mark.parametrize(
    ("story", "value"),
    [
        (walk(DIV), tree.INEFFECTIVE),
        (walk(BUTTON), 0.0),
        (walk(BUTTON, states={0: "failed"}), tree.INEFFECTIVE),
        (walk(BUTTON, error="no call"), tree.INVALID),
        (walk(DIV, shots=[png(), png((9, 9))]), 0.0),
        (walk(DIV, shots=[png(), png(size=(32, 24))]), tree.INEFFECTIVE),
    ],
)
async def test_the_tree(story, value):
    assert await tree.penalties(story, None) == [value]


async def test_the_end_of_an_episode_is_no_step_for_nothing():
    story = walk("marked as done")
    (turn,) = story.turns
    line = Feedback(tool="done", state="effect", text="marked as done")
    turn = dataclasses.replace(turn, feedback=(line,))
    story = dataclasses.replace(story, turns=(turn,))
    assert await tree.penalties(story, None) == [0.0]


async def test_what_a_hover_was_over_counts_as_a_hit():
    for text, value in (
        ("hovered over button 'OK': nothing changed", 0.0),
        ("hovered over div: nothing changed", tree.INEFFECTIVE),
    ):
        story = walk(text)
        line = Feedback(tool="hover", state="no_effect", text=text)
        turn = dataclasses.replace(story.turns[0], feedback=(line,))
        story = dataclasses.replace(story, turns=(turn,))
        assert await tree.penalties(story, None) == [value]


async def test_another_address_is_an_effect():
    story = walk(DIV)
    moved = stories.page(0, url="http://shop.test/paid")
    moved = dataclasses.replace(moved, screenshot=png())
    story = dataclasses.replace(story, final=moved)
    assert await tree.penalties(story, None) == [0.0]


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"verdict": "success"}', 0.0),
        ('{"verdict": "failure"}', tree.INEFFECTIVE),
        ("[Yes]", Cause.JUDGE_UNPARSEABLE),
        (Failure(Cause.JUDGE_UNAVAILABLE, ""), Cause.JUDGE_UNAVAILABLE),
    ],
)
async def test_a_model_decides_where_only_pixels_changed(reply, value):
    asked = []

    async def complete(messages, *, seed):
        asked.append(seed)
        if isinstance(reply, Failure):
            raise reply
        return reply

    asking = judge.Asking(complete, "buy", 3)
    changed = walk(DIV, shots=[png(), png((9, 9))])
    if isinstance(value, Cause):  # silence is no praise
        with pytest.raises(Failure, match=value):
            await tree.penalties(changed, asking)
        assert asked == ([42, 43, 44] if reply == "[Yes]" else [42])
        return
    assert await tree.penalties(changed, asking) == [value]
    assert await tree.penalties(walk(DIV, BUTTON), asking) == [-1.0, 0.0]
    assert asked == [42]


async def test_an_outage_gives_no_reward_where_the_process_counts():
    async def nobody(messages, *, seed):
        raise Failure(Cause.JUDGE_UNAVAILABLE, "")

    config = common.get_config().reward
    with config.unlocked():
        config.weights = {"outcome": 1.0, "process": 0.1}
    changed = walk(DIV, shots=[png(), png((9, 9))])
    checks = ({"kind": "answer", "contains": "2 EUR"},)
    task = dataclasses.replace(changed.task, checks=checks)
    changed = dataclasses.replace(changed, task=task)
    reward = await combine.make_reward(config, nobody)(changed)
    assert (reward.is_valid, reward.cause) == (False, Cause.JUDGE_UNAVAILABLE)
    with config.unlocked():
        config.weights = {"outcome": 1.0, "process": 0.0}
    assert (await combine.make_reward(config, nobody)(changed)).value == 1.0


def test_penalties_of_an_episode_sum_to_one_whatever_their_unit():
    assert tree.combine([0, -1, -1]) == [0, -0.5, -0.5]
    assert tree.combine([-5, -1]) == pytest.approx([-5 / 6, -1 / 6])
    assert tree.combine([-5e-4, -1e-4]) == pytest.approx([-5 / 6, -1 / 6])
    assert tree.combine([0, 0]) == [0, 0]
    assert tree.combine([]) == []


async def test_an_episode_without_turns_has_no_penalties():
    assert await tree.penalties(stories.story(final=None), None) == []


def test_similarity_sees_one_small_dot():
    assert tree.similarity(png(), png()) == 1.0
    assert tree.similarity(png((30, 30)), png((30, 30))) == 1.0
    assert tree.similarity(png(), png((30, 30))) < tree.SAME
