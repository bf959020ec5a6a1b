"""Random interleavings: nothing is lost, nothing is trained twice, nothing locks."""

import dataclasses
import itertools
import json

import hypothesis
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, events, ledger

WORKERS = ("a", "b", "c")
MOVES = (
    *("work", "offer", "finish") * 3,
    *("take", "train", "acknowledge") * 2,
    *("again", "renew", "tick", "lose", "checkpoint", "crash"),
)
OUTCOMES = (
    (1.0, Cause.DONE),
    (0.0, Cause.MAX_TURNS),
    (None, Cause.BROWSER_CRASH),
    (None, Cause.CANCELLED),
    (None, Cause.JUDGE_UNAVAILABLE),
    (None, Cause.PROMPT_TOO_LONG),
    (None, Cause.DNS),
    (None, Cause.SITE_TIMEOUT),
)


@dataclasses.dataclass
class World:
    """The ledger with all around it: leases out, a learner, checkpoints, a journal."""

    state: books.State
    journal: list[events.Event] = dataclasses.field(default_factory=list)
    held: list[ledger.Lease] = dataclasses.field(default_factory=list)
    delivered: list[tuple] = dataclasses.field(default_factory=list)
    learner: list[list[int]] = dataclasses.field(default_factory=list)
    iteration: int = 0
    checkpoints: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)
    now_s: float = 0.0
    batch: int = 0  # events of the last append


def play(world: World, found: list[events.Event]) -> None:
    world.batch = len(found) or world.batch
    for event in json.loads(json.dumps(found)):
        world.journal.append(event)
        world.state = events.apply(world.state, event)
        books.check(world.state)


def task_at(ordinal: int) -> types.Task:
    url = f"http://{'www.' * (ordinal % 2)}{ordinal % 3}.test/"
    return types.Task(id=str(ordinal), intent="", start_url=url, max_turns=1)


def record(lease: ledger.Lease, outcome) -> types.Slot:
    value, cause = outcome
    judge = cause if cause is Cause.JUDGE_UNAVAILABLE else None
    return types.Slot(
        index=lease.slot,
        trajectory=f"{lease.ordinal}-{lease.slot}-{lease.attempt}",
        reward=types.Reward(
            value=value or 0.0, parts={}, is_valid=value is not None, cause=judge
        ),
        cause=Cause.DONE if judge else cause,
        versions=(),
        turns=int(cause.is_scored),
    )


def offer(world: World, pick: int) -> bool:
    found = ledger.offer(
        world.state, world.now_s, WORKERS[pick % len(WORKERS)], task_at
    )
    play(world, found)
    lease = ledger.lease(world.state, found)
    if lease is not None:
        world.held.append(lease)
    return lease is not None


def finish(world: World, pick: int, outcome=None) -> None:
    if not world.held:
        return
    lease = world.held.pop(pick % len(world.held))
    slot = record(lease, outcome or OUTCOMES[pick % len(OUTCOMES)])
    given = (lease.ordinal, lease.slot, lease.attempt, slot)
    world.delivered.append(given)
    play(world, ledger.finish(world.state, world.now_s, *given))


def work(world: World, pick: int) -> None:
    """Some episodes end as they should."""
    for number in range(pick % 10):
        if offer(world, pick + number):
            finish(world, len(world.held) - 1, (float(number % 2), Cause.DONE))


def renew(world: World, pick: int) -> None:
    """Whoever holds a lease, or held it, says that it is still there."""
    if world.held:
        lease = world.held[pick % len(world.held)]
        at = lease.ordinal, lease.slot, lease.attempt
        play(world, ledger.renew(world.state, world.now_s, *at))


def again(world: World, pick: int) -> None:
    if world.delivered:
        given = world.delivered[pick % len(world.delivered)]
        play(world, ledger.finish(world.state, world.now_s, *given))


def tick(world: World, pick: int) -> None:
    world.now_s += pick % 7 if pick % 50 else 50_000  # some sites have rested by then


def lose(world: World, pick: int) -> None:
    """A worker dies; what it held may still come in (a ghost) or not."""
    worker = WORKERS[pick % len(WORKERS)]
    if pick % 2:
        world.held = world.held[1:]
    play(world, ledger.worker_lost(world.state, world.now_s, worker))


def take(world: World, pick: int) -> None:
    found = ledger.take(world.state, world.state.limits.groups)
    play(world, found)
    world.learner += [event["ordinals"] for event in found]


def train(world: World, pick: int) -> None:
    if world.learner:
        world.iteration += 1
        version = world.iteration
        ordinals = world.learner.pop(0)
        play(world, ledger.trained(world.state, world.iteration, ordinals, version))
        play(world, ledger.published(world.state, version))


def acknowledge(world: World, pick: int) -> None:
    play(world, ledger.acknowledged(world.state, world.state.published))


def checkpoint(world: World, pick: int) -> None:
    world.checkpoints.append((world.iteration, books.snapshot(world.state)))
    world.checkpoints = world.checkpoints[-2:]
    play(world, ledger.checkpointed(world.state, world.checkpoints[0][0]))


def crash(world: World, pick: int) -> None:
    """Everything dies; the newest checkpoint that is whole goes on.

    R37: now and then the last append was torn between two of its events.
    """
    ends = (books.restore(data).applied for _, data in world.checkpoints)
    known = max(ends, default=0)
    torn = pick % (world.batch + 1) if pick % 4 == 0 else 0
    if torn and len(world.journal) - torn >= known:
        del world.journal[-torn:]
        world.state = events.apply_all(
            ledger.new_state(world.state.limits), world.journal
        )
    whole = world.checkpoints[: -1 if pick % 2 else None] or world.checkpoints
    iteration, data = whole[-1] if whole else (0, None)
    state = books.restore(data) if data else ledger.new_state(world.state.limits)
    assert events.apply_all(state, world.journal[state.applied :]) == world.state
    world.learner, world.iteration = [], iteration
    world.checkpoints = [it for it in world.checkpoints if it[0] <= iteration]
    if pick % 3:
        world.held = []
    play(world, ledger.rollback(world.state, iteration))
    play(world, ledger.restart(world.state))


def settle(world: World) -> None:
    """All goes well from here: three iterations are trained, or there is a bug."""
    goal = world.iteration + 3
    values = itertools.cycle((1.0, 0.0))
    for _ in range(10_000):
        if world.iteration >= goal:
            return
        world.now_s += 1.0
        before = world.state.applied
        if offer(world, 0):
            finish(world, len(world.held) - 1, (next(values), Cause.DONE))
        take(world, 0)
        train(world, 0)
        acknowledge(world, 0)
        is_waiting = any(
            place.status
            in (books.Status.RUNNING, books.Status.AWAITING_JUDGE)  # their time comes
            for entry in world.state.groups.values()
            for place in entry.places
        )
        assert world.state.applied > before or is_waiting, "a deadlock"
    raise AssertionError("no progress")


def check_lineage(world: World) -> None:
    """Each ordinal is trained once, dropped once, or still known; none is skipped."""
    lineage: dict[int, list[int]] = {}
    ever: dict[int, list[int]] = {}
    dropped = []
    for event in world.journal:
        if event["kind"] == "trained":
            number = event["iteration"]
            lineage[number] = event["ordinals"]
            assert ever.setdefault(number, lineage[number]) == lineage[number]
        elif event["kind"] == "rolled_back":
            lineage = {n: it for n, it in lineage.items() if n <= event["iteration"]}
        elif event["kind"] == "closed" and event["reason"]:
            dropped.append(event["ordinal"])
    trained = [ordinal for ordinals in lineage.values() for ordinal in ordinals]
    known = [
        ordinal
        for ordinal, entry in world.state.groups.items()
        if entry.stage is not books.Stage.TRAINED
    ]
    assert sorted(trained + dropped + known) == list(range(world.state.opened))
    assert events.trained_twice(world.journal) == 0


def check_slots(world: World) -> None:
    """No slot was scored twice, and every kept group is whole."""
    scored = [
        (event["ordinal"], event["slot"])
        for event in world.journal
        if event["kind"] == "scored"
    ]
    assert len(scored) == len(set(scored))
    for entry in world.state.groups.values():
        assert len(entry.places) == world.state.limits.group
        if entry.stage is not books.Stage.OPEN:
            assert len(entry.advantages) == world.state.limits.group


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    group=st.integers(2, 3),
    groups=st.integers(1, 3),
    eta=st.integers(0, 2),
    retries=st.integers(0, 2),
    floor=st.sampled_from([1.0, 0.3]),
    moves=st.lists(
        st.tuples(st.sampled_from(MOVES), st.integers(0, 1000)),
        min_size=30,
        max_size=90,
    ),
)
def test_any_interleaving_keeps_the_laws(group, groups, eta, retries, floor, moves):
    # R24, R33, R34.
    limits = books.Limits(
        group=group,
        groups=groups,
        eta=eta,
        retries=retries,
        lease_timeout_s=5.0,
        starve_batches=1000,
        advantage="mean_std",
        floor=floor,
    )
    world = World(state=ledger.new_state(limits))
    for move, pick in moves:
        globals()[move](world, pick)
    assert books.restore(books.snapshot(world.state)) == world.state
    settle(world)
    check_lineage(world)
    check_slots(world)
    replayed = events.apply_all(ledger.new_state(limits), world.journal)
    assert replayed == world.state


@hypothesis.given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=400))
def test_any_rewards_either_train_or_starve(values):
    # R01: whatever comes back, take is granted, waited for, or a typed stop.
    limits = books.Limits(
        group=2,
        groups=2,
        eta=1,
        retries=0,
        lease_timeout_s=5.0,
        starve_batches=3,
        advantage="mean",
    )
    world = World(state=ledger.new_state(limits))
    for value in values:
        if not offer(world, 0):
            break
        finish(world, 0, (value, Cause.DONE))
    counts = books.counts(world.state)["groups"]
    if not offer(world, 0):
        try:
            assert ledger.take(world.state, 2)
        except ledger.StarvationError as stop:
            assert sum(stop.reasons.values()) >= 6 and counts["waiting"] < 2


def test_memory_stays_flat():
    limits = books.Limits(
        group=2,
        groups=2,
        eta=1,
        retries=0,
        lease_timeout_s=1e9,
        starve_batches=1000,
        advantage="mean_std",
    )
    world = World(state=ledger.new_state(limits))
    sizes = []
    for number in range(60):
        for value in (1.0, 0.0, 0.0, 1.0, 1.0, 1.0):
            offer(world, 0)
            finish(world, 0, (value, Cause.DONE))
        take(world, 0)
        train(world, 0)
        acknowledge(world, 0)
        checkpoint(world, 0)
        if number % 20 == 19:
            sizes.append(len(books.snapshot(world.state)))
    assert max(sizes) - min(sizes) < 100
