"""The ledger as an actor: the one place where leases, results and groups meet.

Each call decides (rollout.ledger), writes the events down, applies them, answers. A
worker's `lease` and the learner's `take` wait for the state to change; nothing else
blocks.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from openwebrl_jax.core import types
from openwebrl_jax.rollout import books, build, events, ledger
from openwebrl_jax.runtime import journal

JOURNAL = "ledger.jsonl"
_LOOK_AGAIN_S = 2.0  # at the longest, leases that ran out are seen


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
    )


@ray.remote
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
        state = ledger.new_state(limits(config))
        if snapshot is not None:
            state = books.restore(snapshot)
            state = dataclasses.replace(state, limits=limits(config))
        past = journal.read(path)
        self._state = events.apply_all(state, past[state.applied :])
        self._journal = journal.Journal(path)
        self._changed = asyncio.Event()
        self._lost: set[str] = set()
        self._is_over = False
        self._news: list[types.Slot] = []
        if past:
            self._write(ledger.rollback(self._state, iteration))
            self._write(ledger.restart(self._state))

    async def lease(self, worker: str) -> ledger.Lease | None:
        """The next slot to play, waiting for one; None = there is no more for you."""
        while not self._is_over and worker not in self._lost:
            found = ledger.offer(self._state, time.time(), worker, self._source.task_at)
            self._write(found, is_durable=False)
            if lease := ledger.lease(self._state, found):
                return lease
            await self._change()
        return None

    async def finish(
        self, ordinal: int, slot: int, attempt: int, record: types.Slot
    ) -> None:
        """Enters a result; its trajectory must be durable by now."""
        self._news.append(record)
        now_s = time.time()
        found = ledger.finish(self._state, now_s, ordinal, slot, attempt, record)
        self._write(found)

    async def take(self, count: int) -> tuple[types.Group, ...]:
        """The `count` oldest kept groups, waiting; may raise StarvationError."""
        while not (found := ledger.take(self._state, count)):
            # Workers that hang ask for nothing, so their leases end here.
            self._write(ledger.expire(self._state, time.time()), is_durable=False)
            await self._change()
        self._write(found)
        return books.groups(self._state, found[0]["ordinals"])

    async def trained(
        self, iteration: int, ordinals: Sequence[int], version: int
    ) -> bytes:
        """The learner made a version and publishes it; answers with a snapshot."""
        found = ledger.trained(self._state, iteration, ordinals, version)
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
        self._write(ledger.worker_lost(self._state, worker))

    async def close(self) -> None:
        """The run is over: no worker gets another lease."""
        self._is_over = True
        self._changed.set()

    async def news(self) -> tuple[dict[str, dict[str, int]], list[types.Slot]]:
        """Both laws' terms (checked), and the results since the last call."""
        books.check(self._state)
        news, self._news = self._news, []
        return books.counts(self._state), news

    def _write(self, found: list[events.Event], *, is_durable: bool = True) -> None:
        if not found:
            return
        self._journal.append(found, is_durable=is_durable)
        self._state = events.apply_all(self._state, found)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        """Returns when the state has changed, or in time to see overdue leases."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), _LOOK_AGAIN_S)
