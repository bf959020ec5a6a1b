"""The policy's voice: requests of many episodes in, a reply for each out.

In: SampleRequests, and weights with a version. Out: a Reply for each request, with the
log-probs of the distribution that it was drawn from and the version that drew it.
An episode keeps its slot over its turns, so that a turn costs what is new in it.
Weights change only while no reply is in the middle; what is wrong with one request is
found before it joins the others. Requests begin in the order in which they come.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.models import load as loads
from openwebrl_jax.models.sizes import Sizes
from openwebrl_jax.policy import batcher, features, generate, speaker, weights
from openwebrl_jax.policy import prompt as prompts
from openwebrl_jax.tokens import chat as chats
from openwebrl_jax.tokens import images


class Sampler:
    """Owns the thread that decodes; implements `types.Sampler`."""

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
        turns: contextlib.AbstractContextManager | None = None,
    ):
        """`config` is config.sample, `image_px` width and height of the viewport.

        Programs run inside of `turns`; None = whenever there is something to do.
        """
        _check(config)
        rows, cols = images.grid(spec, *image_px)
        patches = rows * cols
        pictures = config.slots * context_screenshots
        image_tokens = patches // spec.merge**2  # of each
        limit = config.context_tokens - config.response_tokens
        self.rule = chat.rule(config.temperature)
        self.lattice = generate.make_lattice(config)
        _check_memory(config, self.lattice, sizes, pictures * image_tokens, params)
        self._chat = chat
        self._spec = spec
        self._reader = prompts.Reader(
            chat,
            spec,
            prompt_tokens=limit,
            patches=patches,
            pictures=context_screenshots,
        )
        self._programs = generate.make_programs(
            graphdef,
            self.rule,
            self.lattice,
            spec=spec,
            end_id=chat.end_id,
            pictures=pictures,
            features=image_tokens,
        )
        store = features.FeatureStore(
            self._programs,
            places=pictures,
            patches=patches,
            merge=spec.merge,
            table_side=sizes.vision.table_side,
        )
        self._speaker = speaker.Speaker(
            params, version, self._programs, self.lattice, store, chat.end_id
        )
        self._told: dict[str, float] = {}
        self._batcher = batcher.Batcher(self._speaker, config.slots, turns)

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """One turn; a request that cannot be sampled fails alone."""
        start_s = time.monotonic()
        prompt = await asyncio.to_thread(self.read, request)
        read_s = time.monotonic() - start_s
        return self._reply(prompt, await self.speak(prompt), read_s)

    def read(self, request: types.SampleRequest) -> prompts.Prompt:
        """The request as ids and patches; a Failure says why it cannot be read."""
        return self._reader.read(request)

    async def speak(self, prompt: prompts.Prompt) -> speaker.Spoken:
        """Ids and log-probs drawn for a prompt that was read."""
        return await self._batcher.submit(prompt)

    async def release(self, episode_id: str) -> None:
        """The episode has ended: others may have its row."""
        self._speaker.release(episode_id)

    async def load(self, version: int, params: Any) -> None:
        """Swaps the weights once no reply is in the middle; they count from then on.

        The sampler keeps a copy: the caller may donate its own. Weights of another
        shape are a ValueError and change nothing.
        """
        await self._batcher.between(lambda: self._speaker.swap(version, params))

    async def load_leaves(self, version: int, leaves: Sequence[Any]) -> None:
        """`load` from the leaves of the parameter tree, in the tree's order."""
        tree = jax.tree.structure(self._speaker.like)
        await self.load(version, jax.tree.unflatten(tree, leaves))

    async def warm_up(self) -> None:
        """Compiles every program that requests can ask for."""
        values = self._spec.values // self._spec.temporal
        await self._batcher.between(lambda: self._speaker.warm_up(values))

    async def close(self) -> None:
        """Ends with the replies that were begun; who still waits gets a Failure."""
        await self._batcher.close()

    def compilations(self) -> int:
        """How many programs were compiled so far; a warm sampler adds none."""
        return self._programs.compilations()

    def stats(self) -> dict[str, float]:
        """What happened since the last call, and all compilations."""
        totals = dict(self._speaker.totals)  # at once, while the thread counts on
        news = {name: totals[name] - self._told.get(name, 0.0) for name in totals}
        self._told = totals
        return {**news, "compilations": float(self.compilations())}

    def _reply(
        self, prompt: prompts.Prompt, spoken: speaker.Spoken, read_s: float
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
                thought_ids=self._chat.thought(spoken.ids),
                closing_ids=self._chat.closing(spoken.ids),
                logprobs=spoken.logprobs,
                version=spoken.version,
                is_truncated=spoken.ids[-1] != self._chat.end_id,
                queued_s=read_s + spoken.queued_s,
            )
        except ValueError as error:
            raise Failure(Cause.SAMPLER_PROTOCOL, str(error)) from error


def make_sampler(
    folder: str | Path,
    config: Any,
    turns: contextlib.AbstractContextManager | None = None,
) -> Sampler:
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
        turns=turns,
    )


def _check(config: Any) -> None:
    limit = config.context_tokens - config.response_tokens
    if limit < 1 or max(config.prompt_buckets) < limit:
        raise ValueError(
            f"config.sample.prompt_buckets={tuple(config.prompt_buckets)} hold no "
            f"prompt of context_tokens - response_tokens = {limit}; add {limit}"
        )


def _check_memory(
    config: Any, lattice: generate.Lattice, sizes: Sizes, stored: int, params: Any
) -> None:
    """The rows of the cache fit beside the weights, those of a `decode` twice.

    So do the `stored` features, and the weights once more: new ones come beside old.
    """
    dtype = params["decoder"]["embed"].dtype
    row = lattice.row_bytes(sizes.decoder, dtype)
    values = stored * (1 + len(sizes.vision.taps)) * sizes.decoder.width
    free = weights.free_bytes(params) - values * jnp.dtype(dtype).itemsize
    rows = lattice.rows + lattice.widths[-1]
    if rows * row > free:
        fits = max(0, free // (2 * row))
        raise ValueError(
            f"config.sample.slots={config.slots} with context_tokens="
            f"{config.context_tokens} takes {rows * row / 1e9:.2f} GB of the device, "
            f"{max(0, free) / 1e9:.2f} GB are free beside the weights; set slots to at "
            f"most {fits}, or fewer context_tokens"
        )
