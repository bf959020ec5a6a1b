"""The sampler as an actor, and the handle through which workers speak to it.

Weights come in as the leaves of the parameter tree with a version; the version counts
from the moment that `load` returns, and every reply says which one produced it.
"""

from typing import Any

import numpy as np
import ray
import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import sampler


@ray.remote
class Serving:
    """Owns one Sampler. Methods are async: requests of many episodes are batched."""

    async def start(self, config: Any, folder: str) -> types.SamplingRule:
        """Loads the checkpoint folder as version 0 and compiles the programs."""
        self._sampler = sampler.make_sampler(folder, config)
        await self._sampler.warm_up()
        return self._sampler.rule

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """One turn; raises `Failure` for a prompt that does not fit."""
        return await self._sampler.sample(request)

    async def release(self, episode_id: str) -> None:
        """Forgets what is kept for an episode."""
        await self._sampler.release(episode_id)

    async def load(self, version: int, leaves: list[np.ndarray]) -> int:
        """Swaps the weights between batches and acknowledges the version."""
        await self._sampler.load_leaves(version, leaves)
        return version

    async def stats(self) -> dict[str, float]:
        """Counters since the last call: replies, tokens, busy seconds, compilations."""
        return self._sampler.stats()


class RemoteSampler:
    """A `types.Sampler` that speaks through the serving actor."""

    def __init__(self, serving: Any, timeout_s: float):
        self._serving = serving
        self._timeout_s = timeout_s

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """Raises Failure(SAMPLER_UNAVAILABLE) when the actor is gone."""
        try:
            return await self._serving.sample.remote(request)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise Failure(Cause.SAMPLER_UNAVAILABLE, str(error)) from error

    async def release(self, episode_id: str) -> None:
        """Best effort: a lost actor has nothing to release."""
        self._serving.release.remote(episode_id)
