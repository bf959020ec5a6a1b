"""The ledger as an actor: the one place where leases, results and groups meet.

Each call decides (rollout.ledger), writes the events down, applies them, answers. A
worker's `lease` and the learner's `take` wait for the state to change; nothing else
blocks.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openwebrl_jax.core import metrics, types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, build, cooldown, events, ledger
from openwebrl_jax.runtime import cluster, journal

JOURNAL = "ledger.jsonl"
_LOOK_AGAIN_S = 2.0  # at the longest, leases that ran out are seen
_PATIENCE_S = 60.0  # beyond the longest lease, without a move


def limits(config: Any) -> books.Limits:
    """What bounds the ledger of this run."""
    return books.Limits(
        group=config.algo.group,
        groups=config.algo.groups,
        eta=config.algo.eta,
        retries=config.rollout.retries,
        lease_timeout_s=config.rollout.lease_timeout_s,
        starve_batches=config.algo.starve_batches,
        advantage=config.algo.advantage,
        iterations=config.algo.iterations,
        shuffle_seed=config.seed if config.algo.shuffle_rewards else None,
        floor=config.tasks.floor,
        decay=config.tasks.decay,
        seed=config.seed,
        blocklist=tuple(config.tasks.blocklist),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What came since the last call; eaten by `runtime.news`."""

    counts: dict[str, dict[str, int]]  # both laws' terms and more, since the beginning
    slots: list[types.Slot]  # results
    trained_turns: list[int]  # of each episode that was trained on
    blocked: dict[str, float]  # host -> share of its results, where there were any
    memory_mb: float


class Queue:
    """Holds the ledger's State and its journal. All methods run on one event loop."""

    async def start(
        self, config: Any, workdir: str, snapshot: bytes | None, iteration: int
    ) -> None:
        """Goes on from a checkpoint: its snapshot, later events, then a rollback.

        `snapshot` is None and `iteration` 0 where there is no checkpoint yet.
        """
        self._source = build.make_source(config, "train")
        path = Path(workdir) / JOURNAL
        self._fence = cluster.fence(path.with_suffix(".lock"))
        state = ledger.new_state(limits(config))
        if snapshot is not None:
            state = books.restore(snapshot)
            state = dataclasses.replace(state, limits=limits(config))
        past = journal.read(path)
        if len(past) < state.applied:
            raise ValueError(
                f"{path} has {len(past)} events, the checkpoint of iteration "
                f"{iteration} was made after {state.applied}; bring the whole file "
                "back, or start a new workdir"
            )
        self._state = events.apply_all(state, past[state.applied :])
        self._journal = journal.Journal(path)
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._lost: set[str] = set()
        self._unheard: dict[tuple[int, int, int], str] = {}  # see `received`
        self._is_over = False
        self._moved_s = time.monotonic()
        self._last: events.Event | None = past[-1] if past else None
        self._forget_news()
        self._before = books.counts(self._state)
        if past:
            self._write(ledger.rollback(self._state, iteration))
            self._write(ledger.restart(self._state))

    async def lease(self, worker: str) -> ledger.Lease | None:
        """The next slot to play, waiting for one; None = there is no more for you."""
        # One looks whenever there is something new: there may be hundreds who wait.
        async with self._turn:
            while not self._is_over and worker not in self._lost:
                lease = self._lease(worker)
                if lease is not None:
                    return lease
                await self._change()
        return None

    async def received(self, ordinal: int, slot: int, attempt: int) -> None:
        """The lease is where it was sent: what comes of it is its own doing."""
        self._unheard.pop((ordinal, slot, attempt), None)

    async def renew(self, ordinal: int, slot: int, attempt: int) -> None:
        """The worker is there and had to wait: its lease counts from now on."""
        found = ledger.renew(self._state, time.time(), ordinal, slot, attempt)
        if found:
            place = self._state.groups[ordinal].places[slot]
            is_move = place.status is books.Status.RUNNING  # not if the judge is away
            self._write(found, is_durable=False, is_move=is_move)

    async def finish(
        self, ordinal: int, slot: int, attempt: int, record: types.Slot
    ) -> None:
        """Enters a result; its trajectory must be durable by now."""
        now_s = time.time()
        found = ledger.finish(self._state, now_s, ordinal, slot, attempt, record)
        self._unheard.pop((ordinal, slot, attempt), None)
        if not {"duplicate", "parked"} & {event["kind"] for event in found}:
            self._note(ordinal, record)  # once, when there is a verdict
        self._write(found)

    async def take(self, count: int) -> tuple[types.Group, ...]:
        """The `count` oldest kept groups, waiting.

        Raises StarvationError when no more will come, StallError when nobody plays.
        """
        asked_s = time.monotonic()
        while not (found := ledger.take(self._state, count)):
            # Workers that hang ask for nothing, so their leases end here.
            self._write(ledger.expire(self._state, time.time()), is_durable=False)
            quiet_s = time.monotonic() - max(self._moved_s, asked_s)
            if quiet_s > self._state.limits.lease_timeout_s + _PATIENCE_S:
                raise ledger.StallError.of(self._state, quiet_s, self._last)
            await self._change()
        self._write(found)
        return books.groups(self._state, found[0]["ordinals"])

    async def trained(
        self, iteration: int, ordinals: Sequence[int], version: int
    ) -> bytes:
        """The learner made a version and publishes it; answers with a snapshot."""
        found = ledger.trained(self._state, iteration, ordinals, version)
        for group in books.groups(self._state, ordinals):
            self._trained_turns += [
                slot.turns
                for slot, advantage in zip(group.slots, group.advantages, strict=True)
                if advantage is not None
            ]
        self._write([*found, *ledger.published(self._state, version)])
        return books.snapshot(self._state)

    async def acknowledged(self, version: int) -> None:
        """All of serving speaks with the version."""
        self._write(ledger.acknowledged(self._state, version))

    async def checkpointed(self, iteration: int) -> None:
        """`iteration` is the oldest checkpoint that is kept."""
        self._write(ledger.checkpointed(self._state, iteration))

    async def worker_lost(self, worker: str) -> None:
        """A worker died: what it held is free again."""
        self._lost.add(worker)
        unheard = [at for at, who in self._unheard.items() if who == worker]
        self._write(ledger.worker_lost(self._state, time.time(), worker, unheard))
        for at in unheard:
            del self._unheard[at]

    async def close(self) -> None:
        """The run is over: no worker gets another lease."""
        self._is_over = True
        self._wake()

    async def before(self) -> dict[str, dict[str, int]]:
        """The counts of earlier processes; what a restart gives up comes after them."""
        return self._before

    async def news(self) -> News:
        """What came since the last call; both laws are checked."""
        books.check(self._state)
        told = News(
            counts=books.counts(self._state),
            slots=self._slots,
            trained_turns=self._trained_turns,
            blocked={host: n / self._asked[host] for host, n in self._blocked.items()},
            memory_mb=metrics.memory_mb(),
        )
        self._forget_news()
        return told

    def _forget_news(self) -> None:
        self._slots: list[types.Slot] = []
        self._trained_turns: list[int] = []
        self._asked: Counter[str] = Counter()
        self._blocked: Counter[str] = Counter()

    def _note(self, ordinal: int, record: types.Slot) -> None:
        self._slots.append(record)
        entry = self._state.groups.get(ordinal)
        if host := cooldown.site_of(entry.task) if entry else "":
            self._asked[host] += 1
            self._blocked[host] += record.cause is Cause.BLOCKED

    def _lease(self, worker: str) -> ledger.Lease | None:
        found = ledger.offer(self._state, time.time(), worker, self._source.task_at)
        self._write(found, is_durable=False)
        lease = ledger.lease(self._state, found)
        if lease is not None:
            self._unheard[lease.ordinal, lease.slot, lease.attempt] = worker
        return lease

    def _write(
        self,
        found: list[events.Event],
        *,
        is_durable: bool = True,
        is_move: bool = True,
    ) -> None:
        if not found:
            return
        if is_move:
            self._moved_s, self._last = time.monotonic(), found[-1]
        self._journal.append(found, is_durable=is_durable)
        self._state = events.apply_all(self._state, found)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        """Returns when the state has changed, or in time to see overdue leases."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._changed.wait()
