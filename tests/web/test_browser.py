"""Chromium's life and death: crashes, recycling, and nothing left behind."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task, ToolCall
from openwebrl_jax.web import browser, env, processes

CLICK = ToolCall(name="click", arguments={"point_2d": [900, 900]})


def open_page(site):
    site.pages["/page"] = "<p>x</p>"
    url = "http://site.test/page"
    return Task(id="t", intent="i", start_url=url, max_turns=2, sites=("site.test",))


def test_a_missing_chromium_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"config\.web\.chromium='/nowhere/chrome'"):
        browser.find_chromium("/nowhere/chrome")
    monkeypatch.setattr(browser, "DEBIAN", str(tmp_path / "none"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(ValueError, match="apt-get install chromium.*playwright"):
        browser.find_chromium("")
    own = tmp_path / "chromium-1234/chrome-linux64/chrome"
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert browser.find_chromium("") == str(own)


@pytest.mark.browser
async def test_a_browser_that_does_not_start_is_a_crash(config, tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    other = config.copy_and_resolve_references()
    with other.unlocked():
        other.chromium = str(broken)
    with pytest.raises(Failure) as caught:
        await browser.Pool(other, {}).start()
    assert caught.value.cause is Cause.BROWSER_CRASH


@pytest.mark.browser
async def test_a_killed_browser_is_a_crash_and_the_pool_recovers(
    config, site, chromium, monkeypatch
):
    monkeypatch.setenv("SECRET_KEY", "do not tell")
    pool = browser.Pool(config, {"site.test": site.server_port})
    one, two = env.make_env(pool), env.make_env(pool)
    for slot in (one, two):
        await slot.reset(open_page(site))
    first = pool._current
    environment = pathlib.Path(f"/proc/{first.pid}/environ").read_bytes()
    assert b"do not tell" not in environment and os.getpgid(first.pid) == first.pid
    waiting = asyncio.ensure_future(
        one.step((ToolCall(name="wait", arguments={"seconds": 0.5}),))
    )
    await asyncio.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    for work in (waiting, two.step((CLICK,))):
        with pytest.raises(Failure) as caught:
            await work
        assert caught.value.cause is Cause.BROWSER_CRASH
    for slot in (one, two):
        await slot.reset(open_page(site))
        assert (await slot.step((CLICK,))).feedback[0].state == "no_effect"
    second = pool._current
    assert second is not first and not first.is_alive()
    await pool.close()
    assert not processes.members(first.pid) and not processes.members(second.pid)
    assert not os.path.exists(first._home) and not os.path.exists(second._home)


@pytest.mark.browser
async def test_a_worn_out_browser_is_replaced_when_its_episodes_are_over(
    config, site, chromium
):
    short = config.copy_and_resolve_references()
    with short.unlocked():
        short.recycle_episodes = 2
    pool = browser.Pool(short, {"site.test": site.server_port})
    one, two = env.make_env(pool), env.make_env(pool)
    await one.reset(open_page(site))
    first = pool._current
    await two.reset(open_page(site))
    await one.reset(open_page(site))
    assert pool._current is not first and first.is_alive()
    assert (await two.step((CLICK,))).feedback[0].state == "no_effect"
    await two.close()
    assert not first.is_alive()
    await one.close()
    await pool.close()


@pytest.mark.browser
def test_a_killed_owner_takes_its_browser_along(chromium):
    code = """
import asyncio, os
from configs import common
from openwebrl_jax.web import browser
async def main():
    pool = browser.Pool(common.get_config().web, {})
    await pool.start()
    print(pool._current.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    root = pathlib.Path(__file__).parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root
    )
    with owner:
        group = int(owner.stdout.readline())
        assert processes.members(group)
        owner.kill()
    end = time.monotonic() + 20
    while processes.members(group):
        assert time.monotonic() < end, "Chromium outlived its owner"
        time.sleep(0.1)
