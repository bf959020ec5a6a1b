"""Several serving actors as one: who speaks for which episode, and who has the weights.

`Replicas` has the methods of Serving but for those of an episode: workers ask it whom
the group of an episode belongs to and speak with that replica itself. It starts the
replicas, and another one in the place of each that dies, which gets the newest weights
before anybody is sent to it. The weights pass by: they lie in the object store.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.runtime import cluster
from openwebrl_jax.runtime.deaths import Deaths
from openwebrl_jax.runtime.serving import Serving

_STATS_S = 3.0  # the driver waits a little longer
_LOAD_S = 900.0  # that a version may take: more, and the replica hangs

# Also the learner's death, with which the newest weights go: all begins anew then.
_LOSSES = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError)


def make(config: Any) -> Any:
    """The actor that serves, or the one that stands for all that do."""
    count = config.cluster.serving_replicas
    if count == 1:
        return cluster.actor(Serving, config, "serving")
    cluster.check_replicas(config)
    # No environment of its own: the replicas would inherit it.
    kind = ray.remote(Replicas).options(num_cpus=0)
    return kind.remote(count, cluster.options(config, "serving"))


def port(config: Any, serving: Any) -> Any:
    """The same as the learner calls it."""
    return (Port if config.cluster.serving_replicas > 1 else cluster.Near)(serving)


def choose(group: Sequence[int], alive: Sequence[int]) -> int:
    """Whose the group is of those that are alive (rendezvous hashing).

    All its episodes share a prefix, so they share a replica. When one dies its groups
    alone go elsewhere, and they come back to its successor.
    """

    def weight(index: int) -> bytes:
        return hashlib.sha256(f"{tuple(map(int, group))} {index}".encode()).digest()

    return max(alive, key=weight)


class Port(cluster.Near):
    """`Replicas` as the learner's process calls it."""

    def load(self, version: int, leaves: list[Any]) -> int:
        """Puts the leaves into the object store once, for all replicas."""
        return ray.get(self._handle.load.remote(version, [ray.put(leaves)]))


class Replicas:
    """Owns the serving actors, one in each of `count` places."""

    def __init__(self, count: int, options: dict[str, Any]):
        """`options` are Ray's, of each serving actor."""
        self._options = options
        self._deaths = Deaths(count)
        self._lives: list[asyncio.Task] = []
        self._changed = asyncio.Event()
        self._newest: tuple[int, Any] = (0, None)  # version, reference to its leaves
        self._published = 0  # how many came
        # Of each place: who speaks there, None = nobody yet or for now; the last that
        # was published to it; and its compilations that were told.
        self._speaking: list[Any] = [None] * count
        self._has = [0] * count
        self._compiled = [0.0] * count
        self._compilations = 0.0

    async def serve(self, config: Any, folder: str) -> types.SamplingRule:
        """See Serving; returns when all replicas can speak."""
        self._origin = config, folder
        for place in range(len(self._speaking)):
            life = asyncio.create_task(self._keep(place))
            life.add_done_callback(lambda _: self._tell())
            self._lives.append(life)
        await self._until(lambda: None not in self._speaking)
        return self._rule

    async def load(self, version: int, leaves: list[Any]) -> int:
        """Acknowledges the version once every replica speaks with it.

        The successor of one that dies meanwhile is waited for too. `leaves` holds one
        reference to them all.
        """
        self._newest, self._published = (version, leaves[0]), self._published + 1
        self._tell()
        await self._until(lambda: min(self._has) == self._published)
        self._deaths.forget()
        return version

    async def route(self, group: Sequence[int]) -> Any:
        """The replica for an episode of that group; waits while there is none."""
        await self._until(lambda: any(each is not None for each in self._speaking))
        alive = [n for n, each in enumerate(self._speaking) if each is not None]
        return self._speaking[choose(group, alive)]

    async def watch(self) -> None:
        """Never returns: who waits for it is told of what no successor mends."""
        await self._until(lambda: False)

    async def stats(self) -> dict[str, float]:
        """See Serving; sums over the replicas that answer in time."""
        total: Counter[str] = Counter()
        places = range(len(self._speaking))
        for told in await asyncio.gather(*(self._stats_of(n) for n in places)):
            total.update(told)
        return {**total, "compilations": self._compilations} if total else {}

    async def _stats_of(self, place: int) -> dict[str, float]:
        replica = self._speaking[place]
        if replica is None:
            return {}
        try:
            async with asyncio.timeout(_STATS_S):
                told = await replica.stats.remote()
        except (TimeoutError, ray.exceptions.RayError):
            return {}
        if replica is self._speaking[place]:
            now, before = told["compilations"], self._compiled[place]
            self._compiled[place] = now
            self._compilations += now - before
        return told

    async def _keep(self, place: int) -> None:
        """One serving actor after the other; raises what is no death."""
        while True:
            replica = ray.remote(Serving).options(**self._options).remote()
            try:
                self._rule = await replica.serve.remote(*self._origin)
                # A new one's programs are no news.
                self._compiled[place] = (await replica.stats.remote())["compilations"]
                await self._attend(place, replica)
            except TimeoutError:
                pass  # it hangs: all would wait for the version that it never speaks
            except ray.exceptions.RayError as error:
                if not isinstance(error, _LOSSES):
                    raise getattr(error, "cause", error) from None
            self._speaking[place], self._has[place] = None, 0
            self._tell()
            cluster.kill(replica)  # it may only be out of reach
            self._deaths.mourn("a serving replica died; another one takes its place")

    async def _attend(self, place: int, replica: Any) -> None:
        """Brings it whatever is published, until it dies."""
        death = asyncio.ensure_future(replica.watch.remote())
        death.add_done_callback(lambda _: self._tell())
        try:
            while not death.done():
                if self._has[place] < self._published:
                    number = self._published
                    async with asyncio.timeout(_LOAD_S):
                        await replica.load.remote(*self._newest)
                    self._has[place] = number
                self._speaking[place] = replica
                self._tell()
                await self._until(
                    lambda: death.done() or self._has[place] < self._published
                )
            death.result()
        finally:
            death.cancel()
            await asyncio.gather(death, return_exceptions=True)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Waits; raises what has ended a life."""
        while not is_so():
            ended = [life.exception() for life in self._lives if life.done()]
            for error in filter(None, ended):
                raise error
            await self._changed.wait()

    def _tell(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()
