"""What the ledger knows: the limits, the groups that are not yet done with, counts.

A slot's way: free -> running -> scored; or -> void for good, or free again for a next
attempt, or -> awaiting_judge. A group's way: open -> waiting -> taken -> trained, or
dropped when it closes. A group is forgotten, but for its counts, as soon as no rollback
can ask for it: memory does not grow with the run.
"""

import collections
import dataclasses
import enum
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openwebrl_jax.core import types
from openwebrl_jax.rollout import records
from openwebrl_jax.tasks import curriculum


class Status(enum.StrEnum):
    """Of a slot."""

    FREE = "free"
    RUNNING = "running"
    AWAITING_JUDGE = "awaiting_judge"
    SCORED = "scored"
    VOID = "void"

    @property
    def is_final(self) -> bool:
        """True = nothing more comes."""
        return self in (Status.SCORED, Status.VOID)


class Stage(enum.StrEnum):
    """Of a group that is still known."""

    OPEN = "open"
    WAITING = "waiting"
    TAKEN = "taken"
    TRAINED = "trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the ledger, from the config. Eaten by `ledger.new_state`."""

    group: int  # G, slots a group
    groups: int  # B, groups an iteration
    eta: int  # staleness bound, in iterations
    retries: int  # further attempts at a slot that the world spoilt
    lease_timeout_s: float
    starve_batches: int  # so many times B groups dropped in a row = stop
    advantage: str  # mode of algos.advantages
    iterations: int | None = None  # no group is opened beyond these; None = no end
    shuffle_seed: int | None = None  # control: rewards permuted in a group; None = no
    floor: float = 1.0  # of the curriculum, see tasks.curriculum; 1 = there is none
    decay: float = 0.98  # of what it knows, by version
    seed: int = 0  # of what it draws
    blocklist: tuple[str, ...] = ()  # patterns of ids of tasks that are kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One of a group's G slots and what has become of it.

    While it awaits the judge, `deadline_s` is when it may be leased for judging.
    """

    status: Status = Status.FREE
    attempt: int = -1  # number of the newest lease; -1 = never leased
    faults: int = 0  # attempts that the world spoilt
    judge_faults: int = 0  # judgings of what is on disk that came to nothing
    worker: str = ""  # who holds the lease; "" = nobody
    deadline_s: float = 0.0  # wall clock
    record: types.Slot | None = None  # None = no attempt has brought anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A group that is still known."""

    ordinal: int
    task: types.Task
    stage: Stage
    places: tuple[Place, ...]
    advantages: tuple[float | None, ...] = ()  # set when it closes; None = void slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One training iteration: its number, the groups, the version that it made.

    Example: Iteration(number=3, version=3, ordinals=(17, 18, 20)).
    """

    number: int
    version: int
    ordinals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A site, or a task, that failed of late; no group is opened on it till `until_s`.

    Example: Host(failures={"17/2": 1.7e9}), slot 2 of group 17 could not open it.
    """

    failures: Mapping[str, float] = dataclasses.field(default_factory=dict)  # at, in s
    until_s: float = 0.0  # wall clock; 0 = it is not at rest


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the ledger knows. Made by `ledger.new_state` and `apply` alone."""

    limits: Limits
    applied: int = 0  # events so far: where to go on in the journal
    groups: Mapping[int, Entry] = dataclasses.field(default_factory=dict)  # by ordinal
    replay: tuple[int, ...] = ()  # waiting groups to take first, in this order
    taken: tuple[int, ...] = ()
    # Iterations that a rollback may undo or that serving has not acknowledged, and
    # the newest one before them.
    trained: tuple[Iteration, ...] = ()
    before: Iteration = Iteration(number=0, version=0)
    settled: int = 0  # no rollback goes behind this iteration
    published: int = 0
    acknowledged: int = 0
    tally: Mapping[str, int] = dataclasses.field(default_factory=dict)  # never sinks
    dry: Mapping[str, int] = dataclasses.field(default_factory=dict)  # since one kept
    hosts: Mapping[str, Host] = dataclasses.field(default_factory=dict)  # that failed
    # What the curriculum goes by, as of version `learnt`, and what has come since.
    skills: Mapping[str, curriculum.Skill] = dataclasses.field(default_factory=dict)
    fresh: Mapping[str, curriculum.Skill] = dataclasses.field(default_factory=dict)
    learnt: int = 0

    @property
    def opened(self) -> int:
        """Groups ever opened, and the next one's ordinal."""
        return self.tally.get("opened", 0)

    @property
    def drawn(self) -> int:
        """Tasks ever drawn, and the next one's number at their source."""
        return self.opened + self.tally.get("passed_over", 0)


def groups(state: State, ordinals: Iterable[int]) -> tuple[types.Group, ...]:
    """The named groups as the learner wants them."""
    return tuple(_group(state.groups[ordinal]) for ordinal in ordinals)


def counts(state: State) -> dict[str, dict[str, int]]:
    """Both laws' terms, and what lies behind them by cause and reason."""
    places = collections.Counter(
        place.status for entry in state.groups.values() for place in entry.places
    )
    stages = collections.Counter(entry.stage for entry in state.groups.values())
    tally, voids = state.tally, _under(state, "void")
    return {
        "slots": {
            "leased": tally.get("leased", 0),
            "scored": tally.get("scored", 0),
            "void": sum(voids.values()),
            "running": places[Status.RUNNING],
            "awaiting_judge": places[Status.AWAITING_JUDGE],
        },
        "groups": {
            "opened": state.opened,
            "trained": tally.get("trained", 0) - tally.get("untrained", 0),
            "filtered": sum(_under(state, "filtered").values()),
            "void": sum(_under(state, "void_groups").values()),
            "waiting": stages[Stage.WAITING],
            "taken": stages[Stage.TAKEN],
            "open": stages[Stage.OPEN],
        },
        "void": voids,
        "filtered": _under(state, "filtered"),
        "use": {  # of scored slots, once their group has closed
            "useful": tally.get("useful", 0),  # its advantage is not 0
            "unused": tally.get("unused", 0),
        },
        "other": {
            "duplicates": tally.get("duplicates", 0),
            "untrained": tally.get("untrained", 0),
            "passed_over": tally.get("passed_over", 0),
            "blocked": tally.get("blocked", 0),
            "hosts_at_rest": sum(host.until_s > 0 for host in state.hosts.values()),
        },
    }


def check(state: State) -> None:
    """Raises if a law of `counts` is broken."""
    for name, terms in itertools.islice(counts(state).items(), 2):
        whole, *parts = terms.values()
        if whole != sum(parts):
            raise RuntimeError(f"the ledger lost count of its {name}: {terms}")


def snapshot(state: State) -> bytes:
    """The state as JSON; equal states give equal bytes."""
    value = records.to_json(state)
    value["groups"] = list(value["groups"].values())
    return json.dumps(value, sort_keys=True).encode()


def restore(data: bytes) -> State:
    """The state of which `snapshot` made the bytes."""
    value = json.loads(data)
    value["groups"] = {entry["ordinal"]: entry for entry in value["groups"]}
    return records.from_json(State, value)


def _group(entry: Entry) -> types.Group:
    return types.Group(
        ordinal=entry.ordinal,
        task=entry.task,
        slots=tuple(place.record for place in entry.places if place.record),
        advantages=entry.advantages,
    )


def _under(state: State, prefix: str) -> dict[str, int]:
    """The tallies `prefix/name`, by name."""
    return {
        name.removeprefix(f"{prefix}/"): count
        for name, count in state.tally.items()
        if name.startswith(f"{prefix}/")
    }
