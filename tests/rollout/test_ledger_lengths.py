"""R27: long tasks are trained as often as they are played, whatever the staleness."""

import heapq

import numpy as np
import pytest

from openwebrl_jax.core import metrics
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, events, ledger
from tests.rollout import ledger_moves as moves

ITERATIONS, GROUPS = 120, 3
SLOTS = 24  # contexts that play at once


def turns(ordinal: int) -> int:
    """One task in ten takes thirty times as long."""
    return 30 if np.random.default_rng(ordinal).random() < 0.1 else 1


def simulate(is_discarding: bool):
    """Turns of what was played and of what was trained, and each version's age."""
    state = ledger.new_state(
        moves.limits(groups=GROUPS, eta=2, lease_timeout_s=1e9, starve_batches=10**6)
    )
    running, free, now_s, iteration = [], SLOTS, 0.0, 0
    played, trained, begun, ages = [], [], {}, []
    while iteration < ITERATIONS:
        while free:
            found = ledger.offer(state, now_s, "w", moves.task_at)
            state = events.apply_all(state, found)
            lease = ledger.lease(state, found)
            if lease is None:
                break
            begun.setdefault(lease.ordinal, iteration)
            end_s = now_s + turns(lease.ordinal)
            heapq.heappush(running, (end_s, lease.ordinal, lease.slot))
            free -= 1
        now_s, ordinal, slot = heapq.heappop(running)
        free += 1
        record = moves.result(slot, float(slot), Cause.DONE)
        state = events.apply_all(
            state, ledger.finish(state, now_s, ordinal, slot, 0, record)
        )
        if slot == 0:
            played.append(turns(ordinal))
        found = ledger.take(state, GROUPS)
        if found:
            iteration += 1
            ordinals = found[0]["ordinals"]
            old = [iteration - 1 - begun[each] for each in ordinals]
            ages += old
            trained += [
                turns(each)
                for each, age in zip(ordinals, old, strict=True)
                if not is_discarding or age <= 2
            ]
            state = events.apply_all(state, found)
            told = ledger.trained(state, iteration, ordinals, iteration)
            state = events.apply_all(state, told)
            for step in (ledger.published, ledger.acknowledged):
                state = events.apply_all(state, step(state, iteration))
            state = events.apply_all(state, ledger.checkpointed(state, iteration))
    books.check(state)
    return played, trained, ages


def long_share(lengths):
    return sum(length > 1 for length in lengths) / len(lengths)


def test_long_tasks_are_not_starved_and_their_lag_is_told():
    played, trained, ages = simulate(is_discarding=False)
    assert long_share(trained) == pytest.approx(long_share(played), abs=0.02)
    assert metrics.ks(played, trained)[0] < 0.05
    assert max(ages) > 2  # honest: a long one is older than eta, and is trained


def test_discarding_by_age_would_starve_them():
    played, trained, _ = simulate(is_discarding=True)
    assert long_share(trained) < long_share(played) / 2
    assert metrics.ks(played, trained)[0] > 0.05
