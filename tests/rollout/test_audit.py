"""The audit believes the journal and the disk, and no counter."""

import pytest

from openwebrl_jax.rollout import audit, events, ledger
from tests.rollout import ledger_moves as moves

STORED = ("hash-0", "hash-1")


def journal() -> list:
    """Two iterations, the second undone and made again; one group is open."""
    state, told = ledger.new_state(moves.limits()), []

    def play(found):
        nonlocal state
        told.extend(found)
        state = moves.play(state, found)

    def group():
        for value in (1.0, 0.0):
            found = ledger.offer(state, 0.0, "w", moves.task_at)
            play(found)
            lease = ledger.lease(state, found)
            assert lease is not None
            record = moves.result(lease.slot, value)
            at = lease.ordinal, lease.slot, lease.attempt
            play(ledger.finish(state, 0.0, *at, record))

    def train(number):
        found = ledger.take(state, 2)
        play(found)
        play(ledger.trained(state, number, found[0]["ordinals"], number))
        play(ledger.published(state, number))
        play(ledger.acknowledged(state, number))

    for number in (1, 2):
        group()
        group()
        train(number)
    play(ledger.rollback(state, 1))
    play(ledger.restart(state))
    train(2)
    play(ledger.offer(state, 0.0, "w", moves.task_at))
    return told


def faults(told, stored=STORED):
    found = audit.audit(moves.limits(), told, stored)
    return found["lost"], found["trained_twice"], found["scored_twice"]


def test_a_run_that_went_back_has_lost_nothing():
    assert faults(journal()) == (0, 0, 0)


def test_a_trajectory_that_is_not_on_disk_is_lost():
    assert faults(journal(), ["hash-0"]) == (1, 0, 0)


def test_a_run_without_a_journal_has_lost_it():
    assert faults([]) == (1, 0, 0)


def test_a_group_that_is_trained_twice_is_seen():
    told = journal()
    told = [event for event in told if event["kind"] != "rolled_back"]
    again = [event for event in told if event["kind"] == "trained"]
    assert events.trained_twice(again) == 2


def test_a_group_that_nothing_accounts_for_is_lost():
    state = ledger.new_state(moves.limits())
    opened = {"kind": "opened", "ordinal": 0}
    assert audit._unaccounted(state, [opened]) == {0}


@pytest.mark.parametrize("kind", ["scored", "closed", "taken"])
def test_an_event_that_is_missing_is_no_silent_gap(kind):
    told = journal()
    told.remove(next(event for event in told if event["kind"] == kind))
    with pytest.raises((ValueError, KeyError)):
        faults(told)
