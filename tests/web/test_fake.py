"""The browser that is a drawing."""

import io

import pytest
from PIL import Image

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task, ToolCall
from openwebrl_jax.web import fake


@pytest.fixture
def slot(config):
    return fake.FakeEnv(config)


async def test_the_oracle_solves_every_seed(slot):
    for seed in range(40):
        task, seen = await slot.reset(fake.make_task(seed, squares=4, screens=2))
        for _ in range(2):
            (press,) = await slot.facts("next steps")
            step = await slot.step((ToolCall(**press["call"]),))
        assert step.cause is Cause.PAGE_DONE and step.facts == {"raw_reward": 1.0}
        assert press["thought"].split("the ")[1] in task.intent


async def test_other_squares_and_the_page_end_with_nothing(slot):
    for seed in range(20):
        await slot.reset(fake.make_task(seed, squares=3))
        ((first, *_),) = [press["others"] for press in await slot.facts("")]
        step = await slot.step((ToolCall(**first["call"]),))
        assert step.cause is Cause.PAGE_DONE and step.facts == {"raw_reward": 0.0}
    await slot.reset(fake.make_task(0))
    corner = ToolCall(name="click", arguments={"point_2d": [1000, 1000]})
    assert (await slot.step((corner,))).facts == {"raw_reward": 0.0}


async def test_the_square_is_where_the_task_says(slot):
    task, seen = await slot.reset(fake.make_task(5))
    assert (seen.width_px, seen.height_px) == (160, 224)
    image = Image.open(io.BytesIO(seen.screenshot))
    (press,) = await slot.facts("")
    x, y = press["call"]["arguments"]["point_2d"]
    assert x % 40 == y % 40 == 0
    assert image.getpixel((x * 160 // 1000, y * 224 // 1000)) != (255, 255, 255)
    again = await fake.FakeEnv(slot._place.config).reset(fake.make_task(5))
    assert again == (task, seen)


async def test_done_wrong_calls_and_foreign_tasks(slot):
    await slot.reset(fake.make_task(1))
    wrong = ToolCall(name="click", arguments={"point_2d": "middle"})
    done = ToolCall(name="done", arguments={"response": "yes"})
    step = await slot.step((wrong, done, wrong))
    assert [line.state for line in step.feedback] == ["failed", "effect"]
    assert (step.cause, step.answer, step.facts) == (Cause.DONE, "yes", {})
    assert (await slot.step((wrong,))).feedback == ()
    with pytest.raises(Failure):
        await slot.reset(Task(id="x", intent="", start_url="http://x/", max_turns=1))
