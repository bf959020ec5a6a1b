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
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout[-3000:]


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


GOOD = {
    **dict.fromkeys(("lost", "trained_twice", "scored_twice", "processes_left"), 0),
    "driver_ends_unasked": 0,
    "ended_well": True,
    "iterations": 10,
    "minutes": 21.6,
    "kills": dict.fromkeys(chaos.KINDS, 7),
}


def test_a_good_siege_has_no_faults():
    assert not chaos.faults(GOOD)
    one_kill = dict.fromkeys(chaos.KINDS, 0) | {"driver": 1}
    assert not chaos.faults(GOOD | {"minutes": 1.0, "kills": one_kill})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lost": 1}, "lost is 1; wanted 0"),
        ({"trained_twice": 1}, "trained_twice is 1"),
        ({"scored_twice": 1}, "scored_twice is 1"),
        ({"processes_left": 1}, "processes_left is 1"),
        ({"driver_ends_unasked": 9}, "driver_ends_unasked is 9"),
        ({"ended_well": False}, "did not end well"),
        ({"iterations": 0}, "no iteration"),
        ({"kills": dict.fromkeys(chaos.KINDS, 0), "minutes": 0.5}, "nothing was kill"),
        ({"kills": GOOD["kills"] | {"ledger": 0}}, "no ledger was killed"),
    ],
)
def test_a_count_that_does_not_add_up_is_named(change, told):
    (fault,) = chaos.faults(GOOD | change)
    assert told in fault
