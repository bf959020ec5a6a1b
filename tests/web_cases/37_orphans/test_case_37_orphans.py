"""Processes and folders that outlive their owner (playwright#41013, #6319)."""

import asyncio
import gc
import os
import signal
import time

import pytest
import pytest_asyncio

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser, env, processes
from tests.web import toys

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def own(config, site, chromium):
    """A pool of this test alone, whose Chromium may be done to as one likes."""
    short = config.copy_and_resolve_references()
    with short.unlocked():
        short.close_timeout_s = 3.0
        short.action_timeout_s = 1.5
    site.pages["/page"] = "<title>start</title><p>x</p>"
    pool = browser.Pool(short, {toys.HOST: site.server_port})
    yield pool
    await pool.close()


def kill_driver(chromium):
    os.kill(chromium.driver_pid, signal.SIGKILL)


def kill_browser(chromium):
    os.killpg(chromium.pid, signal.SIGKILL)


def hang_browser(chromium):
    os.killpg(chromium.pid, signal.SIGSTOP)


@pytest.mark.parametrize("harm", [kill_driver, kill_browser, hang_browser])
async def test_the_episode_is_void_and_the_next_one_is_served(own, harm, caplog):
    slot = env.make_env(own)
    await slot.reset(toys.make_task("/page"))
    first = own._current
    wait = toys.call("wait", seconds=0.4)
    step = asyncio.ensure_future(slot.step((wait, wait, wait)))
    await asyncio.sleep(0.2)
    harm(first)
    begun = time.monotonic()
    with pytest.raises(Failure) as caught:
        await step
    assert caught.value.cause is Cause.BROWSER_CRASH
    assert time.monotonic() - begun < 12
    await slot.reset(toys.make_task("/page"))
    assert own._current is not first
    assert toys.said(await slot.step((toys.CLICK,)))[0] == "no_effect"
    await slot.close()
    assert not processes.members(first.pid) and not os.path.exists(first._home)
    assert not processes.is_running(first.driver_pid, first._driver_born)
    gc.collect()
    assert "never retrieved" not in caplog.text and "destroyed" not in caplog.text


@pytest.mark.parametrize("harm", [kill_driver, kill_browser])
async def test_a_death_at_reset_is_not_the_sites_fault(own, site, harm):
    site.pages["/slow"] = (200, {"Sleep": "1"}, "x")
    slot = env.make_env(own)
    await own.start()
    resetting = asyncio.ensure_future(slot.reset(toys.make_task("/slow")))
    await asyncio.sleep(0.5)
    harm(own._current)
    with pytest.raises(Failure) as caught:
        await resetting
    assert caught.value.cause is Cause.BROWSER_CRASH


async def test_a_browser_that_has_grown_too_large_is_replaced(own):
    slot = env.make_env(own)
    await slot.reset(toys.make_task("/page"))
    first = own._current
    taken_mb = first.memory_mb()
    assert 50 < taken_mb < 2000
    with own.config.unlocked():
        own.config.memory_limit_mb = int(4 * taken_mb)
    await slot.reset(toys.make_task("/page"))
    assert own._current is first
    with own.config.unlocked():
        own.config.memory_limit_mb = int(taken_mb / 4)
    await slot.reset(toys.make_task("/page"))
    assert own._current is not first and not first.is_alive()
    await slot.close()
