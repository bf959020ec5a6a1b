"""Rollbacks, checkpoints and what is forgotten, case by case."""

import pytest

from openwebrl_jax.rollout import books, events, ledger
from tests.rollout import ledger_moves as moves


def test_a_rollback_replays_the_same_iterations():
    state = ledger.new_state(moves.limits(eta=1))
    state, straggler = moves.offer(state)
    state, other = moves.offer(state)
    state = moves.finish(state, other, 0.0)
    state = moves.run_groups(state, [(1.0, 0.0)] * 3)
    state = moves.train(state, 1)  # groups 1 and 2, for 0 still runs
    state = moves.run_groups(moves.finish(state, straggler, 1.0), [(1.0, 0.0)])
    assert ledger.waiting_groups(state) == [0, 3, 4]
    state = moves.train(state, 2)
    state = moves.play(state, ledger.rollback(state, 0))
    assert ledger.waiting_groups(state) == [1, 2, 0, 3, 4]
    counts = books.counts(state)
    assert counts["groups"]["trained"] == 0 and counts["other"]["untrained"] == 4
    state = moves.train(moves.train(state, 1), 2)
    assert ledger.waiting_groups(state) == [4]


def test_after_a_rollback_groups_wait_for_the_version_they_were_opened_for():
    state = moves.train(moves.played([(1.0, 0.0)] * 2), 1)
    state, lease = moves.offer(state)
    assert lease.ordinal == 2
    state = moves.play(state, ledger.rollback(state, 0) + ledger.restart(state))
    assert moves.offer(state)[1] is None
    state = moves.train(state, 1)
    state, lease = moves.offer(state)
    assert (lease.ordinal, lease.slot, lease.attempt) == (2, 0, 1)
    assert not lease.fresh_browser


def test_acknowledgements_of_what_was_undone_say_nothing():
    state = moves.train(moves.played([(1.0, 0.0)] * 2), 1)
    state = moves.play(state, ledger.rollback(state, 0))
    assert state.acknowledged == 0
    assert ledger.acknowledged(state, 1) == []


def test_a_checkpoint_makes_what_it_holds_forgotten():
    state = moves.train(moves.played([(1.0, 0.0)] * 2), 1)
    assert set(state.groups) == {0, 1}
    state = moves.play(state, ledger.checkpointed(state, 1))
    assert not state.groups and not state.trained
    with pytest.raises(ValueError, match="cannot go back"):
        ledger.rollback(state, 0)
    assert books.counts(state)["groups"]["trained"] == 2


def test_a_checkpoint_before_the_acknowledgement_keeps_admission_closed():
    state = moves.played([(1.0, 0.0)] * 2)
    state = moves.play(state, ledger.take(state, 2))
    state = moves.play(state, ledger.trained(state, 1, [0, 1], 1))
    state = moves.play(
        state, ledger.checkpointed(state, 1) + ledger.published(state, 1)
    )
    assert moves.offer(state)[1] is None
    state = moves.play(state, ledger.acknowledged(state, 1))
    assert not state.trained and moves.offer(state)[1].ordinal == 2


def test_groups_are_trained_once_and_iterations_in_order():
    state = moves.train(moves.played([(1.0, 0.0)] * 2), 1)
    with pytest.raises(ValueError, match="group 0 is trained"):
        moves.play(state, ledger.trained(state, 2, [0], 2))
    with pytest.raises(ValueError, match="iteration 1"):
        ledger.trained(state, 1, [], 2)


def test_trained_twice_is_counted_in_the_surviving_lineage():
    def told(iteration, ordinals):
        return {"kind": "trained", "iteration": iteration, "ordinals": ordinals}

    undone = {"kind": "rolled_back", "iteration": 1}
    assert events.trained_twice([told(1, [0]), told(2, [1]), undone, told(2, [1])]) == 0
    assert events.trained_twice([told(1, [0]), told(2, [1]), told(3, [1, 0])]) == 2


def test_a_snapshot_is_the_state():
    state = moves.train(moves.played([(1.0, 0.0)] * 3, eta=1), 1)
    state, _ = moves.offer(state)
    again = books.restore(books.snapshot(state))
    assert again == state
    assert books.snapshot(again) == books.snapshot(state)
