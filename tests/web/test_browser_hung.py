"""A browser whose closing never returns is ended by force; processes are stand-ins."""

import asyncio
import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser, processes

LIMIT_S = 0.2
# A driver whose child leads a group of its own, as Chromium does.
TREE = "setsid sh -c 'sleep 600 & wait' & echo $!; wait; exec sleep 600"


async def never(*args, **how):
    await asyncio.Event().wait()


@pytest.fixture
def driver():
    with subprocess.Popen(["sh", "-c", TREE], stdout=subprocess.PIPE) as made:
        yield made
        made.kill()


@pytest.fixture
def config():
    return SimpleNamespace(
        close_timeout_s=LIMIT_S,
        navigate_timeout_s=1.0,
        recycle_episodes=9,
        memory_limit_mb=0,
        chromium="",
    )


async def test_it_ends_in_time_and_the_slot_is_free(driver, config, monkeypatch):
    """R42: with all that it started, and no task of ours waits any longer."""
    pid = int(driver.stdout.readline())
    while processes.stat(pid)["group"] != pid or len(processes.members(pid)) < 2:
        await asyncio.sleep(0.01)
    hung = SimpleNamespace(close=never, stop=never)
    home = processes.make_home()
    one = browser.Browser(hung, hung, hung, pid, home, config, None)
    assert one.driver_pid == driver.pid
    pool = browser.Pool(config, {})
    pool._current, one.episodes = one, config.recycle_episodes
    other = SimpleNamespace(episodes=0)

    async def launch(*given):
        return other

    monkeypatch.setattr(browser.Browser, "launch", launch)
    begun = time.monotonic()
    assert await pool.lease() is other
    assert time.monotonic() - begun < 2 * LIMIT_S + 2.5
    assert not processes.members(pid) and driver.wait(5) == -9
    assert not os.path.exists(home)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_start_that_hangs_is_a_crash_even_if_its_driver_does_not_stop(
    config, tmp_path, monkeypatch
):
    """R42: whoever waits for a browser is told, and the driver is ended by its pid."""
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    config.chromium = str(program)
    own = subprocess.Popen(["sleep", "600"])

    class Hung:
        chromium = SimpleNamespace(launch=never)
        _client = SimpleNamespace(_transport=SimpleNamespace(_proc=own))

        async def stop(self):
            await never()

    async def start():
        return Hung()

    monkeypatch.setattr(
        browser.async_api, "async_playwright", lambda: SimpleNamespace(start=start)
    )
    monkeypatch.setattr(browser, "_heed_death", lambda driver: None)
    monkeypatch.setattr(browser, "LAUNCH_TIMEOUT_S", LIMIT_S)
    pool = browser.Pool(config, {})
    with pytest.raises(Failure) as caught:
        await asyncio.wait_for(pool.start(), 5.0)
    assert caught.value.cause is Cause.BROWSER_CRASH
    assert own.wait(5) == -9
