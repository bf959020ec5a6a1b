"""One thread that runs batches: items come in one by one, results go back to each.

In: items from coroutines, and chores to do between two batches. Out: a result, or an
exception, for each. The thread does one thing at a time, so that what it touches needs
no lock, and the event loop stays live.
"""

import asyncio
import collections
import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from absl import logging

from openwebrl_jax.core.causes import Cause, Failure

# An idle thread waits while items come closer together than the gap, and no longer
# than the cap. A batch takes tens of milliseconds whatever its width: an item that
# comes just too late waits for longer than this, and costs a batch of its own.
_GAP_S = 0.004
_CAP_S = 0.02


@dataclass(frozen=True, slots=True)
class _Job:
    """An item or a chore, when it came, and where its result goes."""

    content: Any
    came_s: float = field(default_factory=time.monotonic)
    future: concurrent.futures.Future = field(default_factory=concurrent.futures.Future)


class Batcher:
    """Owns the thread and the queue in front of it.

    `run` maps at most `slots` items, and the seconds that each has waited, to their
    results in order. If it raises, each of its items gets the Failure
    SAMPLER_UNAVAILABLE, and the thread goes on.
    """

    def __init__(
        self, run: Callable[[Sequence[Any], Sequence[float]], Sequence[Any]], slots: int
    ):
        self._run = run
        self._slots = slots
        self._items: collections.deque[_Job] = collections.deque()
        self._chores: collections.deque[_Job] = collections.deque()
        self._is_closed = False
        self._changed = threading.Condition()  # guards the three above
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    async def submit(self, item: Any) -> Any:
        """The item's result. Whoever stops waiting for it disturbs no one else."""
        return await self._put(self._items, item)

    async def between(self, chore: Callable[[], Any]) -> Any:
        """Runs the chore in the thread, before the next batch; its result."""
        return await self._put(self._chores, chore)

    async def close(self) -> None:
        """Ends after the batch that runs; whoever still waits gets a Failure."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        await asyncio.to_thread(self._thread.join)

    async def _put(self, queue: collections.deque[_Job], content: Any) -> Any:
        job = _Job(content)
        with self._changed:
            if self._is_closed:
                raise Failure(Cause.SAMPLER_UNAVAILABLE, "the sampler is closed")
            queue.append(job)
            self._changed.notify_all()
        return await asyncio.wrap_future(job.future)

    # What follows runs in the thread.

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            task()
        for job in _started([*self._chores, *self._items]):
            job.future.set_exception(
                Failure(Cause.SAMPLER_UNAVAILABLE, "the sampler was closed")
            )

    def _next_task(self) -> Callable[[], None] | None:
        """Waits for a chore or a batch to run; None = closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready(1))
            self._gather()
            if self._is_closed:
                return None
            if self._chores:
                return functools.partial(_do, [self._chores.popleft()])
            count = min(self._slots, len(self._items))
            batch = [self._items.popleft() for _ in range(count)]
        return functools.partial(self._run_batch, batch)

    def _is_ready(self, items: int) -> bool:
        """True = so many items wait, or something goes before any batch."""
        return self._is_closed or bool(self._chores) or len(self._items) >= items

    def _gather(self) -> None:
        """Lets the queue grow while items come in quick succession."""
        end_s = time.monotonic() + _CAP_S
        is_growing = True
        while is_growing and not self._is_ready(self._slots):
            more = len(self._items) + 1
            is_growing = self._changed.wait_for(
                lambda more=more: self._is_ready(more),
                min(_GAP_S, end_s - time.monotonic()),
            )

    def _run_batch(self, batch: list[_Job]) -> None:
        batch = _started(batch)
        if not batch:
            return
        now_s = time.monotonic()
        try:
            results = self._run(
                [job.content for job in batch], [now_s - job.came_s for job in batch]
            )
        except Exception as error:  # goes to those who wait, as an executor does it
            logging.exception("a batch of %d failed", len(batch))
            for job in batch:
                job.future.set_exception(
                    Failure(Cause.SAMPLER_UNAVAILABLE, f"the batch failed: {error!r}")
                )
        else:
            for job, result in zip(batch, results, strict=True):
                job.future.set_result(result)


def _do(chores: list[_Job]) -> None:
    for job in _started(chores):
        try:
            job.future.set_result(job.content())
        except Exception as error:  # the chore's caller handles it
            job.future.set_exception(error)


def _started(jobs: list[_Job]) -> list[_Job]:
    """Those that nobody cancelled; from now on they cannot be."""
    return [job for job in jobs if job.future.set_running_or_notify_cancel()]
