"""The policy's voice: requests of many episodes become batches, batches become replies.

In: SampleRequests, and weights with a version. Out: a Reply for each request, with the
log-probs of the distribution that it was drawn from and the version that drew it.
Weights change only between batches; what is wrong with one request is found before it
joins a batch. Requests are batched in the order in which they come.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.models import load as loads
from openwebrl_jax.models.sizes import Sizes
from openwebrl_jax.policy import batcher, features, generate
from openwebrl_jax.policy import prompt as prompts
from openwebrl_jax.tokens import chat as chats
from openwebrl_jax.tokens import images

# What `stats` counts; rows / replies is the padding of batches.
_COUNTED: tuple[str, ...] = (
    "batches",
    "replies",
    "rows",
    "prompt_tokens",
    "reply_tokens",
    "busy_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spoken:
    """What the device drew for one request."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    queued_s: float


class Sampler:
    """Owns the weights and the thread that decodes; implements `types.Sampler`."""

    def __init__(
        self,
        graphdef: nnx.GraphDef,
        params: Any,
        version: int,
        *,
        chat: chats.Chat,
        spec: images.ImageSpec,
        sizes: Sizes,
        config: Any,
        image_px: tuple[int, int],
        context_screenshots: int,
    ):
        """`config` is config.sample, `image_px` width and height of the viewport."""
        _check(config)
        rows, cols = images.grid(spec, *image_px)
        places = config.slots * context_screenshots
        limit = config.context_tokens - config.response_tokens
        self.rule = chat.rule(config.temperature)
        self._chat = chat
        self._spec = spec
        self._row_buckets = row_buckets(config.slots)
        self._lengths = sorted({min(n, limit) for n in config.prompt_buckets})
        self._params, self._version = _own(params, params), version
        self._reader = prompts.Reader(
            chat,
            spec,
            prompt_tokens=limit,
            patches=rows * cols,
            pictures=context_screenshots,
        )
        self._programs = generate.make_programs(
            graphdef,
            self.rule,
            end_id=chat.end_id,
            response_tokens=config.response_tokens,
            context_tokens=config.context_tokens,
            places=places,
            features=rows * cols // spec.merge**2,
        )
        self._store = features.FeatureStore(
            self._programs,
            places=places,
            patches=rows * cols,
            merge=spec.merge,
            table_side=sizes.vision.table_side,
            device=_beside(self._params),
        )
        self._totals = dict.fromkeys(_COUNTED, 0.0)
        self._told: dict[str, float] = {}
        self._batcher = batcher.Batcher(self._speak, config.slots)

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """One turn; a request that cannot be sampled fails alone."""
        start_s = time.monotonic()
        prompt = await asyncio.to_thread(self._reader.read, request)
        read_s = time.monotonic() - start_s
        return self._reply(prompt, await self._batcher.submit(prompt), read_s)

    async def release(self, episode_id: str) -> None:
        """Nothing is kept for an episode; features go when they are not used."""

    async def load(self, version: int, params: Any) -> None:
        """Swaps the weights between two batches; they count when this returns.

        The sampler keeps a copy: the caller may donate its own. Weights of another
        shape are a ValueError and change nothing.
        """
        await self._batcher.between(lambda: self._swap(version, params))

    async def load_leaves(self, version: int, leaves: Sequence[np.ndarray]) -> None:
        """`load` from the leaves of the parameter tree, in the tree's order."""
        tree = jax.tree.structure(self._params)
        await self.load(version, jax.tree.unflatten(tree, leaves))

    async def warm_up(self) -> None:
        """Compiles every program that requests can ask for."""
        await self._batcher.between(self._compile)

    async def close(self) -> None:
        """Ends after the batch that runs; whoever still waits gets a Failure."""
        await self._batcher.close()

    def compilations(self) -> int:
        """How many programs were compiled so far; a warm sampler adds none."""
        return self._programs.compilations()

    def stats(self) -> dict[str, float]:
        """What happened since the last call, and all compilations."""
        totals = dict(self._totals)  # at once, while the thread counts on
        news = {name: totals[name] - self._told.get(name, 0.0) for name in totals}
        self._told = totals
        return {**news, "compilations": float(self.compilations())}

    def _reply(
        self, prompt: prompts.Prompt, spoken: _Spoken, read_s: float
    ) -> types.Reply:
        try:
            return types.Reply(
                text=self._chat.decode(spoken.ids),
                system_ids=prompt.system_ids,
                seen_ids=prompt.seen_ids,
                remembered_ids=self._chat.remembered(
                    prompt.remembered_user_ids, spoken.ids
                ),
                response_ids=spoken.ids,
                closing_ids=self._chat.closing(spoken.ids),
                logprobs=spoken.logprobs,
                version=spoken.version,
                is_truncated=spoken.ids[-1] != self._chat.end_id,
                queued_s=read_s + spoken.queued_s,
            )
        except ValueError as error:
            raise Failure(Cause.SAMPLER_PROTOCOL, str(error)) from error

    # What follows runs in the batcher's thread.

    def _speak(
        self, batch: Sequence[prompts.Prompt], queued_s: Sequence[float]
    ) -> list[_Spoken]:
        start_s = time.monotonic()
        rows = _bucket(len(batch), self._row_buckets)
        length = _bucket(max(len(p.ids_L) for p in batch), self._lengths)
        drawn = self._draw(batch, rows, length)
        replies = [
            _Spoken(
                ids=tuple(drawn.ids_BT[row, :count].tolist()),
                logprobs=tuple(drawn.logp_BT[row, :count].tolist()),
                version=self._version,
                queued_s=queued_s[row],
            )
            for row, count in enumerate(drawn.length_B[: len(batch)])
        ]
        prompt_tokens = sum(len(p.ids_L) for p in batch)
        seconds = time.monotonic() - start_s
        counted = (1, len(batch), rows, prompt_tokens, drawn.length_B.sum(), seconds)
        for name, count in zip(_COUNTED, counted, strict=True):
            self._totals[name] += float(count)
        return replies

    def _draw(
        self, batch: Sequence[prompts.Prompt], rows: int, length: int
    ) -> generate.Drawn:
        pictures = dict(picture for prompt in batch for picture in prompt.pictures)
        try:
            offsets = self._store.offsets(self._params, pictures)
            arrays = prompts.stack(
                batch, offsets, rows=rows, length=length, image_id=self._chat.image_id
            )
            arrays = jax.device_put(arrays, _beside(self._params))
            drawn = self._programs.generate(self._params, self._store.arrays, arrays)
            return jax.device_get(drawn)
        except Exception:
            self._store.forget()  # its arrays may be gone with the program that failed
            raise

    def _swap(self, version: int, params: Any) -> None:
        self._params = _own(params, self._params)
        self._version = version
        self._store.forget()

    def _compile(self) -> None:
        self._store.warm_up(self._params, self._spec.values)
        for rows in self._row_buckets:
            for length in self._lengths:
                self._draw((), rows, length)


def make_sampler(folder: str | Path, config: Any) -> Sampler:
    """The sampler of a whole config; the checkpoint folder's weights are version 0."""
    sizes, model = loads.load_model(folder, dtype=jnp.dtype(config.model.dtype))
    graphdef, params = nnx.split(model, nnx.Param)
    return Sampler(
        graphdef,
        params,
        0,
        chat=chats.load_chat(
            folder, history=config.agent.history, open_think=config.agent.open_think
        ),
        spec=images.load_spec(folder),
        sizes=sizes,
        config=config.sample,
        image_px=(config.web.width_px, config.web.height_px),
        context_screenshots=config.agent.context_screenshots,
    )


def row_buckets(slots: int) -> list[int]:
    """The widths of a batch: `slots`, its half and its quarter. 48 -> 12 24 48.

    Rows that fill a bucket are not prefilled, so narrower ones would save little.
    """
    return sorted({-(-slots // part) for part in (1, 2, 4)})


def _bucket(size: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `size`."""
    return next(bucket for bucket in buckets if bucket >= size)


def _check(config: Any) -> None:
    limit = config.context_tokens - config.response_tokens
    if limit < 1 or max(config.prompt_buckets) < limit:
        raise ValueError(
            f"config.sample.prompt_buckets={tuple(config.prompt_buckets)} hold no "
            f"prompt of context_tokens - response_tokens = {limit}; add {limit}"
        )


def _own(params: Any, like: Any) -> Any:
    """A copy of `params` in the dtypes and places of `like`."""

    def copy(path, new, old):
        if new.shape != old.shape:
            raise ValueError(
                f"weights{jax.tree_util.keystr(path)} have the shape {new.shape}, "
                f"the sampler's {old.shape}: they are of another model"
            )
        return jax.device_put(new.astype(old.dtype), old.sharding, may_alias=False)

    return jax.tree.map_with_path(copy, params, like)


def _beside(params: Any) -> jax.sharding.Sharding:
    """Where a program's inputs go: the weights' device, or each one of their mesh."""
    sharding = jax.tree.leaves(params)[0].sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return sharding
