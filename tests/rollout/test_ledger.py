"""Leases, attempts, groups and their order, case by case."""

import json

import pytest

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, events, ledger


def limits(**changes) -> books.Limits:
    values = {
        "group": 2,
        "groups": 2,
        "eta": 0,
        "retries": 2,
        "lease_timeout_s": 10.0,
        "starve_batches": 2,
        "advantage": "mean_std",
    }
    return books.Limits(**(values | changes))


def task_at(ordinal: int) -> types.Task:
    return types.Task(
        id=f"t/{ordinal}",
        intent="click OK",
        start_url="http://fake.test/",
        max_turns=3,
        checks=({"kind": "fact", "name": "raw_reward", "equals": 1.0},),
    )


def result(
    slot: int,
    value: float | None,
    cause: Cause = Cause.DONE,
    judge: Cause | None = None,
) -> types.Slot:
    """A record of the slot; no value = void."""
    is_valid = value is not None
    reward = types.Reward(value=value or 0.0, parts={}, is_valid=is_valid, cause=judge)
    return types.Slot(
        index=slot,
        trajectory=f"hash-{slot}",
        reward=reward,
        cause=cause,
        versions=(0,),
        turns=1,
    )


def play(state: books.State, found: list[events.Event]) -> books.State:
    """Events as the journal brings them back; the laws hold after each of them."""
    for event in found:
        state = events.apply(state, json.loads(json.dumps(event)))
        books.check(state)
    return state


def offer(state: books.State, worker: str = "w", now_s: float = 0.0):
    found = ledger.offer(state, now_s, worker, task_at)
    state = play(state, found)
    return state, ledger.lease(state, found)


def finish(state: books.State, lease: ledger.Lease, value: float | None, *why: Cause):
    record = result(lease.slot, value, *why)
    found = ledger.finish(state, lease.ordinal, lease.slot, lease.attempt, record)
    return play(state, found)


def run_groups(state: books.State, rewards: list[tuple[float, ...]]) -> books.State:
    """Plays whole groups, one after the other, with these rewards."""
    for values in rewards:
        for value in values:
            state, lease = offer(state)
            assert lease is not None
            state = finish(state, lease, value)
    return state


def train(state: books.State, iteration: int, count: int = 2) -> books.State:
    """Takes, trains and publishes; serving follows at once."""
    found = ledger.take(state, count)
    assert found
    state = play(state, found)
    ordinals = found[0]["ordinals"]
    state = play(state, ledger.trained(state, iteration, ordinals, iteration))
    state = play(state, ledger.published(state, iteration))
    return play(state, ledger.acknowledged(state, iteration))


def test_slots_of_the_oldest_group_go_first_and_admission_ends_at_eta():
    state = ledger.new_state(limits(eta=1))
    leases = []
    for _ in range(9):
        state, lease = offer(state)
        leases.append(lease)
    assert [(it.ordinal, it.slot) for it in leases[:8]] == [
        (ordinal, slot) for ordinal in range(4) for slot in range(2)
    ]
    assert leases[8] is None
    assert leases[0].task == task_at(0)
    assert leases[0].deadline_s == 10.0 and not leases[0].fresh_browser


def test_a_group_closes_with_advantages_and_leaves_when_its_version_is_spoken():
    state = run_groups(ledger.new_state(limits()), [(1.0, 0.0), (0.0, 1.0)])
    assert ledger.waiting_groups(state) == [0, 1]
    assert offer(state)[1] is None
    taken = ledger.take(state, 2)
    state = play(state, taken)
    group = books.groups(state, taken[0]["ordinals"])[0]
    assert group.advantages == pytest.approx((0.7071, -0.7071), abs=1e-4)
    assert [slot.index for slot in group.slots] == [0, 1]
    state = play(state, ledger.trained(state, 1, [0, 1], 1))
    assert offer(state)[1] is None
    state = play(state, ledger.published(state, 1))
    assert offer(state)[1] is None
    state = play(state, ledger.acknowledged(state, 1))
    assert offer(state)[1].ordinal == 2


def test_equal_rewards_are_dropped_counted_and_refilled():
    # R01, R22: a rejected group is an answer; the taker gets what replaces it.
    state = run_groups(ledger.new_state(limits()), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
    assert ledger.take(state, 2) == [{"kind": "taken", "ordinals": [1, 2]}]
    counts = books.counts(state)
    assert counts["filtered"] == {"zero_variance": 1}
    assert counts["groups"]["opened"] == 3
    assert 0 not in state.groups


def test_ten_empty_batches_are_a_typed_stop_with_reasons():
    # R01: 8 groups of 4, all alike, then nothing is opened any more.
    state = ledger.new_state(limits(group=4, groups=4))
    state = run_groups(state, [(1.0,) * 4] * 7)
    assert ledger.take(state, 4) == []
    state = run_groups(state, [(1.0,) * 4])
    assert offer(state)[1] is None
    with pytest.raises(ledger.StarvationError, match="zero_variance 8") as caught:
        ledger.take(state, 4)
    assert caught.value.reasons == {"zero_variance": 8}
    assert books.counts(state)["groups"]["trained"] == 0


def test_a_kept_group_ends_a_dry_spell():
    state = run_groups(ledger.new_state(limits()), [(1.0, 1.0)] * 3 + [(1.0, 0.0)])
    state = run_groups(state, [(1.0, 1.0)] * 3)
    assert ledger.take(state, 2) == []


def test_void_slots_are_in_no_statistic():
    # R04, second part: [1, 0, void] -> [0.707, -0.707, none].
    state = ledger.new_state(limits(group=3, retries=0))
    for value, cause in ((1.0, Cause.DONE), (0.0, Cause.DONE), (None, Cause.DNS)):
        state, lease = offer(state)
        state = finish(state, lease, value, cause)
    (group,) = books.groups(state, [0])
    assert group.advantages[2] is None
    assert group.advantages[:2] == pytest.approx((0.7071, -0.7071), abs=1e-4)
    assert books.counts(state)["void"] == {"dns": 1}


def test_void_members_leave_equal_rewards_equal():
    # R04, first part: [1, 1, judge timeout] has no variance.
    state = ledger.new_state(limits(group=3, retries=0))
    for value, judge in ((1.0, None), (1.0, None), (None, Cause.JUDGE_UNAVAILABLE)):
        state, lease = offer(state)
        state = finish(state, lease, value, Cause.DONE, *([judge] if judge else []))
    assert books.counts(state)["filtered"] == {"zero_variance": 1}


def test_one_usable_member_is_no_group_and_none_is_void():
    # R02.
    state = ledger.new_state(limits(group=4, retries=0))
    for value in (1.0, None, None, None, None, None, None, None):
        state, lease = offer(state)
        state = finish(state, lease, value, Cause.DNS if value is None else Cause.DONE)
    counts = books.counts(state)
    assert counts["filtered"] == {"too_few_valid": 1}
    assert counts["groups"]["void"] == 1
    assert sum(state.dry.values()) == 2


def test_a_spoilt_slot_is_tried_again_on_a_fresh_browser_and_then_void():
    state = ledger.new_state(limits())
    for attempt in range(3):
        state, lease = offer(state)
        assert (lease.slot, lease.attempt) == (0, attempt)
        assert lease.fresh_browser is (attempt > 0)
        state = finish(state, lease, None, Cause.BROWSER_CRASH)
    assert offer(state)[1].slot == 1
    assert books.counts(state)["void"] == {"browser_crash": 3}


def test_a_prompt_too_long_is_not_tried_again_and_a_stop_is_no_fault():
    state = ledger.new_state(limits(retries=1))
    state, lease = offer(state)
    state = finish(state, lease, None, Cause.PROMPT_TOO_LONG)
    for _ in range(4):
        state, lease = offer(state)
        assert lease.slot == 1 and not lease.fresh_browser
        state = finish(state, lease, None, Cause.CANCELLED)


def test_duplicates_are_ignored_and_counted():
    # R33: by the same attempt, and after the group is gone.
    state = ledger.new_state(limits())
    state, first = offer(state)
    state = finish(state, first, 1.0)
    again = finish(state, first, 0.0)
    assert again.groups == state.groups
    state, second = offer(again)
    state = finish(finish(state, second, 1.0), second, 1.0)
    assert books.counts(state)["other"]["duplicates"] == 2
    assert books.counts(state)["slots"]["scored"] == 2


def test_an_overdue_lease_is_leased_again_and_the_first_result_counts():
    # R23, R33: attempt 0 is slow; both attempts come in, the first scored one counts.
    state = ledger.new_state(limits())
    state, slow = offer(state)
    state, retry = offer(state, now_s=11.0)
    assert (retry.slot, retry.attempt) == (slow.slot, 1)
    state = finish(state, slow, 1.0)
    state = finish(state, retry, 0.0)
    assert state.groups[0].places[0].record.reward.value == 1.0
    counts = books.counts(state)
    assert counts["slots"]["leased"] == 2 and counts["slots"]["scored"] == 1
    assert counts["other"]["duplicates"] == 1


def test_a_late_result_fills_a_slot_that_is_free_again():
    state = ledger.new_state(limits())
    state, slow = offer(state)
    state = play(state, ledger.expire(state, 11.0))
    state = finish(state, slow, 1.0)
    assert state.groups[0].places[0].status is books.Status.SCORED


def test_a_late_void_changes_nothing():
    state = ledger.new_state(limits())
    state, slow = offer(state)
    state, retry = offer(state, now_s=11.0)
    state = finish(state, slow, None, Cause.DNS)
    assert state.groups[0].places[0].attempt == retry.attempt
    assert state.groups[0].places[0].faults == 1


def test_a_lost_worker_gives_back_its_leases_alone():
    state = ledger.new_state(limits())
    state, gone = offer(state, worker="a")
    state, kept = offer(state, worker="b")
    state = play(state, ledger.worker_lost(state, "a"))
    state, again = offer(state, worker="b")
    assert (again.slot, again.attempt, again.fresh_browser) == (gone.slot, 1, True)
    assert state.groups[0].places[kept.slot].worker == "b"


def test_a_worker_killer_ends_as_void():
    # R32: workers that die on a task do so a bounded number of times.
    state = ledger.new_state(limits())
    for _ in range(3):
        state, lease = offer(state)
        assert lease.slot == 0
        state = play(state, ledger.worker_lost(state, "w"))
    assert offer(state)[1].slot == 1


def test_an_episode_that_the_judge_missed_is_judged_from_disk():
    # R39: no browsing again; judged once the lease's own time is over.
    state = ledger.new_state(limits())
    state, lease = offer(state)
    state = finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    assert books.counts(state)["slots"]["awaiting_judge"] == 1
    state, other = offer(state, now_s=5.0)
    assert other.slot == 1 and other.trajectory == ""
    state, judging = offer(state, now_s=10.0)
    assert (judging.slot, judging.trajectory) == (0, "hash-0")
    assert books.counts(state)["slots"]["awaiting_judge"] == 1
    state = finish(state, judging, 1.0)
    assert books.counts(state)["slots"] == {
        "leased": 2,
        "scored": 1,
        "void": 0,
        "running": 1,
        "awaiting_judge": 0,
    }


def test_a_judge_that_never_answers_ends_as_void():
    state = ledger.new_state(limits(retries=1))
    now_s = 0.0
    for _ in range(2):
        state, lease = offer(state, now_s=now_s)
        assert lease.slot == 0
        state = finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
        now_s += 10.0
    assert state.groups[0].places[0].status is books.Status.VOID
    assert books.counts(state)["void"] == {"judge_unavailable": 1}


def test_a_scored_crash_and_a_voided_failure_are_refused():
    # R40, both directions.
    state, lease = offer(ledger.new_state(limits()))
    for record in (
        result(lease.slot, 1.0, Cause.BROWSER_CRASH),
        result(lease.slot, None, Cause.DONE),
        result(lease.slot + 1, 1.0),
    ):
        with pytest.raises(ValueError):
            ledger.finish(state, lease.ordinal, lease.slot, lease.attempt, record)


def test_what_is_not_taken_stays():
    # R24: ten closed groups, four asked for, six remain in order.
    state = run_groups(ledger.new_state(limits(groups=10)), [(1.0, 0.0)] * 10)
    state = play(state, ledger.take(state, 4))
    assert ledger.waiting_groups(state) == [4, 5, 6, 7, 8, 9]
    assert ledger.take(state, 7) == []


def test_no_group_is_opened_beyond_the_last_iteration():
    state = run_groups(ledger.new_state(limits(eta=1, iterations=1)), [(1.0, 0.0)] * 2)
    assert offer(state)[1] is None
    assert offer(train(state, 1))[1] is None


def test_a_rollback_replays_the_same_iterations():
    state = ledger.new_state(limits(eta=1))
    state, straggler = offer(state)
    state, other = offer(state)
    state = finish(state, other, 0.0)
    state = run_groups(state, [(1.0, 0.0)] * 3)
    state = train(state, 1)  # groups 1 and 2, for 0 still runs
    state = run_groups(finish(state, straggler, 1.0), [(1.0, 0.0)])
    assert ledger.waiting_groups(state) == [0, 3, 4]
    state = train(state, 2)
    state = play(state, ledger.rollback(state, 0))
    assert ledger.waiting_groups(state) == [1, 2, 0, 3, 4]
    counts = books.counts(state)
    assert counts["groups"]["trained"] == 0 and counts["other"]["untrained"] == 4
    state = train(train(state, 1), 2)
    assert ledger.waiting_groups(state) == [4]


def test_after_a_rollback_groups_wait_for_the_version_they_were_opened_for():
    state = train(run_groups(ledger.new_state(limits()), [(1.0, 0.0)] * 2), 1)
    state, lease = offer(state)
    assert lease.ordinal == 2
    state = play(state, ledger.rollback(state, 0) + ledger.restart(state))
    assert offer(state)[1] is None
    state = train(state, 1)
    state, lease = offer(state)
    assert (lease.ordinal, lease.slot, lease.attempt) == (2, 0, 1)
    assert not lease.fresh_browser


def test_acknowledgements_of_what_was_undone_say_nothing():
    state = train(run_groups(ledger.new_state(limits()), [(1.0, 0.0)] * 2), 1)
    state = play(state, ledger.rollback(state, 0))
    assert state.acknowledged == 0
    assert ledger.acknowledged(state, 1) == []


def test_a_checkpoint_makes_what_it_holds_forgotten():
    state = train(run_groups(ledger.new_state(limits()), [(1.0, 0.0)] * 2), 1)
    assert set(state.groups) == {0, 1}
    state = play(state, ledger.checkpointed(state, 1))
    assert not state.groups and not state.trained
    with pytest.raises(ValueError, match="cannot go back"):
        ledger.rollback(state, 0)
    assert books.counts(state)["groups"]["trained"] == 2


def test_a_checkpoint_before_the_acknowledgement_keeps_admission_closed():
    state = run_groups(ledger.new_state(limits()), [(1.0, 0.0)] * 2)
    state = play(state, ledger.take(state, 2))
    state = play(state, ledger.trained(state, 1, [0, 1], 1))
    state = play(state, ledger.checkpointed(state, 1) + ledger.published(state, 1))
    assert offer(state)[1] is None
    state = play(state, ledger.acknowledged(state, 1))
    assert not state.trained and offer(state)[1].ordinal == 2


def test_groups_are_trained_once_and_iterations_in_order():
    state = train(run_groups(ledger.new_state(limits()), [(1.0, 0.0)] * 2), 1)
    with pytest.raises(ValueError, match="group 0 is trained"):
        play(state, ledger.trained(state, 2, [0], 2))
    with pytest.raises(ValueError, match="iteration 1"):
        ledger.trained(state, 1, [], 2)


def test_trained_twice_is_counted_in_the_surviving_lineage():
    def told(iteration, ordinals):
        return {"kind": "trained", "iteration": iteration, "ordinals": ordinals}

    undone = {"kind": "rolled_back", "iteration": 1}
    assert events.trained_twice([told(1, [0]), told(2, [1]), undone, told(2, [1])]) == 0
    assert events.trained_twice([told(1, [0]), told(2, [1]), told(3, [1, 0])]) == 2


def test_shuffled_rewards_stay_in_their_group_and_voids_in_their_place():
    state = ledger.new_state(limits(group=5, groups=8, shuffle_seed=3, retries=0))
    values = [1.0, 0.0, 0.0, None, 1.0]
    for _ in range(8):
        for value in values:
            state, lease = offer(state)
            cause = Cause.DNS if value is None else Cause.DONE
            state = finish(state, lease, value, cause)
    groups = books.groups(state, range(8))
    assert len({group.advantages for group in groups}) > 1
    for group in groups:
        assert group.advantages[3] is None
        given = sorted(a for a in group.advantages if a is not None)
        assert given == pytest.approx([-0.866, -0.866, 0.866, 0.866], abs=1e-3)


def test_a_snapshot_is_the_state():
    state = train(run_groups(ledger.new_state(limits(eta=1)), [(1.0, 0.0)] * 3), 1)
    state, _ = offer(state)
    again = books.restore(books.snapshot(state))
    assert again == state
    assert books.snapshot(again) == books.snapshot(state)
