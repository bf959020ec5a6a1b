"""The twin of a run: its loop as a discrete-event simulation, for sizes not yet tried.

In: a Fit, the service times that a run's own metrics tell (`evals.twin_fit`), and the
Sizes that are asked for. Out: a Prediction of the steady state. Leases, groups and
admission are those of `rollout.ledger` itself, which does not ask what the time is.

What is assumed:
- browser nodes grow with the browsers: an episode's own time stays what it was;
- one sampler, of several replicas: a step with r rows in each takes step_s + row_s r,
  all rows move on together and lie evenly, `slots` fit in each replica, new weights
  wait until no reply is in the middle of any;
- n devices in place of m are 1 + efficiency (n / m - 1) times as many replicas of the
  sampler, each as large as the run's (a reply alone takes as long as ever), and divide
  the times of learner or judge by that: linear where efficiency is 1;
- the judge is a delay of an episode, whatever the load; the policy does not change:
  length of episodes, share of voids and of kept groups are the run's.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from openwebrl_jax.core import metrics, types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.evals import clock as clocks
from openwebrl_jax.rollout import books, events, ledger

_GATHER_S = 0.004  # an idle sampler waits so long for company, see policy.batcher
_NEVER_S = 1e12  # no lease of a twin runs out


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large a run is. Example: Sizes(browsers=96, eta=1, learner=8, sampler=4)."""

    browsers: int  # episodes at once
    eta: int
    learner: int = 1  # devices, as are the next two
    sampler: int = 1  # of all its replicas
    judge: int = 0  # 0 = no judge of our own

    def __post_init__(self):
        least = {"browsers": 1, "eta": 0, "learner": 1, "sampler": 1, "judge": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(
                    f"{name}={getattr(self, name)}; wanted a number from {low} on"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What an episode of the run took of others; drawn again by the twin."""

    env_s: float  # the reset and all steps
    judge_s: float
    tokens: tuple[int, ...]  # of each reply
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an iteration of the run took of the learner; drawn again by the twin."""

    busy_s: float  # from the groups to the new version
    publish_s: float  # until serving has it, but for the replies that it waits for
    keep_s: float  # what comes then: the checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The service times of a run. Made by `twin_fit.fit`, eaten by `simulate`."""

    sizes: Sizes
    group: int  # G
    groups: int  # B
    slots: int  # rows inside a replica of the sampler
    retries: int
    kept: float  # share of the groups that are trained
    episodes: Sequence[Episode]
    updates: Sequence[Update]
    step_s: float
    row_s: float
    steps: float  # of the sampler for a reply of mean length
    request_s: float = 0.0  # of a turn, on the way to the sampler and back
    extra_s: float = 0.0  # of an episode: what is neither environment nor a wait
    report_s: float = 0.0  # between an episode and the next lease
    replicas: int = 1  # of the sampler

    def __post_init__(self):
        if not self.episodes or not self.updates or not 0.0 < self.kept <= 1.0:
            raise ValueError(
                f"got {len(self.episodes)} episodes, {len(self.updates)} updates and "
                f"kept={self.kept}; wanted some of each and a share of kept groups "
                "above 0: fit a run that has trained"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What twin and run are compared by; shares and means over the steady part."""

    steps_per_s: float  # turns
    updates_per_min: float
    browser_idle: float  # share of the contexts' time without a lease
    sampler_idle: float
    learner_idle: float  # it waits for groups
    staleness: float  # mean, in versions, of an episode's oldest turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Figures):
    """Figures of a simulation, and what its laws are tested by."""

    episodes_per_s: float
    episode_s: float  # mean time with a lease
    in_flight: float  # mean number of leases
    counts: dict[str, dict[str, int]]  # see rollout.books.counts


def simulate(
    fit: Fit,
    sizes: Sizes,
    seed: int,
    *,
    updates: int = 40,
    efficiency: float = 1.0,
) -> Prediction:
    """The steady state: `updates` iterations, after some that are not counted."""
    loop = _Loop(fit, sizes, seed, efficiency)
    skip = 2 * (1 + sizes.eta)
    loop.clock.start(loop.sampler())
    loop.clock.start(loop.learner())
    for number in range(sizes.browsers):
        loop.clock.start(loop.browser(f"browser-{number}"))
    loop.clock.run(lambda: len(loop.marks) > skip + updates)
    books.check(loop.state)
    total, before = loop.marks[skip + updates], loop.marks[skip]
    total = defaultdict(float, {k: v - before.get(k, 0.0) for k, v in total.items()})
    share, seconds = metrics.share, total["clock_s"]
    in_flight = share(total["lease_s"], seconds)
    learner_s = total["learner_s"] + total["starved_s"]
    return Prediction(
        steps_per_s=share(total["turns"], seconds),
        updates_per_min=share(60.0 * updates, seconds),
        browser_idle=max(0.0, 1.0 - in_flight / sizes.browsers),
        sampler_idle=max(0.0, 1.0 - share(total["sampler_s"], seconds)),
        learner_idle=share(total["starved_s"], learner_s),
        staleness=share(total["ages"], total["aged"]),
        episodes_per_s=share(total["episodes"], seconds),
        episode_s=share(total["held_s"], total["episodes"]),
        in_flight=in_flight,
        counts=books.counts(loop.state),
    )


def figures(told: Figures) -> dict[str, float]:
    """Only what a run and its twin are compared by."""
    return {each.name: getattr(told, each.name) for each in fields(Figures)}


def cost(
    sizes: Sizes, told: Figures, iterations: int, usd_per_device_hour: float
) -> dict[str, float]:
    """Of so many iterations; the browsers' nodes are not in it. No price, no USD."""
    devices = sizes.learner + sizes.sampler + sizes.judge
    hours = iterations / told.updates_per_min / 60.0
    spent = {"hours": hours, "device_hours": devices * hours}
    usd = usd_per_device_hour * spent["device_hours"]
    return spent | ({"usd": usd} if usd_per_device_hour else {})


@dataclass(slots=True, eq=False)
class _Request:
    """A turn before the sampler."""

    left: int  # steps
    version: int = -1  # -1 = it has not spoken
    done: clocks.Gate = field(default_factory=deque)


class _Loop:
    """All that happens in a run, as processes of one clock."""

    def __init__(self, fit: Fit, sizes: Sizes, seed: int, efficiency: float):
        self._fit, self._seed = fit, seed
        self.clock = clocks.Clock()
        had = fit.sizes
        self._speed = {
            name: 1.0
            + efficiency * (getattr(sizes, name) / max(getattr(had, name), 1) - 1.0)
            for name in ("sampler", "learner")
        }
        self._replicas = fit.replicas * self._speed["sampler"]
        judges = sizes.judge / had.judge if had.judge else 1.0
        self._speed["judge"] = 1.0 + efficiency * (judges - 1.0)
        lengths = [n for episode in fit.episodes for n in episode.tokens]
        self._steps_a_token = fit.steps / max(float(np.mean(lengths or [1])), 1.0)
        self.state = ledger.new_state(
            books.Limits(
                group=fit.group,
                groups=fit.groups,
                eta=sizes.eta,
                retries=fit.retries,
                lease_timeout_s=_NEVER_S,
                starve_batches=1000,
                advantage="mean",
            )
        )
        # Running totals, at the start and after each update.
        self.marks: list[dict[str, float]] = [{}]
        self._totals: dict[str, float] = defaultdict(float)
        self._running = 0  # leases
        self._version = 0
        self._queue: deque[_Request] = deque()
        self._is_swapping = False
        # Who waits: browsers for a lease, the sampler for work, the learner for
        # groups and for the sampler to take new weights.
        self._free, self._work = deque(), deque()
        self._fed, self._swapped = deque(), deque()

    def browser(self, name: str) -> clocks.Process:
        """Plays lease after lease, as a context of `runtime.worker` does."""
        fit, clock, totals = self._fit, self.clock, self._totals
        while True:
            while (lease := self._lease(name)) is None:
                yield self._free
            clock.wake(self._free, 1)  # there may be more
            since_s = clock.now_s
            self._run(+1)
            draw = self._draw(1, lease.ordinal, lease.slot, lease.attempt)
            episode = fit.episodes[int(draw.integers(len(fit.episodes)))]
            part_s = episode.env_s / (len(episode.tokens) + 1)
            yield part_s
            versions = []
            for tokens in episode.tokens:
                request = self._request(tokens, draw)
                yield fit.request_s
                self._queue.append(request)
                clock.wake(self._work)
                yield request.done
                versions.append(request.version)
                yield part_s
            yield episode.judge_s / self._speed["judge"] + fit.extra_s
            self._run(-1)
            totals["held_s"] += clock.now_s - since_s
            totals["episodes"] += 1
            totals["turns"] += len(versions)
            yield fit.report_s
            self._finish(lease, episode, versions)

    def sampler(self) -> clocks.Process:
        """Steps with all rows inside, as `policy.batcher` and `speaker` do."""
        fit, clock = self._fit, self.clock
        inside: list[_Request] = []
        while True:
            if self._is_swapping and not inside:
                self._is_swapping = False
                clock.wake(self._swapped)
                # The learner tells of the version before anyone speaks with it.
                yield 0.0
            if not inside and not self._queue:
                yield self._work
                if not self._is_swapping:
                    yield _GATHER_S
            slots = fit.slots * self._replicas
            while self._queue and len(inside) < slots and not self._is_swapping:
                inside.append(self._queue.popleft())
            if not inside:
                continue
            rows = len(inside) / self._replicas  # of each, or some have none
            step_s = fit.step_s + fit.row_s * max(1.0, rows)
            yield step_s
            self._totals["sampler_s"] += step_s * min(1.0, rows)
            for request in inside:
                request.left -= 1
                if not request.left:
                    request.version = self._version
                    clock.wake(request.done)
            inside = [request for request in inside if request.left]

    def learner(self) -> clocks.Process:
        """Takes groups and makes versions, as `runtime.learner` does."""
        fit, clock, totals = self._fit, self.clock, self._totals
        for number in itertools.count(1):
            since_s = clock.now_s
            while not (found := ledger.take(self.state, fit.groups)):
                yield self._fed
            self._apply(found)
            ordinals = found[0]["ordinals"]
            totals["starved_s"] += clock.now_s - since_s
            draw = self._draw(2, number)
            update = fit.updates[int(draw.integers(len(fit.updates)))]
            busy_s = update.busy_s / self._speed["learner"]
            yield busy_s
            totals["learner_s"] += busy_s
            for group in books.groups(self.state, ordinals):
                oldest = [min(slot.versions) for slot in group.slots if slot.versions]
                totals["ages"] += sum(number - 1 - version for version in oldest)
                totals["aged"] += len(oldest)
            self._apply(ledger.trained(self.state, number, ordinals, number))
            self._apply(ledger.published(self.state, number))
            yield update.publish_s
            self._is_swapping = True
            clock.wake(self._work)
            yield self._swapped
            self._version = number
            self._apply(ledger.acknowledged(self.state, number))
            self._apply(ledger.checkpointed(self.state, number))
            clock.wake(self._free, 1)
            yield update.keep_s
            self._mark()

    def _lease(self, name: str) -> ledger.Lease | None:
        found = ledger.offer(self.state, self.clock.now_s, name, _task_at)
        self._apply(found)
        return ledger.lease(self.state, found)

    def _finish(
        self, lease: ledger.Lease, episode: Episode, versions: list[int]
    ) -> None:
        """Enters the result; rewards differ in the groups that are to be kept."""
        is_mixed = self._draw(3, lease.ordinal).random() < self._fit.kept
        value = float(is_mixed and lease.slot % 2)
        record = types.Slot(
            index=lease.slot,
            trajectory="",
            reward=types.Reward(value=value, parts={}, is_valid=episode.is_valid),
            cause=Cause.PAGE_DONE if episode.is_valid else Cause.ENV_TIMEOUT,
            versions=tuple(versions),
            turns=len(versions),
        )
        where = lease.ordinal, lease.slot, lease.attempt
        self._apply(ledger.finish(self.state, self.clock.now_s, *where, record))
        self.clock.wake(self._fed)
        self.clock.wake(self._free, 1)

    def _apply(self, found: list[events.Event]) -> None:
        self.state = events.apply_all(self.state, found)

    def _draw(self, *purpose: int) -> np.random.Generator:
        """The same for the same purpose, whatever the sizes are."""
        return np.random.default_rng((self._seed, *purpose))

    def _request(self, tokens: int, draw: np.random.Generator) -> _Request:
        """Steps in proportion to the tokens, rounded up or down at random."""
        steps = tokens * self._steps_a_token
        return _Request(left=max(1, int(steps + draw.random())))

    def _run(self, more: int) -> None:
        """Another number of leases; the time with the number before is noted."""
        self._note_leases()
        self._running += more

    def _note_leases(self) -> None:
        spent_s = self.clock.now_s - self._totals["clock_s"]
        self._totals["lease_s"] += spent_s * self._running
        self._totals["clock_s"] = self.clock.now_s

    def _mark(self) -> None:
        self._note_leases()
        self.marks.append(dict(self._totals))


def _task_at(number: int) -> types.Task:
    return types.Task(id=str(number), intent="", start_url="", max_turns=1)
