"""Seeded pages, alone and through the browser environment."""

import io

import pytest
import pytest_asyncio
from PIL import Image, ImageChops

from configs import common
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.tasks import miniwob, miniwob_oracles, sites
from openwebrl_jax.web import browser
from openwebrl_jax.web import env as envs

YELLOW = (255, 255, 0)  # behind the request, at the top of every page


def test_a_task_is_a_page_and_a_seed():
    task = miniwob.make_task("click-tab", 7, max_turns=2, split="heldout")
    assert task.id == "miniwob/click-tab/7"
    assert task.start_url == "http://miniwob.test/miniwob/click-tab.html"
    assert (task.max_turns, task.split, task.sites) == (2, "heldout", (sites.MINIWOB,))
    assert "Math.seedrandom(7)" in task.setup
    assert task.oracle and task.is_resettable


def test_there_are_many_pages_and_none_that_runs_by_the_clock():
    assert len(miniwob.NAMES) > 110
    assert not set(miniwob.EXCLUDED) & set(miniwob.NAMES)
    assert set(miniwob_oracles.SCRIPTS) <= set(miniwob.NAMES)


def test_a_page_without_an_oracle_is_a_task_all_the_same():
    task = miniwob.make_task("book-flight", 1, max_turns=9)
    assert not task.oracle and not task.is_resettable


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("click-buton", "unknown MiniWoB task 'click-buton'.*mean click-button"),
        ("", "unknown MiniWoB task ''"),
        ("../core/core", "unknown MiniWoB task"),
        ("moving-items", "'moving-items' runs by the clock"),
    ],
)
def test_a_name_that_is_no_task_is_refused(name, told):
    with pytest.raises(ValueError, match=told):
        miniwob.make_task(name, 0, max_turns=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(chromium):
    config = common.get_config().web
    config.width_px, config.height_px, config.chromium = 160, 224, chromium
    served = sites.serve([sites.MINIWOB])
    made = browser.Pool(config, served.ports)
    yield made
    await made.close()
    served.close()


@pytest_asyncio.fixture(loop_scope="module")
async def env(pool):
    made = envs.make_env(pool)
    yield made
    await made.close()


def at(target) -> ToolCall:
    return ToolCall(name="click", arguments={"point_2d": target})


async def aim(env, task) -> list:
    """The point that the page's oracle would click first."""
    steps = await env.facts(task.oracle["script"])
    return steps[0]["call"]["arguments"]["point_2d"]


def picture(observation) -> Image.Image:
    return Image.open(io.BytesIO(observation.screenshot)).convert("RGB")


def corner(observation):
    return picture(observation).getpixel((2, 2))


def most_difference(one, other) -> float:
    """Of any pixel's colour, 0 to 255."""
    apart = ImageChops.difference(picture(one), picture(other))
    return max(high for _, high in apart.getextrema())


def browsing(test):
    """A test that drives the module's Chromium."""
    return pytest.mark.browser(pytest.mark.asyncio(loop_scope="module")(test))


@browsing
@pytest.mark.parametrize("name", ["click-dialog-2", "enter-text"])
async def test_a_seed_makes_the_same_page_after_any_episode(env, pool, name):
    task = miniwob.make_task(name, 3, max_turns=2)
    other = miniwob.make_task(name, 4, max_turns=2)
    first, seen = await env.reset(task)
    _, different = await env.reset(other)
    await env.step((at([300, 450]), ToolCall(name="write", arguments={"message": "x"})))
    again, seen_again = await env.reset(task)
    fresh = envs.make_env(pool)
    anew, seen_anew = await fresh.reset(task)
    await fresh.close()
    assert first == again == anew and first.intent
    assert most_difference(seen, seen_again) <= 1  # of blending in another layer
    assert most_difference(seen, seen_anew) <= 1
    assert most_difference(seen, different) > 100


@browsing
async def test_the_page_ends_the_task_with_its_raw_reward(env):
    task, _ = await env.reset(miniwob.make_task("click-test", 5, max_turns=2))
    target = await aim(env, task)
    step = await env.step((at(target), at(target)))
    assert (step.cause, step.facts) == (Cause.PAGE_DONE, {"raw_reward": 1})
    assert len(step.feedback) == 1  # nothing runs after the end
    assert corner(step.observation) == YELLOW
    later = await env.step((at([500, 500]),))
    assert (later.cause, later.facts) == (step.cause, step.facts)


@browsing
async def test_a_double_click_does_not_begin_a_new_problem(env):
    task, _ = await env.reset(miniwob.make_task("click-button", 5, max_turns=2))
    twice = {"point_2d": await aim(env, task), "clicks": 2}
    step = await env.step((ToolCall(name="click", arguments=twice),))
    assert (step.cause, step.facts) == (Cause.PAGE_DONE, {"raw_reward": 1})


@browsing
async def test_done_without_the_pages_end_has_no_raw_reward(env):
    await env.reset(miniwob.make_task("click-test", 5, max_turns=2))
    step = await env.step((ToolCall(name="done", arguments={"response": "ok"}),))
    assert (step.cause, step.answer) == (Cause.DONE, "ok")
    assert step.facts.get("raw_reward") is None


@browsing
async def test_a_page_that_was_loaded_anew_counts_for_nothing(env):
    task, _ = await env.reset(miniwob.make_task("click-test", 5, max_turns=2))
    again = ToolCall(name="goto_url", arguments={"url": task.start_url})
    left = await env.step((again,))
    assert (left.cause, corner(left.observation)) == (None, YELLOW)
    assert "START" not in " ".join(line.text for line in left.feedback)
    # Even a policy that could run scripts would have to start a problem of its own.
    await env.facts("() => { core.endEpisode(1.0); return WOB_RAW_REWARD_GLOBAL }")
    step = await env.step((at([500, 500]),))
    assert (step.cause, step.facts.get("raw_reward")) == (None, None)
    task, seen = await env.reset(task)
    assert (await env.step((at(await aim(env, task)),))).facts == {"raw_reward": 1}


@browsing
async def test_an_intent_that_comes_with_fields_is_its_text(env):
    name = "email-inbox-forward-nl"
    task, _ = await env.reset(miniwob.make_task(name, 5, max_turns=2))
    assert task.intent == "Yevette wants his or her message to be sent to Arlyne."
