"""A siege harms its own tree alone, buries its dead, and sees what is left."""

import pathlib
import subprocess
import sys

import pytest

from openwebrl_jax.runtime import chaos


def test_sieges():
    own = pathlib.Path(__file__).parent / "sieges.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(own)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("ray::Worker", "worker"),
        ("ray::Worker.serve", "worker"),
        ("ray::Queue.take", "ledger"),
        ("ray::Serving", "serving"),
        ("ray::Learner.tell", "learner"),
        ("ray::IDLE", ""),
        ("/usr/lib/chromium/chromium --remote-debugging-pipe --x", "browser"),
        ("/usr/lib/chromium/chromium --type=gpu --remote-debugging-pipe", ""),
        ("vim Queue", ""),
    ],
)
def test_kinds_by_title(title, kind):
    class Nobody:
        _driver = type("Driver", (), {"pid": -1})

    assert chaos._Siege._kind(Nobody, 1, title) == kind


def test_a_count_that_does_not_add_up_is_seen():
    good = {"lost": 0, "trained_twice": 0, "scored_twice": 0, "processes_left": 0}
    assert chaos.adds_up(good | {"ended_well": True})
    assert not chaos.adds_up(good | {"ended_well": False})
    for name in good:
        assert not chaos.adds_up(good | {"ended_well": True, name: 1})
