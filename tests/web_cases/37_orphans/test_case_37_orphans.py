"""Processes and folders that outlive their owner (playwright#41013, #6319)."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser, env, processes
from tests.web import toys

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT = pathlib.Path(__file__).parents[3]
WORKER = """
import asyncio, sys
from configs import common
from openwebrl_jax.web import browser
async def main():
    pool = browser.Pool(common.get_config().web, {})
    await pool.start()
    print(pool._current.pid, pool._current.driver_pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture
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
async def test_the_episode_is_void_and_the_next_one_is_served(own, harm):
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
        own.config.memory_limit_mb = 4 * taken_mb
    await slot.reset(toys.make_task("/page"))
    assert own._current is first
    with own.config.unlocked():
        own.config.memory_limit_mb = taken_mb / 4
    await slot.reset(toys.make_task("/page"))
    assert own._current is not first and not first.is_alive()
    await slot.close()


def test_a_killed_worker_leaves_nothing_behind_the_next_start(chromium, monkeypatch):
    place = tempfile.mkdtemp(prefix="owk_")
    owner = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": place},
    )
    with owner:
        assert owner.stdout is not None
        group, driver = map(int, owner.stdout.readline().split())
        born = processes.stat(driver)["born"]
        assert {name.split("_")[0] for name in os.listdir(place)} == {"openwebrl"}
        monkeypatch.setattr(tempfile, "tempdir", place)
        processes.reap()
        assert processes.members(group), "a living owner's browser was taken away"
        os.kill(owner.pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while processes.members(group) or processes.is_running(driver, born):
        assert time.monotonic() < end, "Chromium outlived its owner"
        time.sleep(0.05)
    pathlib.Path(place, "openwebrl_browser_other").mkdir()
    pathlib.Path(place, "playwright_chromiumdev_profile-other").mkdir()
    processes.reap()
    kept = {"openwebrl_browser_other", "playwright_chromiumdev_profile-other"}
    assert set(os.listdir(place)) == kept
    for name in kept:
        pathlib.Path(place, name).rmdir()
    os.rmdir(place)


def test_what_still_runs_in_the_home_of_a_dead_owner_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    born = processes.stat(dead.pid)["born"]
    dead.wait()
    name = f"openwebrl_browser_{processes._namespace():x}_{dead.pid:x}_{born:x}_abc"
    (tmp_path / name).mkdir()
    orphan = subprocess.Popen(["sleep", "60"], start_new_session=True)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        processes.note(str(tmp_path / name), orphan.pid)
        processes.reap()
        assert orphan.wait(5) == -signal.SIGKILL
        assert bystander.poll() is None and not os.listdir(tmp_path)
    finally:
        bystander.kill()
        bystander.wait()
