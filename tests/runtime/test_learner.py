"""What the learner publishes counts when it is spoken with, and not before."""

import dataclasses
from types import SimpleNamespace

import pytest

from openwebrl_jax.core import types
from openwebrl_jax.runtime import learner
from tests.rollout import ledger_moves as moves


def test_void_slots_have_no_staleness():
    """What is not trained on is as old as it likes."""
    slots = [
        dataclasses.replace(moves.result(n, 1.0), versions=versions)
        for n, versions in enumerate([(4, 3), (0,), (), (4,)])
    ]
    group = types.Group(
        ordinal=0,
        task=moves.task_at(0),
        slots=tuple(slots),
        advantages=(1.0, None, None, -1.0),
    )
    assert learner._ages([group], iteration=5) == [1, 0]


class Ledger:
    def __init__(self, notes):
        self.notes = notes

    def acknowledged(self, version):
        self.notes.append(("acknowledged", version))


class Serving:
    """Swaps its weights some time after it was told to, or never."""

    def __init__(self, notes, is_dead=False):
        self.notes, self.is_dead = notes, is_dead

    def load(self, version, leaves):
        self.notes.append(("told", version))
        if self.is_dead:
            raise ConnectionError("gone")
        self.notes.append(("speaks", version))


def make(version):
    made = learner.Learner()
    made._done, made._state = version, SimpleNamespace(params={})
    return made


def test_a_version_is_acknowledged_once_serving_speaks_with_it():
    """R28: also a resumed run's first one, before anything is asked of serving."""
    notes = []
    make(3).connect(Ledger(notes), Serving(notes))
    assert notes == [("told", 3), ("speaks", 3), ("acknowledged", 3)]


def test_a_version_that_did_not_arrive_is_not_acknowledged():
    """R28."""
    notes = []
    with pytest.raises(ConnectionError):
        make(4).connect(Ledger(notes), Serving(notes, is_dead=True))
    assert notes == [("told", 4)]
