"""The sampler as an actor.

Weights come in as the leaves of the parameter tree with a version; the version counts
from the moment that `load` returns, and every reply says which one produced it.
"""

import asyncio
import contextlib
from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.learn import folder as folders
from openwebrl_jax.policy import sampler


class Serving:
    """Owns one Sampler. Methods are async: requests of many episodes are batched."""

    def __init__(self, turns: contextlib.AbstractContextManager | None = None):
        """`turns`: when the devices are its own; None = always."""
        self._turns = turns

    async def serve(self, config: Any, folder: str) -> types.SamplingRule:
        """Loads the checkpoint folder as version 0 and compiles the programs."""
        found = folders.find(folder)
        self._sampler = sampler.make_sampler(found, config, self._turns)
        await self._sampler.warm_up()
        return self._sampler.rule

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """One turn; raises `Failure` for a prompt that does not fit."""
        return await self._sampler.sample(request)

    async def release(self, episode_id: str) -> None:
        """Forgets what is kept for an episode."""
        await self._sampler.release(episode_id)

    async def load(self, version: int, leaves: list[Any]) -> int:
        """Swaps the weights between replies and acknowledges the version.

        The leaves are arrays in memory, or on the devices of this process.
        """
        await self._sampler.load_leaves(version, leaves)
        return version

    async def watch(self) -> None:
        """Never returns: who waits for it is told when this actor dies."""
        await asyncio.Event().wait()

    async def stats(self) -> dict[str, float]:
        """Counters since the last call: replies, tokens, busy seconds, compilations.

        And how many replicas these are of.
        """
        return {**self._sampler.stats(), "replicas": 1.0}
