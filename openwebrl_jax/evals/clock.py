"""A simulated clock: what a discrete-event simulation runs by.

A process is a generator. It yields the seconds that it waits, or the gate at which it
waits to be woken. What is due at one time happens in the order in which it was asked
for, so that one program has one outcome.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

Gate = deque  # of processes that wait for something
Process = Iterator[Any]


class Clock:
    """Owns the simulated time and the processes that wait for it."""

    def __init__(self):
        self.now_s = 0.0
        self._due: list[tuple[float, int, Process]] = []
        self._order = itertools.count()  # of what is due at one time

    def start(self, process: Process, after_s: float = 0.0) -> None:
        """The process goes on so much later."""
        due = self.now_s + after_s, next(self._order), process
        heapq.heappush(self._due, due)

    def wake(self, gate: Gate, most: int | None = None) -> None:
        """Who waits at the gate goes on now, the longest waiting first."""
        for _ in range(len(gate) if most is None else min(most, len(gate))):
            self.start(gate.popleft())

    def run(self, is_over: Callable[[], bool]) -> None:
        """Until it is over; if nothing is due before that, nothing ever will be."""
        while not is_over():
            if not self._due:
                raise RuntimeError("nothing is due: all processes wait for each other")
            self.now_s, _, process = heapq.heappop(self._due)
            wanted = next(process)
            if isinstance(wanted, deque):
                wanted.append(process)
            else:
                self.start(process, wanted)
