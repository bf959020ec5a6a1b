"""One thread that works at many items at once: they come and go one by one.

In: items from coroutines, and chores to do while nothing is in the middle. Out: a
result, or an exception, for each. The thread does one thing at a time, so that what it
touches needs no lock, and the event loop stays live.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from absl import logging

from openwebrl_jax.core.causes import Cause, Failure

# An idle thread waits while items come closer together than the gap, and no longer
# than the cap: what comes together shares its first steps.
_GAP_S = 0.004
_CAP_S = 0.02


class Work(Protocol):
    """What the thread works at; nobody else calls these."""

    def add(self, item: Any, came_s: float, finish: Callable[[Any], None]) -> None:
        """Takes an item, which came at that time; `finish` takes its result."""
        ...

    def step(self) -> None:
        """A short piece of work on the items inside; some may be finished by it."""
        ...

    def drop(self) -> None:
        """Forgets all items inside: a step has failed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """An item or a chore, when it came, and where its result goes."""

    content: Any
    came_s: float = field(default_factory=time.monotonic)
    future: concurrent.futures.Future = field(default_factory=concurrent.futures.Future)


class Batcher:
    """Owns the thread and the queue in front of it.

    At most `slots` items are inside the work at once, in the order in which they came.
    If a step raises, each item inside gets the Failure SAMPLER_UNAVAILABLE, and the
    thread goes on.
    """

    def __init__(
        self,
        work: Work,
        slots: int,
        turns: contextlib.AbstractContextManager | None = None,
    ):
        """Each step and chore is done inside of `turns`; None = at once."""
        self._of = work
        self._turns = turns or contextlib.nullcontext()
        self._slots = slots
        self._items: collections.deque[_Job] = collections.deque()
        self._chores: collections.deque[_Job] = collections.deque()
        self._is_closed = False
        self._changed = threading.Condition()  # guards the three above
        self._inside: list[_Job] = []  # the thread's own
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    async def submit(self, item: Any) -> Any:
        """The item's result. Whoever stops waiting for it disturbs no one else."""
        return await self._put(self._items, item)

    async def between(self, chore: Callable[[], Any]) -> Any:
        """Runs the chore in the thread once nothing is inside; its result.

        No item is taken in before that.
        """
        return await self._put(self._chores, chore)

    async def close(self) -> None:
        """Ends with what is inside; whoever still waits gets a Failure."""
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

    def _run(self) -> None:
        while self._inside or not self._is_over():
            if chore := self._next_chore():
                with self._turns:
                    _do(chore)
            else:
                self._step(self._next_items())
        for job in _started([*self._chores, *self._items]):
            job.future.set_exception(
                Failure(Cause.SAMPLER_UNAVAILABLE, "the sampler was closed")
            )

    def _is_over(self) -> bool:
        """Waits, while nothing is inside, for something to do; True = closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready(1))
            end_s = time.monotonic() + _CAP_S
            is_growing = True
            while is_growing and not self._is_ready(self._slots):
                more = len(self._items) + 1
                is_growing = self._changed.wait_for(
                    lambda more=more: self._is_ready(more),
                    min(_GAP_S, end_s - time.monotonic()),
                )
            return self._is_closed

    def _is_ready(self, items: int) -> bool:
        """True = so many items wait, or something goes before any of them."""
        return self._is_closed or bool(self._chores) or len(self._items) >= items

    def _next_chore(self) -> _Job | None:
        """None = there is none, or it has to wait for what is inside."""
        with self._changed:
            is_free = not self._inside and not self._is_closed
            return self._chores.popleft() if self._chores and is_free else None

    def _next_items(self) -> list[_Job]:
        with self._changed:
            if self._is_closed or self._chores:
                return []
            count = min(self._slots - len(self._inside), len(self._items))
            return [self._items.popleft() for _ in range(count)]

    def _step(self, new: list[_Job]) -> None:
        new = _started(new)
        self._inside += new
        if not self._inside:
            return
        try:
            with self._turns:
                for job in new:
                    self._of.add(job.content, job.came_s, job.future.set_result)
                self._of.step()
        except Exception as error:  # goes to those who wait, as an executor does it
            self._fail(error)
        self._inside = [job for job in self._inside if not job.future.done()]

    def _fail(self, error: Exception) -> None:
        lost = [job for job in self._inside if not job.future.done()]
        logging.exception("a step with %d items failed", len(lost))
        self._of.drop()
        for job in lost:
            job.future.set_exception(
                Failure(Cause.SAMPLER_UNAVAILABLE, f"a step failed: {error!r}")
            )


def _do(chore: _Job) -> None:
    for job in _started([chore]):
        try:
            job.future.set_result(job.content())
        except Exception as error:  # the chore's caller handles it
            job.future.set_exception(error)


def _started(jobs: list[_Job]) -> list[_Job]:
    """Those that nobody cancelled; from now on they cannot be."""
    return [job for job in jobs if job.future.set_running_or_notify_cancel()]
