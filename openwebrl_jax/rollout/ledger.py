"""Decides which slot is played next, what a result is worth, and what is trained.

Each decision is a pure function of the state that returns events; the caller writes
them down, plays them (`events.apply_all`) and only then acts on them. So whatever is
acted on is in the journal, and state = snapshot + later events. Times are wall clock.
Two laws hold after every event, see `books.counts`:
  slots:  leased = scored + void + running + awaiting_judge  (each lease counts)
  groups: opened = trained + filtered + void + waiting + taken + open
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, closing, cooldown, events, records
from openwebrl_jax.rollout.books import Entry, Limits, Place, Stage, State, Status
from openwebrl_jax.rollout.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to play one slot until a deadline. Made by `lease`, eaten by a worker.

    `trajectory` names a stored episode that only the judge still has to see; "" = the
    episode is to be played. Example: Lease(ordinal=7, slot=2, attempt=0, task=...,
    deadline_s=1.7e9, fresh_browser=False, trajectory="").
    """

    ordinal: int
    slot: int
    attempt: int
    task: types.Task
    deadline_s: float
    fresh_browser: bool  # True = an earlier attempt was spoilt by the world
    trajectory: str = ""


class StarvationError(RuntimeError):
    """So many groups were dropped in a row that training goes nowhere."""

    def __init__(self, reasons: dict[str, int], voids: dict[str, int]):
        """`reasons` = of these groups, `voids` = causes of the run's void slots."""
        mend = "start from a policy that sometimes succeeds"
        if any(voids.values()):
            mend += f", mend what made slots void ({_histogram(voids)})"
        super().__init__(
            f"{sum(reasons.values())} groups in a row were dropped "
            f"({_histogram(reasons)}): {mend}, or change config.tasks; "
            "config.algo.starve_batches is the limit"
        )
        self.reasons, self.voids = reasons, voids

    def __reduce__(self):
        return StarvationError, (self.reasons, self.voids)


def _histogram(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()) if n)


class StallError(RuntimeError):
    """Nothing comes of the run any more: whoever plays hangs, or dies each time."""

    def __init__(self, report: str):
        super().__init__(report)

    @classmethod
    def of(cls, state: State, quiet_s: float, last: Event | None) -> "StallError":
        """Says for how long, what happened last, and which leases are out."""
        leases = [
            f"group {entry.ordinal} slot {slot} attempt {place.attempt} on "
            f"{entry.task.start_url} at {place.worker}"
            for entry in _open_groups(state)
            for slot, place in enumerate(entry.places)
            if place.status is Status.RUNNING
        ]
        return cls(
            f"nothing has happened for {quiet_s:.0f} s since {last}; leases out: "
            f"{'; '.join(leases) or 'none'}; episodes that wait for the judge: "
            f"{books.counts(state)['slots']['awaiting_judge']}: the workers hang, see "
            "Ray's logs, or the judge is away; then give the same command again"
        )


def new_state(limits: Limits) -> State:
    """A ledger to which nothing has happened."""
    return State(limits=limits)


def offer(
    state: State, now_s: float, worker: str, task_at: Callable[[int], types.Task]
) -> list[Event]:
    """Ends overdue leases, then leases a slot to the worker if there is one.

    Judging what is on disk comes first, then the free slots of the oldest group, then
    a new group if admission allows.
    """
    found = expire(state, now_s)
    state = events.apply_all(state, found)
    free = _leasable(state, now_s)
    if free is None and _admits(state):
        found += cooldown.open_group(state, now_s, task_at)
        free = state.opened, 0, Place()
    if free is not None:
        deadline_s = now_s + state.limits.lease_timeout_s
        found.append(_lease(*free, worker=worker, deadline_s=deadline_s))
    return found


def lease(state: State, found: Sequence[Event]) -> Lease | None:
    """The lease among the events of an offer, once they were applied; None = none."""
    event = next((each for each in found if each["kind"] == "leased"), None)
    if event is None:
        return None
    entry = state.groups[event["ordinal"]]
    place = entry.places[event["slot"]]
    played = place.record if place.status is Status.AWAITING_JUDGE else None
    return Lease(
        ordinal=entry.ordinal,
        slot=event["slot"],
        attempt=place.attempt,
        task=entry.task,
        deadline_s=place.deadline_s,
        fresh_browser=place.faults > 0,
        trajectory=played.trajectory if played else "",
    )


def expire(state: State, now_s: float) -> list[Event]:
    """Takes back the leases whose deadline has passed."""
    return _lose(state, now_s, lambda place: place.deadline_s <= now_s)


def worker_lost(
    state: State,
    now_s: float,
    worker: str,
    unheard: Collection[tuple[int, int, int]] = (),
) -> list[Event]:
    """Takes back what a dead worker holds.

    `unheard` = leases (ordinal, slot, attempt) that never reached it: no fault of them.
    """
    return _lose(state, now_s, lambda place: place.worker == worker, unheard)


def renew(
    state: State, now_s: float, ordinal: int, slot: int, attempt: int
) -> list[Event]:
    """The lease counts from now on; [] = it is no longer held."""
    entry = state.groups.get(ordinal)
    place = entry.places[slot] if entry and entry.stage is Stage.OPEN else None
    if place is None or not place.worker or place.attempt != attempt:
        return []
    told = closing.event("renewed", ordinal, slot, attempt)
    return [told | {"deadline_s": now_s + state.limits.lease_timeout_s}]


def finish(
    state: State,
    now_s: float,
    ordinal: int,
    slot: int,
    attempt: int,
    record: types.Slot,
) -> list[Event]:
    """Enters a result; its trajectory must be durable by now.

    A slot is filled once. Of several attempts the first scored one counts, be its
    lease overdue or not, or slow episodes would be lost first; a void of an attempt
    that no longer holds the lease changes nothing.
    """
    closing.check_record(record, slot)
    entry = state.groups.get(ordinal)
    place = entry.places[slot] if entry and entry.stage is Stage.OPEN else None
    if place is None or place.status.is_final or attempt > place.attempt:
        return [closing.event("duplicate", ordinal, slot, attempt)]
    found = cooldown.watch(state, now_s, ordinal, slot, record)
    if not record.reward.is_valid:
        if not place.worker or attempt != place.attempt:
            return [closing.event("duplicate", ordinal, slot, attempt)]
        found.append(closing.spoil(state.limits, ordinal, slot, place, record))
        found = closing.then_close(state, found)
        return found + cooldown.poisoned(state, now_s, found)
    if place.status is Status.FREE:  # given up too early: leased in hindsight
        found.append(_lease(ordinal, slot, place, worker="late", deadline_s=0.0))
    scored = closing.event("scored", ordinal, slot, attempt)
    found.append(scored | {"record": records.to_json(record)})
    return closing.then_close(state, found)


def take(state: State, count: int) -> list[Event]:
    """Hands the `count` oldest kept groups to the learner; [] = not yet so many."""
    waiting = waiting_groups(state)
    if len(waiting) >= count:
        return [{"kind": "taken", "ordinals": waiting[:count]}]
    if _is_starved(state):
        raise StarvationError(dict(state.dry), books.counts(state)["void"])
    return []


def waiting_groups(state: State) -> list[int]:
    """Kept groups in the order in which they are taken."""
    others = (
        ordinal
        for ordinal, entry in state.groups.items()
        if entry.stage is Stage.WAITING and ordinal not in state.replay
    )
    return [*state.replay, *sorted(others)]


def trained(
    state: State, iteration: int, ordinals: Sequence[int], version: int
) -> list[Event]:
    """The learner has made `version` of the parameters from these taken groups."""
    newest = state.trained[-1] if state.trained else state.before
    if iteration <= newest.number:
        raise ValueError(f"iteration {iteration} is trained; {newest.number} is newest")
    return [
        {
            "kind": "trained",
            "iteration": iteration,
            "ordinals": list(ordinals),
            "version": version,
        }
    ]


def published(state: State, version: int) -> list[Event]:
    """A version is on its way to serving."""
    return [{"kind": "published", "version": version}]


def acknowledged(state: State, version: int) -> list[Event]:
    """All of serving speaks with the version: its groups leave the admission count.

    What a rollback has undone may still be acknowledged by a serving actor of before:
    that says nothing.
    """
    if not state.acknowledged < version <= state.published:
        return []
    return [{"kind": "acknowledged", "version": version}]


def checkpointed(state: State, iteration: int) -> list[Event]:
    """`iteration` is the oldest complete checkpoint that is kept: none goes behind."""
    if iteration <= state.settled:
        return []
    return [{"kind": "checkpointed", "iteration": iteration}]


def rollback(state: State, iteration: int) -> list[Event]:
    """The parameters are those of a checkpoint: what it has not seen waits again."""
    if iteration < state.settled:
        raise ValueError(
            f"cannot go back to iteration {iteration}: the groups trained before "
            f"{state.settled} are no longer known; resume from a newer checkpoint"
        )
    return [{"kind": "rolled_back", "iteration": iteration}]


def restart(state: State) -> list[Event]:
    """The first events of a new process: all leases of before are void.

    A group whose last result was written down, and its closing not, closes now.
    """
    found: list[Event] = [{"kind": "restarted"}]
    for entry in _open_groups(state):
        if all(place.status.is_final for place in entry.places):
            found.append(closing.close(state.limits, entry))
    return found


def _lease(
    ordinal: int, slot: int, place: Place, *, worker: str, deadline_s: float
) -> Event:
    event = closing.event("leased", ordinal, slot, place.attempt + 1)
    return event | {"worker": worker, "deadline_s": deadline_s}


def _open_groups(state: State) -> list[Entry]:
    """Oldest first."""
    return [entry for entry in state.groups.values() if entry.stage is Stage.OPEN]


def _leasable(state: State, now_s: float) -> tuple[int, int, Place] | None:
    """Ordinal, index and place of a slot to lease; None = there is none.

    After a rollback the newest groups must wait until the versions that they were
    opened for are there again: a resumed run is then the uninterrupted one.
    """
    entries = _open_groups(state)
    for entry in entries:
        for index, place in enumerate(entry.places):
            is_parked = place.status is Status.AWAITING_JUDGE
            if is_parked and place.deadline_s <= now_s:
                return entry.ordinal, index, place
    for entry in entries[: _room(state)]:
        for index, place in enumerate(entry.places):
            if place.status is Status.FREE:
                return entry.ordinal, index, place
    return None


def _room(state: State) -> int:
    """How many groups may be open: (eta + 1) B less those that wait to be seen.

    A group leaves when all of serving speaks with the version trained on it.
    """
    terms = books.counts(state)["groups"]
    unseen = sum(
        len(iteration.ordinals)
        for iteration in state.trained
        if iteration.version > state.acknowledged
    )
    bound = (state.limits.eta + 1) * state.limits.groups
    return max(0, bound - terms["waiting"] - terms["taken"] - unseen)


def _admits(state: State) -> bool:
    """True iff another group may be opened."""
    limits, terms = state.limits, books.counts(state)["groups"]
    if limits.iterations is not None:
        ahead = terms["open"] + terms["waiting"] + terms["taken"] + terms["trained"]
        if ahead >= limits.iterations * limits.groups:
            return False
    return terms["open"] < _room(state) and not _is_starved(state)


def _is_starved(state: State) -> bool:
    limits = state.limits
    return sum(state.dry.values()) >= limits.starve_batches * limits.groups


def _lose(
    state: State,
    now_s: float,
    is_lost: Callable[[Place], bool],
    unheard: Collection[tuple[int, int, int]] = (),
) -> list[Event]:
    """Ends leases as faults of the world: WORKER_LOST, or no verdict once more."""
    found: list[Event] = []
    held = [
        (entry.ordinal, slot, place)
        for entry in _open_groups(state)
        for slot, place in enumerate(entry.places)
        if place.worker and is_lost(place)
    ]
    for ordinal, slot, place in held:
        is_heard = (ordinal, slot, place.attempt) not in unheard
        is_judging = place.status is Status.AWAITING_JUDGE and place.record
        record = place.record if is_judging else None
        cause = Cause.WORKER_LOST if is_heard else Cause.CANCELLED
        record = record or closing.nothing(slot, cause)
        lost = closing.spoil(
            state.limits, ordinal, slot, place, record, is_fault=is_heard
        )
        if lost["kind"] == "parked":
            lost |= {"deadline_s": now_s}  # the judge is there, so no need to wait
        more = closing.then_close(state, [lost])
        more += cooldown.poisoned(state, now_s, more)
        state = events.apply_all(state, more)
        found += more
    return found
