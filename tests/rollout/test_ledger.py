"""Leases, attempts and groups, case by case."""

import json

import pytest

from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, ledger
from tests.rollout import ledger_moves as moves


def test_slots_of_the_oldest_group_go_first_and_admission_ends_at_eta():
    state = ledger.new_state(moves.limits(eta=1))
    leases = []
    for _ in range(9):
        state, lease = moves.offer(state)
        leases.append(lease)
    assert [(it.ordinal, it.slot) for it in leases[:8]] == [
        (ordinal, slot) for ordinal in range(4) for slot in range(2)
    ]
    assert leases[8] is None
    assert leases[0].task == moves.task_at(0)
    assert leases[0].deadline_s == 10.0 and not leases[0].fresh_browser


def test_a_group_closes_with_advantages_and_leaves_when_its_version_is_spoken():
    state = moves.played([(1.0, 0.0), (0.0, 1.0)])
    assert ledger.waiting_groups(state) == [0, 1]
    assert moves.offer(state)[1] is None
    taken = ledger.take(state, 2)
    state = moves.play(state, taken)
    group = books.groups(state, taken[0]["ordinals"])[0]
    assert group.advantages == pytest.approx((0.7071, -0.7071), abs=1e-4)
    assert [slot.index for slot in group.slots] == [0, 1]
    state = moves.play(state, ledger.trained(state, 1, [0, 1], 1))
    assert moves.offer(state)[1] is None
    state = moves.play(state, ledger.published(state, 1))
    assert moves.offer(state)[1] is None
    state = moves.play(state, ledger.acknowledged(state, 1))
    assert moves.offer(state)[1].ordinal == 2


def test_equal_rewards_are_dropped_counted_and_refilled():
    # R01, R22: a rejected group is an answer; the taker gets what replaces it.
    state = moves.played([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
    assert ledger.take(state, 2) == [{"kind": "taken", "ordinals": [1, 2]}]
    counts = books.counts(state)
    assert counts["filtered"] == {"zero_variance": 1}
    assert counts["groups"]["opened"] == 3
    assert 0 not in state.groups


def test_ten_empty_batches_are_a_typed_stop_with_reasons():
    # R01: 8 groups of 4, all alike, then nothing is opened any more.
    state = ledger.new_state(moves.limits(group=4, groups=4))
    state = moves.run_groups(state, [(1.0,) * 4] * 7)
    assert ledger.take(state, 4) == []
    state = moves.run_groups(state, [(1.0,) * 4])
    assert moves.offer(state)[1] is None
    with pytest.raises(ledger.StarvationError, match="zero_variance 8") as caught:
        ledger.take(state, 4)
    assert caught.value.reasons == {"zero_variance": 8}
    assert books.counts(state)["groups"]["trained"] == 0


def test_the_same_command_gets_another_dry_spell_after_a_starvation():
    state = moves.played([(1.0, 1.0)] * 4)
    with pytest.raises(ledger.StarvationError) as caught:
        ledger.take(state, 2)
    again = ledger.rollback(state, 0) + ledger.restart(state)
    state = moves.play(state, again)
    assert ledger.take(state, 2) == []
    state = moves.run_groups(state, [(1.0, 1.0)] * 4)
    with pytest.raises(ledger.StarvationError) as later:
        ledger.take(state, 2)
    # No slot was given up at the restart: there is nothing of that to mend.
    assert str(later.value) == str(caught.value) and "void" not in str(later.value)


def test_a_kept_group_ends_a_dry_spell():
    state = moves.played([(1.0, 1.0)] * 3 + [(1.0, 0.0)])
    state = moves.run_groups(state, [(1.0, 1.0)] * 3)
    assert ledger.take(state, 2) == []


def test_void_slots_are_in_no_statistic():
    # R04, second part: [1, 0, void] -> [0.707, -0.707, none].
    state = ledger.new_state(moves.limits(group=3, retries=0))
    for value, cause in ((1.0, Cause.DONE), (0.0, Cause.DONE), (None, Cause.DNS)):
        state, lease = moves.offer(state)
        state = moves.finish(state, lease, value, cause)
    (group,) = books.groups(state, [0])
    assert group.advantages[2] is None
    assert group.advantages[:2] == pytest.approx((0.7071, -0.7071), abs=1e-4)
    assert books.counts(state)["void"] == {"dns": 1}


def test_void_members_leave_equal_rewards_equal():
    # R04, first part: [1, 1, judge timeout] has no variance.
    state = ledger.new_state(moves.limits(group=3, retries=0))
    away = Cause.JUDGE_UNAVAILABLE
    for value, judge in ((1.0, None), (1.0, None), (None, away)):
        state, lease = moves.offer(state)
        state = moves.finish(state, lease, value, Cause.DONE, judge)
    state, lease = moves.offer(state, now_s=10.0)  # and once more, from disk
    state = moves.finish(state, lease, None, Cause.DONE, away)
    assert books.counts(state)["filtered"] == {"zero_variance": 1}


def test_one_usable_member_is_no_group_and_none_is_void():
    # R02.
    state = ledger.new_state(moves.limits(group=4, retries=0))
    for value in (1.0, None, None, None, None, None, None, None):
        state, lease = moves.offer(state)
        state = moves.finish(
            state, lease, value, Cause.DNS if value is None else Cause.DONE
        )
    counts = books.counts(state)
    assert counts["filtered"] == {"too_few_valid": 1}
    assert counts["groups"]["void"] == 1
    assert sum(state.dry.values()) == 2


def test_a_spoilt_slot_is_tried_again_on_a_fresh_browser_and_then_void():
    state = ledger.new_state(moves.limits())
    for attempt in range(3):
        state, lease = moves.offer(state)
        assert (lease.slot, lease.attempt) == (0, attempt)
        assert lease.fresh_browser is (attempt > 0)
        state = moves.finish(state, lease, None, Cause.BROWSER_CRASH)
    assert moves.offer(state)[1].slot == 1
    assert books.counts(state)["void"] == {"browser_crash": 3}


def test_a_prompt_too_long_is_not_tried_again_and_a_stop_is_no_fault():
    state = ledger.new_state(moves.limits(retries=1))
    state, lease = moves.offer(state)
    state = moves.finish(state, lease, None, Cause.PROMPT_TOO_LONG)
    for _ in range(4):
        state, lease = moves.offer(state)
        assert lease.slot == 1 and not lease.fresh_browser
        state = moves.finish(state, lease, None, Cause.CANCELLED)


def test_duplicates_are_ignored_and_counted():
    # R33: by the same attempt, and after the group is gone.
    state = ledger.new_state(moves.limits())
    state, first = moves.offer(state)
    state = moves.finish(state, first, 1.0)
    again = moves.finish(state, first, 0.0)
    assert again.groups == state.groups
    state, second = moves.offer(again)
    state = moves.finish(moves.finish(state, second, 1.0), second, 1.0)
    assert books.counts(state)["other"]["duplicates"] == 2
    assert books.counts(state)["slots"]["scored"] == 2


def test_an_overdue_lease_is_leased_again_and_the_first_result_counts():
    # R23, R33: attempt 0 is slow; both attempts come in, the first scored one counts.
    state = ledger.new_state(moves.limits())
    state, slow = moves.offer(state)
    state, retry = moves.offer(state, now_s=11.0)
    assert (retry.slot, retry.attempt) == (slow.slot, 1)
    state = moves.finish(state, slow, 1.0)
    state = moves.finish(state, retry, 0.0)
    assert state.groups[0].places[0].record.reward.value == 1.0
    counts = books.counts(state)
    assert counts["slots"]["leased"] == 2 and counts["slots"]["scored"] == 1
    assert counts["other"]["duplicates"] == 1


def test_a_late_result_fills_a_slot_that_is_free_again():
    state = ledger.new_state(moves.limits())
    state, slow = moves.offer(state)
    state = moves.play(state, ledger.expire(state, 11.0))
    state = moves.finish(state, slow, 1.0)
    assert state.groups[0].places[0].status is books.Status.SCORED


def test_a_late_void_changes_nothing():
    state = ledger.new_state(moves.limits())
    state, slow = moves.offer(state)
    state, retry = moves.offer(state, now_s=11.0)
    state = moves.finish(state, slow, None, Cause.DNS)
    assert state.groups[0].places[0].attempt == retry.attempt
    assert state.groups[0].places[0].faults == 1


def test_a_lost_worker_gives_back_its_leases_alone():
    state = ledger.new_state(moves.limits())
    state, gone = moves.offer(state, worker="a")
    state, kept = moves.offer(state, worker="b")
    state = moves.play(state, ledger.worker_lost(state, 0.0, "a"))
    state, again = moves.offer(state, worker="b")
    assert (again.slot, again.attempt, again.fresh_browser) == (gone.slot, 1, True)
    assert state.groups[0].places[kept.slot].worker == "b"


def test_a_lease_that_never_reached_its_worker_is_no_fault():
    """A call of a dead worker may still be answered, before its death is known."""
    state = ledger.new_state(moves.limits(retries=0))
    state, gone = moves.offer(state, worker="a")
    at = gone.ordinal, gone.slot, gone.attempt
    state = moves.play(state, ledger.worker_lost(state, 0.0, "a", {at}))
    state, again = moves.offer(state, worker="b")
    assert (again.slot, again.attempt, again.fresh_browser) == (gone.slot, 1, False)
    state = moves.finish(state, again, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    for _ in range(3):  # nor is one to judge, which is free again at once
        state, gone = moves.offer(state, worker="a", now_s=10.0)
        at = gone.ordinal, gone.slot, gone.attempt
        assert gone.trajectory == "hash-0"
        state = moves.play(state, ledger.worker_lost(state, 10.0, "a", {at}))
    assert books.counts(state)["void"] == {"cancelled": 1}


def test_a_worker_killer_ends_as_void():
    # R32: workers that die on a task do so a bounded number of times.
    state = ledger.new_state(moves.limits())
    for _ in range(3):
        state, lease = moves.offer(state)
        assert lease.slot == 0
        state = moves.play(state, ledger.worker_lost(state, 0.0, "w"))
    assert moves.offer(state)[1].slot == 1


def test_an_episode_that_the_judge_missed_is_judged_from_disk():
    # R39: no browsing again; judged once the lease's own time is over.
    state = ledger.new_state(moves.limits())
    state, lease = moves.offer(state)
    state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    assert books.counts(state)["slots"]["awaiting_judge"] == 1
    state, other = moves.offer(state, now_s=5.0)
    assert other.slot == 1 and other.trajectory == ""
    state, judging = moves.offer(state, now_s=10.0)
    assert (judging.slot, judging.trajectory) == (0, "hash-0")
    assert books.counts(state)["slots"]["awaiting_judge"] == 1
    state = moves.finish(state, judging, 1.0)
    assert books.counts(state)["slots"] == {
        "leased": 2,
        "scored": 1,
        "void": 0,
        "running": 1,
        "awaiting_judge": 0,
    }


def test_a_lease_counts_from_when_the_worker_could_begin():
    state = ledger.new_state(moves.limits())
    state, lease = moves.offer(state)
    at = lease.ordinal, lease.slot, lease.attempt
    state = moves.play(state, ledger.renew(state, 9.0, *at))
    assert not ledger.expire(state, 18.0) and ledger.expire(state, 19.0)
    state = moves.play(state, ledger.expire(state, 19.0))
    assert not ledger.renew(state, 19.0, *at)
    state, again = moves.offer(state, now_s=19.0)
    assert again.slot == lease.slot and not ledger.renew(state, 19.0, *at)


def test_a_judge_may_be_away_for_longer_than_any_lease():
    state = ledger.new_state(moves.limits(retries=1))
    state, lease = moves.offer(state)
    state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    state, judging = moves.offer(state, now_s=10.0)
    at = judging.ordinal, judging.slot, judging.attempt
    for now_s in range(15, 100, 5):
        assert not ledger.expire(state, now_s)
        state = moves.play(state, ledger.renew(state, now_s, *at))
    state = moves.finish(state, judging, 1.0)
    assert books.counts(state)["slots"]["scored"] == 1


@pytest.mark.parametrize("is_overdue", [True, False])
def test_an_episode_that_kills_whoever_judges_it_ends_as_void(is_overdue):
    """R32: workers die on its judging, or hang, a bounded number of times."""
    state = ledger.new_state(moves.limits(retries=2))
    state, lease = moves.offer(state)
    state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    now_s = 0.0
    for _ in range(3):
        now_s += 11.0
        state, judging = moves.offer(state, now_s=now_s)
        assert (judging.slot, judging.trajectory) == (0, "hash-0")
        if not is_overdue:
            state = moves.play(state, ledger.worker_lost(state, now_s, "w"))
    state, other = moves.offer(state, now_s=now_s + 11.0)
    assert other.slot == 1
    assert state.groups[0].places[0].status is books.Status.VOID
    assert books.counts(state)["void"] == {"judge_unavailable": 1}


@pytest.mark.parametrize("retries", [0, 2])
def test_a_judge_that_never_answers_ends_as_void(retries):
    """Judged from disk once, and then as often as any slot is tried again."""
    state = ledger.new_state(moves.limits(retries=retries))
    for number in range(2 + retries):
        state, lease = moves.offer(state, now_s=10.0 * number)
        assert (lease.slot, lease.trajectory) == (0, "hash-0" if number else "")
        state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    assert state.groups[0].places[0].status is books.Status.VOID
    assert books.counts(state)["void"] == {"judge_unavailable": 1}


def test_faults_of_playing_are_none_of_judging():
    state = ledger.new_state(moves.limits(retries=2))
    for _ in range(2):
        state, lease = moves.offer(state)
        state = moves.finish(state, lease, None, Cause.DNS)
    state, lease = moves.offer(state)
    state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    for now_s in (10.0, 20.0):
        state, lease = moves.offer(state, now_s=now_s)
        assert (lease.slot, lease.trajectory) == (0, "hash-0")
        state = moves.finish(state, lease, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    state, lease = moves.offer(state, now_s=30.0)
    state = moves.finish(state, lease, 1.0)
    assert books.counts(state)["void"] == {"dns": 2}
    assert state.groups[0].places[0].status is books.Status.SCORED


def test_what_older_runs_parked_can_be_judged():
    """Their places and events do not say how often the judge failed."""
    state = ledger.new_state(moves.limits(retries=1))
    state, lease = moves.offer(state)
    at = lease.ordinal, lease.slot, lease.attempt
    away = moves.result(0, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    (event,) = ledger.finish(state, 0.0, *at, away)
    event.pop("faults", None)
    state = moves.play(state, [event])
    kept = json.loads(books.snapshot(state))
    kept["groups"][0]["places"][0].pop("judge_faults", None)
    state = books.restore(json.dumps(kept).encode())
    state, judging = moves.offer(state, now_s=10.0)
    assert judging.trajectory == "hash-0"
    state = moves.finish(state, judging, 1.0)
    assert books.counts(state)["slots"]["scored"] == 1


def test_a_scored_crash_and_a_voided_failure_are_refused():
    # R40, both directions.
    state, lease = moves.offer(ledger.new_state(moves.limits()))
    at = lease.ordinal, lease.slot, lease.attempt
    for record in (
        moves.result(lease.slot, 1.0, Cause.BROWSER_CRASH),
        moves.result(lease.slot, None, Cause.DONE),
        moves.result(lease.slot + 1, 1.0),
    ):
        with pytest.raises(ValueError):
            ledger.finish(state, 0.0, *at, record)


def test_what_is_not_taken_stays():
    # R24: ten closed groups, four asked for, six remain in order.
    state = moves.played([(1.0, 0.0)] * 10, groups=10)
    state = moves.play(state, ledger.take(state, 4))
    assert ledger.waiting_groups(state) == [4, 5, 6, 7, 8, 9]
    assert ledger.take(state, 7) == []


def test_no_group_is_opened_beyond_the_last_iteration():
    state = moves.played([(1.0, 0.0)] * 2, eta=1, iterations=1)
    assert moves.offer(state)[1] is None
    assert moves.offer(moves.train(state, 1))[1] is None


def test_shuffled_rewards_stay_in_their_group_and_voids_in_their_place():
    state = ledger.new_state(moves.limits(group=5, groups=8, shuffle_seed=3, retries=0))
    values = [1.0, 0.0, 0.0, None, 1.0]
    for _ in range(8):
        for value in values:
            state, lease = moves.offer(state)
            cause = Cause.DNS if value is None else Cause.DONE
            state = moves.finish(state, lease, value, cause)
    groups = books.groups(state, range(8))
    assert len({group.advantages for group in groups}) > 1
    for group in groups:
        assert group.advantages[3] is None
        given = sorted(a for a in group.advantages if a is not None)
        assert given == pytest.approx([-0.866, -0.866, 0.866, 0.866], abs=1e-3)
