"""What a result means for its slot, and the last one for its group.

In: the record of an attempt. Out: the event that enters it, and where no slot of the
group is left the event that closes it: kept with advantages, or dropped for a reason.
"""

import numpy as np

from openwebrl_jax.algos import advantages
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import events, records
from openwebrl_jax.rollout.books import Entry, Limits, Place, State, Status
from openwebrl_jax.rollout.events import Event

# The next attempt would end in the same way: its prompts and samples are the same.
_HOPELESS = (Cause.PROMPT_TOO_LONG, Cause.JUDGE_UNPARSEABLE)


def event(kind: str, ordinal: int, slot: int, attempt: int) -> Event:
    """An event of one attempt."""
    return {"kind": kind, "ordinal": ordinal, "slot": slot, "attempt": attempt}


def spoil(
    limits: Limits,
    ordinal: int,
    slot: int,
    place: Place,
    record: types.Slot,
    *,
    is_fault: bool = True,
) -> Event:
    """What a void attempt means: the judge later, another attempt, or void for good.

    Judging from disk has a bound of its own; what was played just now is always parked.
    """
    cause = record.reward.cause or record.cause
    told: Event = {"record": records.to_json(record)}
    has_retry = place.faults < limits.retries
    if cause is Cause.JUDGE_UNAVAILABLE and record.trajectory:
        is_fault = is_fault and place.status is Status.AWAITING_JUDGE
        has_retry = place.judge_faults < limits.retries
        if has_retry or not is_fault:
            told |= {"faults": int(is_fault)}
            return event("parked", ordinal, slot, place.attempt) | told
    # A stop is the operator's doing.
    is_fault = is_fault and cause is not Cause.CANCELLED
    is_last = cause in _HOPELESS or (is_fault and not has_retry)
    told |= {"cause": cause, "faults": int(is_fault), "is_last": is_last}
    return event("voided", ordinal, slot, place.attempt) | told


def then_close(state: State, found: list[Event]) -> list[Event]:
    """The events, and the closing of their group if no slot of it is left."""
    ordinal = found[-1]["ordinal"]
    entry = events.apply_all(state, found).groups[ordinal]
    if not all(place.status.is_final for place in entry.places):
        return found
    return [*found, close(state.limits, entry)]


def close(limits: Limits, entry: Entry) -> Event:
    """The closing of a group all of whose slots are final."""
    ordinal = entry.ordinal
    rewards = [
        place.record.reward.value
        if place.record and place.status is Status.SCORED
        else None
        for place in entry.places
    ]
    is_kept, reason = advantages.is_kept(rewards, limits.group)
    if limits.shuffle_seed is not None:
        rewards = _shuffled(rewards, (limits.shuffle_seed, ordinal))
    values = advantages.advantages(rewards, limits.advantage) if is_kept else []
    return {
        "kind": "closed",
        "ordinal": ordinal,
        "reason": "" if is_kept else reason,
        "is_void": all(reward is None for reward in rewards),
        "advantages": values,
    }


def _shuffled(rewards: list[float | None], seed: tuple[int, int]) -> list[float | None]:
    valid = [reward for reward in rewards if reward is not None]
    mixed = iter(np.random.default_rng(seed).permutation(valid).tolist())
    return [None if reward is None else next(mixed) for reward in rewards]


def nothing(slot: int, cause: Cause) -> types.Slot:
    """What is known of an attempt that brought nothing back."""
    reward = types.Reward(value=0.0, parts={}, is_valid=False)
    return types.Slot(
        index=slot, trajectory="", reward=reward, cause=cause, versions=(), turns=0
    )


def check_record(record: types.Slot, slot: int) -> None:
    """A policy must not be able to void its failures, nor the world to score."""
    if record.index != slot:
        raise ValueError(f"the result of slot {record.index} is given for slot {slot}")
    is_scored = record.cause.is_scored and record.reward.cause is None
    if is_scored is not record.reward.is_valid:
        raise ValueError(
            f"an episode ended by {record.reward.cause or record.cause} has "
            f"is_valid={record.reward.is_valid}"
        )
