"""Folders and processes of a worker that was killed (playwright-java#1911)."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from openwebrl_jax.web import processes

pytestmark = pytest.mark.browser

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
