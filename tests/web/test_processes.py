"""Trees of real processes die whole, and nobody else does; no browser."""

import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time

from openwebrl_jax.web import processes

TREE = ["sh", "-c", "sleep 600 & sleep 600 & wait"]


def start(**how) -> subprocess.Popen:
    return subprocess.Popen(TREE, start_new_session=True, **how)


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_trees_whose_members_die_in_any_order_leave_nothing():
    """R43, R46: only our own pids are signalled, the same command beside them lives."""
    draw = random.Random(0)
    foreign = start()
    wait_for(lambda: len(processes.members(foreign.pid)) == 3)
    for _ in range(20):
        leader = start()
        born = processes.stat(leader.pid)["born"]
        wait_for(lambda pid=leader.pid: len(processes.members(pid)) == 3)
        for pid in draw.sample(processes.members(leader.pid), draw.randrange(3)):
            os.kill(pid, signal.SIGKILL)
        processes.kill_group(leader.pid, born)
        leader.wait()
        wait_for(lambda pid=leader.pid: not processes.members(pid))
        assert not processes.is_running(leader.pid, born)
    assert len(processes.members(foreign.pid)) == 3
    processes.kill_group(foreign.pid, processes.stat(foreign.pid)["born"])
    foreign.wait()


def test_a_number_that_belongs_to_somebody_else_by_now_is_left_alone():
    """R46: a pid is known with the time at which it was born."""
    somebody = start()
    born = processes.stat(somebody.pid)["born"]
    wait_for(lambda: len(processes.members(somebody.pid)) == 3)
    processes.kill(somebody.pid, born - 1)
    processes.kill_group(somebody.pid, born - 1)
    assert len(processes.members(somebody.pid)) == 3
    assert not processes.is_running(somebody.pid, born - 1)
    processes.kill_group(somebody.pid, born)
    somebody.wait()


def test_who_ends_between_the_look_and_the_signal_is_no_error(monkeypatch):
    gone = start()
    born = processes.stat(gone.pid)["born"]
    os.killpg(gone.pid, signal.SIGKILL)
    gone.wait()
    wait_for(lambda: not processes.members(gone.pid))
    monkeypatch.setattr(processes, "is_running", lambda pid, born: True)
    monkeypatch.setattr(processes, "members", lambda group: [group])
    processes.kill(gone.pid, born)
    processes.kill_group(gone.pid, born)


def test_workers_that_start_together_take_homes_away_together(monkeypatch, tmp_path):
    """Of what one has listed another one may have taken away some."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    homes = [pathlib.Path(processes.make_home()) for _ in range(3)]
    monkeypatch.setattr(processes, "is_running", lambda pid, born: False)
    ended = []

    def another_is_faster(home):
        ended.append(home)
        for each in homes:
            each.rmdir()

    monkeypatch.setattr(processes, "_end", another_is_faster)
    processes.reap()
    assert len(ended) == 1 and not list(tmp_path.iterdir())
