"""Sieges adopt orphans, so they have an interpreter of their own: see test_chaos."""

import os
import subprocess
import sys
import time

import pytest

from openwebrl_jax.runtime import chaos

# A driver whose child outlives it in a session of its own, as a browser does.
DRIVER = """
import subprocess, sys, time
if len(sys.argv) > 1:
    sys.exit(0)
child = [sys.executable, "-c", "import time; time.sleep(600)", "TITLE"]
subprocess.Popen(child, start_new_session=True)
time.sleep(600)
"""
BROWSER = "--remote-debugging-pipe"


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(chaos, "_GONE_S", 1.0)
    monkeypatch.setattr(chaos, "_END_S", 20.0)

    def siege(title=BROWSER):
        command = [sys.executable, "-c", DRIVER.replace("TITLE", title)]
        return chaos._Siege(command, tmp_path, seed=0)

    return siege


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def kinds(siege):
    return sorted(siege._kind(pid, title) for pid, title in siege._tree().items())


def test_what_its_driver_leaves_behind_stays_in_the_tree_and_is_counted(make):
    """R43, R46: the same command outside of the tree is not touched."""
    code = "import time; time.sleep(600)"
    foreign = subprocess.Popen([sys.executable, "-c", code, BROWSER])
    siege = make()
    try:
        wait_for(lambda: kinds(siege).count("browser") == 2)  # pytest's child, too
        siege._driver.kill()
        siege._driver.wait()
        wait_for(lambda: kinds(siege) == ["browser", "browser"])
        foreign.kill()
        foreign.wait()
        assert siege.finish()
        assert siege.clear() == 1
        assert not siege._tree()
    finally:
        foreign.kill()
        foreign.wait()


def test_kills_are_counted_by_kind_and_the_driver_is_started_again(make):
    siege = make()
    wait_for(lambda: kinds(siege) == ["browser", "driver"])
    assert not siege._kill("serving")
    wait_for(lambda: siege._kill("browser"))  # while it begins it has no title
    assert siege._kill("driver")
    siege._driver.wait()
    siege._revive()
    assert (siege.starts, siege.unasked) == (2, 0)
    assert dict(siege.kills) == {"browser": 1, "driver": 1}
    siege._driver.terminate()  # as one that ended by itself
    siege._driver.wait()
    siege._revive()
    assert (siege.starts, siege.unasked) == (3, 1)
    wait_for(lambda: kinds(siege).count("driver") == 1)
    siege._driver.terminate()
    siege._driver.wait()
    assert siege.finish()
    assert siege.unasked == 2  # the last one counts, too
    siege.clear()
    zombies = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "stat="],
        capture_output=True,
        text=True,
    ).stdout.split()
    assert not [state for state in zombies if state.startswith("Z")]


def test_one_that_has_lost_its_title_and_not_yet_died_is_waited_for(make, monkeypatch):
    siege, title = make(), chaos._title
    wait_for(lambda: kinds(siege) == ["browser", "driver"])
    dying = subprocess.Popen(["sleep", "1.5"])
    monkeypatch.setattr(
        chaos, "_title", lambda pid: "" if pid == dying.pid else title(pid)
    )
    assert siege.clear() == 1
    with pytest.raises(ProcessLookupError):
        os.kill(dying.pid, 0)
    dying.wait()
