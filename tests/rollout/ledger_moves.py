"""Moves of a small ledger, for its tests: every event goes through JSON."""

import json

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
    """The state after an offer, and the lease that it gave."""
    found = ledger.offer(state, now_s, worker, task_at)
    state = play(state, found)
    return state, ledger.lease(state, found)


def finish(
    state: books.State,
    lease: ledger.Lease,
    value: float | None,
    *why: Cause | None,
    now_s: float = 0.0,
):
    record = result(lease.slot, value, *why)
    at = lease.ordinal, lease.slot, lease.attempt
    found = ledger.finish(state, now_s, *at, record)
    return play(state, found)


def run_groups(state: books.State, rewards: list[tuple[float, ...]]) -> books.State:
    """Plays whole groups, one after the other, with these rewards."""
    for values in rewards:
        for value in values:
            state, lease = offer(state)
            assert lease is not None
            state = finish(state, lease, value)
    return state


def played(rewards: list[tuple[float, ...]], **changes) -> books.State:
    """A new ledger after these groups."""
    return run_groups(ledger.new_state(limits(**changes)), rewards)


def train(state: books.State, iteration: int, count: int = 2) -> books.State:
    """Takes, trains and publishes; serving follows at once."""
    found = ledger.take(state, count)
    assert found
    state = play(state, found)
    ordinals = found[0]["ordinals"]
    state = play(state, ledger.trained(state, iteration, ordinals, iteration))
    state = play(state, ledger.published(state, iteration))
    return play(state, ledger.acknowledged(state, iteration))
