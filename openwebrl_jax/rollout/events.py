"""What can happen to leases and groups, and `apply`, which alone changes the State.

An event is a dict of JSON values with a `kind`. `rollout.ledger` decides which events
come; the runtime writes them down before it acts on them.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import records, score
from openwebrl_jax.rollout.books import (
    Entry,
    Host,
    Iteration,
    Place,
    Stage,
    State,
    Status,
)
from openwebrl_jax.tasks import curriculum

Event = dict[str, Any]

# A host that so many episodes could not open within the window is left alone.
FAILURES = 3
WINDOW_S = 3600.0
REST_S = 12 * 3600.0


def apply(state: State, event: Event) -> State:
    """The state after the event; refuses one that cannot follow."""
    state = _APPLY[event["kind"]](state, event)
    return dataclasses.replace(state, applied=state.applied + 1)


def apply_all(state: State, events: Iterable[Event]) -> State:
    """The state after all of them."""
    for event in events:
        state = apply(state, event)
    return state


def trained_twice(found: Iterable[Event]) -> int:
    """Groups that the surviving parameters saw twice, by the journal alone; 0 is right.

    Iterations that a rollback undid are not in the parameters' lineage.
    """
    lineage: list[Event] = []
    for event in found:
        if event["kind"] == "rolled_back":
            lineage = [it for it in lineage if it["iteration"] <= event["iteration"]]
        elif event["kind"] == "trained":
            lineage.append(event)
    seen = [ordinal for event in lineage for ordinal in event["ordinals"]]
    return len(seen) - len(set(seen))


def _opened(state: State, event: Event) -> State:
    ordinal = event["ordinal"]
    if ordinal != state.opened:
        raise ValueError(f"group {ordinal} is opened; the next one is {state.opened}")
    entry = Entry(
        ordinal=ordinal,
        task=records.from_json(types.Task, event["task"]),
        stage=Stage.OPEN,
        places=(Place(),) * state.limits.group,
    )
    return _count(_with_entry(state, entry), "opened")


def _leased(state: State, event: Event) -> State:
    place = _place(state, event, Status.FREE, Status.AWAITING_JUDGE)
    is_first = place.status is Status.FREE
    place = dataclasses.replace(
        place,
        status=Status.RUNNING if is_first else place.status,
        attempt=event["attempt"],
        worker=event["worker"],
        deadline_s=event["deadline_s"],
    )
    state = _with_place(state, event, place)
    return _count(state, "leased") if is_first else state


def _renewed(state: State, event: Event) -> State:
    """The worker had to wait for its turn or for the judge, and is still there."""
    place = _place(state, event, Status.RUNNING, Status.AWAITING_JUDGE)
    place = dataclasses.replace(place, deadline_s=event["deadline_s"])
    return _with_place(state, event, place)


def _scored(state: State, event: Event) -> State:
    place = _place(state, event, Status.RUNNING, Status.AWAITING_JUDGE)
    record = records.from_json(types.Slot, event["record"])
    place = dataclasses.replace(place, status=Status.SCORED, worker="", record=record)
    return _count(_with_place(state, event, place), "scored")


def _voided(state: State, event: Event) -> State:
    """An attempt came to nothing; `is_last` says that no other follows."""
    place = _place(state, event, Status.RUNNING, Status.AWAITING_JUDGE)
    place = dataclasses.replace(
        place,
        status=Status.VOID if event["is_last"] else Status.FREE,
        faults=place.faults + event["faults"],
        worker="",
        record=records.from_json(types.Slot, event["record"]),
    )
    return _count(_with_place(state, event, place), f"void/{event['cause']}")


def _parked(state: State, event: Event) -> State:
    """Played to its end, but the judge did not answer: judged from disk later."""
    place = _place(state, event, Status.RUNNING, Status.AWAITING_JUDGE)
    place = dataclasses.replace(
        place,
        status=Status.AWAITING_JUDGE,
        # An older run's events do not tell.
        judge_faults=place.judge_faults + event.get("faults", 1),
        deadline_s=event.get("deadline_s", place.deadline_s),
        worker="",
        record=records.from_json(types.Slot, event["record"]),
    )
    return _with_place(state, event, place)


def _duplicate(state: State, event: Event) -> State:
    return _count(state, "duplicates")


def _closed(state: State, event: Event) -> State:
    """All slots are final; `reason` says why the group is dropped, "" = it is kept."""
    entry = _entry(state, event["ordinal"], Stage.OPEN)
    if not all(place.status.is_final for place in entry.places):
        raise ValueError(f"{event} cannot follow: a slot is still played")
    advantages = tuple(event["advantages"])
    scored = sum(place.status is Status.SCORED for place in entry.places)
    useful = sum(bool(advantage) for advantage in advantages)
    state = _count(_count(state, "useful", useful), "unused", scored - useful)
    state = _heard(state, entry)
    if not event["reason"]:
        entry = dataclasses.replace(entry, stage=Stage.WAITING, advantages=advantages)
        return dataclasses.replace(_with_entry(state, entry), dry={})
    reason, kind = event["reason"], "void_groups" if event["is_void"] else "filtered"
    state = _forget(state, (entry.ordinal,))
    state = dataclasses.replace(state, dry=_more(state.dry, reason))
    return _count(state, f"{kind}/{reason}")


def _taken(state: State, event: Event) -> State:
    ordinals = tuple(event["ordinals"])
    state = _move(state, ordinals, Stage.WAITING, Stage.TAKEN)
    return dataclasses.replace(
        state,
        taken=state.taken + ordinals,
        replay=tuple(each for each in state.replay if each not in ordinals),
    )


def _trained(state: State, event: Event) -> State:
    ordinals = tuple(event["ordinals"])
    state = _move(state, ordinals, Stage.TAKEN, Stage.TRAINED)
    iteration = Iteration(
        number=event["iteration"], version=event["version"], ordinals=ordinals
    )
    state = dataclasses.replace(
        state,
        taken=tuple(each for each in state.taken if each not in ordinals),
        trained=(*state.trained, iteration),
    )
    return _count(state, "trained", len(ordinals))


def _published(state: State, event: Event) -> State:
    """Also the moment at which the curriculum learns, once for each version.

    So what is opened next does not hang on the order in which groups closed, nor on
    how often a version was made.
    """
    version, decay = event["version"], state.limits.decay
    state = dataclasses.replace(state, published=version)
    if version <= state.learnt:
        return state
    skills = dict(state.skills)
    for name, new in state.fresh.items():
        known = skills.get(name, curriculum.Skill())
        skills[name] = curriculum.learnt(known, new, version, decay)
    kept = {
        name: skill
        for name, skill in skills.items()
        if not curriculum.is_forgotten(skill, version, decay)
    }
    return dataclasses.replace(state, skills=kept, fresh={}, learnt=version)


def _acknowledged(state: State, event: Event) -> State:
    return _prune(dataclasses.replace(state, acknowledged=event["version"]))


def _checkpointed(state: State, event: Event) -> State:
    return _prune(dataclasses.replace(state, settled=event["iteration"]))


def _rolled_back(state: State, event: Event) -> State:
    """Groups trained after the checkpoint, then taken ones, wait again in that order.

    So the iterations that are gone through again are made of the same groups.
    """
    kept = tuple(each for each in state.trained if each.number <= event["iteration"])
    undone = state.trained[len(kept) :]
    trained = tuple(ordinal for each in undone for ordinal in each.ordinals)
    state = _move(state, trained, Stage.TRAINED, Stage.WAITING)
    state = _move(state, state.taken, Stage.TAKEN, Stage.WAITING)
    version = kept[-1].version if kept else state.before.version
    state = dataclasses.replace(
        state,
        replay=trained + state.taken + state.replay,
        taken=(),
        trained=kept,
        published=version,
        acknowledged=min(state.acknowledged, version),
    )
    return _count(state, "untrained", len(trained))


def _restarted(state: State, event: Event) -> State:
    """No worker of before is there: its leases are free again, and no fault of it.

    A run that had starved, and is given again, has another dry spell before it stops.
    """
    groups, freed = {}, 0
    for ordinal, entry in state.groups.items():
        running = [place.status is Status.RUNNING for place in entry.places]
        freed += sum(running)
        places = tuple(
            dataclasses.replace(
                place,
                status=Status.FREE if is_running else place.status,
                worker="",
                deadline_s=0.0,
            )
            for place, is_running in zip(entry.places, running, strict=True)
        )
        groups[ordinal] = dataclasses.replace(entry, places=places)
    state = dataclasses.replace(state, groups=groups, dry={})
    return _count(state, f"void/{Cause.CANCELLED}", freed)


def _passed_over(state: State, event: Event) -> State:
    """`blocked` of them were kept out by hand; older journals do not say it."""
    state = _count(state, "blocked", event.get("blocked", 0))
    return _count(state, "passed_over", event["count"])


def _site_failed(state: State, event: Event) -> State:
    """Also the moment at which what is long past is forgotten, of all hosts."""
    now_s, name = event["at_s"], event["host"]
    host = state.hosts.get(name, Host())
    # The first of one episode's failures counts.
    failures = {event["episode"]: now_s, **host.failures}
    hosts = {**state.hosts, name: dataclasses.replace(host, failures=failures)}
    recent = {each: _since(host, now_s - WINDOW_S) for each, host in hosts.items()}
    if len(recent[name].failures) >= FAILURES:
        recent[name] = dataclasses.replace(recent[name], until_s=now_s + REST_S)
    return dataclasses.replace(
        state,
        hosts={
            each: host
            for each, host in recent.items()
            if host.failures or host.until_s > now_s
        },
    )


def _site_answered(state: State, event: Event) -> State:
    """An episode that began at `begun_s` was shown its page."""
    others = {each: host for each, host in state.hosts.items() if each != event["host"]}
    host = _since(state.hosts[event["host"]], event["begun_s"])
    if host.failures:  # they may be enough for the rest to go on
        is_short = len(host.failures) < FAILURES
        host = dataclasses.replace(host, until_s=0.0 if is_short else host.until_s)
        others[event["host"]] = host
    return dataclasses.replace(state, hosts=others)


_APPLY: dict[str, Callable[[State, Event], State]] = {
    "opened": _opened,
    "leased": _leased,
    "renewed": _renewed,
    "scored": _scored,
    "voided": _voided,
    "parked": _parked,
    "duplicate": _duplicate,
    "closed": _closed,
    "taken": _taken,
    "trained": _trained,
    "published": _published,
    "acknowledged": _acknowledged,
    "checkpointed": _checkpointed,
    "rolled_back": _rolled_back,
    "restarted": _restarted,
    "passed_over": _passed_over,
    "site_failed": _site_failed,
    "site_answered": _site_answered,
}


def _heard(state: State, entry: Entry) -> State:
    """The state with a closed group's scored slots noted; void ones say nothing."""
    ends = [
        bool(score.is_success(place.record.reward))
        for place in entry.places
        if place.status is Status.SCORED and place.record
    ]
    if state.limits.floor >= 1.0 or not ends:
        return state
    name, wins = curriculum.name_of(entry.task), sum(ends)
    new = curriculum.Skill(wins=wins, losses=len(ends) - wins)
    known = state.fresh.get(name, curriculum.Skill())
    heard = curriculum.learnt(known, new, 0, 1.0)
    return dataclasses.replace(state, fresh={**state.fresh, name: heard})


def _since(host: Host, start_s: float) -> Host:
    """The host with its failures after a moment alone."""
    failures = {each: at_s for each, at_s in host.failures.items() if at_s > start_s}
    return dataclasses.replace(host, failures=failures)


def _entry(state: State, ordinal: int, stage: Stage) -> Entry:
    entry = state.groups.get(ordinal)
    if entry is None or entry.stage is not stage:
        found = entry.stage if entry else "gone"
        raise ValueError(f"group {ordinal} is {found}, not {stage}")
    return entry


def _place(state: State, event: Event, *wanted: Status) -> Place:
    place = _entry(state, event["ordinal"], Stage.OPEN).places[event["slot"]]
    if place.status not in wanted:
        raise ValueError(f"{event} cannot follow: the slot is {place.status}")
    return place


def _with_entry(state: State, entry: Entry) -> State:
    return dataclasses.replace(state, groups={**state.groups, entry.ordinal: entry})


def _with_place(state: State, event: Event, place: Place) -> State:
    entry, slot = state.groups[event["ordinal"]], event["slot"]
    places = (*entry.places[:slot], place, *entry.places[slot + 1 :])
    return _with_entry(state, dataclasses.replace(entry, places=places))


def _move(state: State, ordinals: Iterable[int], now: Stage, then: Stage) -> State:
    moved = {
        ordinal: dataclasses.replace(_entry(state, ordinal, now), stage=then)
        for ordinal in ordinals
    }
    return dataclasses.replace(state, groups={**state.groups, **moved})


def _forget(state: State, ordinals: Iterable[int]) -> State:
    gone = set(ordinals)
    groups = {each: entry for each, entry in state.groups.items() if each not in gone}
    return dataclasses.replace(state, groups=groups)


def _prune(state: State) -> State:
    """Forgets iterations that no rollback undoes and that serving has acknowledged."""
    while (
        state.trained
        and state.trained[0].number <= state.settled
        and state.trained[0].version <= state.acknowledged
    ):
        oldest, *rest = state.trained
        state = dataclasses.replace(
            _forget(state, oldest.ordinals),
            trained=tuple(rest),
            before=dataclasses.replace(oldest, ordinals=()),
        )
    return state


def _count(state: State, name: str, number: int = 1) -> State:
    return dataclasses.replace(state, tally=_more(state.tally, name, number))


def _more(tally: Mapping[str, int], name: str, number: int = 1) -> dict[str, int]:
    return {**tally, name: tally.get(name, 0) + number}
