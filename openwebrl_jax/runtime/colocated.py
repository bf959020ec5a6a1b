"""The learner and serving in one process, where they share its devices.

The learner works in a thread of its own, serving on the event loop. They take turns: a
micro-batch of an update, then a step of the sampler, while both have work. A new
version's weights are copied on the devices and pass through no store.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.runtime.learner import Learner, Told
from openwebrl_jax.runtime.serving import Serving

_END = object()  # of what the learner tells


class Turns:
    """A lock that is given in the order in which it was asked for.

    An ordinary one would go back, as a rule, to the thread that just let go of it.
    """

    def __init__(self):
        self._changed = threading.Condition()  # guards the two numbers
        self._asked = self._now = 0

    def __enter__(self) -> None:
        with self._changed:
            mine, self._asked = self._asked, self._asked + 1
            self._changed.wait_for(lambda: self._now == mine)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._now += 1
            self._changed.notify_all()


class Colocated:
    """An actor with the methods of Learner and of Serving."""

    def __init__(self):
        # The learner waits for other actors in its own thread; no loop is blocked.
        os.environ["RAY_WARN_BLOCKING_GET_INSIDE_ASYNC"] = "0"
        turns = Turns()
        self._learner, self._serving = Learner(turns), Serving(turns)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "learner")

    async def start(self, *arguments: Any) -> tuple[int, bytes | None]:
        """See Learner."""
        return await self._do(self._learner.start, *arguments)

    async def connect(self, queue: Any, serving: Any) -> None:
        """See Learner; `serving` is this actor, which needs no messenger."""
        port = _Port(self._serving, asyncio.get_running_loop())
        await self._do(self._learner.connect, queue, port)

    async def tell(self, stage: str) -> AsyncIterator[Told | None]:
        """See Learner."""
        steps = self._learner.tell(stage)
        while (told := await self._do(next, steps, _END)) is not _END:
            yield told

    async def export(self) -> str:
        """See Learner."""
        return await self._do(self._learner.export)

    async def serve(self, config: Any, folder: str) -> types.SamplingRule:
        """See Serving."""
        return await self._serving.serve(config, folder)

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """See Serving."""
        return await self._serving.sample(request)

    async def release(self, episode_id: str) -> None:
        """See Serving."""
        await self._serving.release(episode_id)

    async def watch(self) -> None:
        """See Serving."""
        await self._serving.watch()

    async def stats(self) -> dict[str, float]:
        """See Serving."""
        return await self._serving.stats()

    async def _do(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls in the learner's thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)


class _Port:
    """Coroutines of one thread's loop, as methods that another thread waits for."""

    def __init__(self, thing: Any, loop: asyncio.AbstractEventLoop):
        self._thing, self._loop = thing, loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._thing, name)
        return lambda *arguments: asyncio.run_coroutine_threadsafe(
            method(*arguments), self._loop
        ).result()
