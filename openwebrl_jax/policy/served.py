"""A checkpoint of ours as a `Complete`, through the sampler that serves policies.

The first try of a question is greedy, further ones (other seeds) are sampled. What it
thinks is not part of its answer. How sure it is, is the probability of its answer.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Any

from openwebrl_jax.core import dialogue, types
from openwebrl_jax.core.causes import Cause, Failure

GREEDY_SEED = 42
_THINK_CLOSE = "</think>"


class Served:
    """A `Complete`. `sampler` serves the judge's own checkpoint."""

    def __init__(self, sampler: types.Sampler):
        self._sampler = sampler
        self._asked = 0

    async def __call__(self, messages: list[dict[str, Any]], *, seed: int) -> str:
        """The answer behind the thought; "" when it was cut or never came."""
        return answer(await self.reply(messages, seed=seed))

    async def reply(self, messages: list[dict[str, Any]], *, seed: int) -> types.Reply:
        """All of it. Raises Failure: PROMPT_TOO_LONG, else JUDGE_UNAVAILABLE."""
        segments, images = dialogue.segments(messages)
        self._asked += 1
        name = f"judge-{id(self)}-{self._asked}"
        request = types.SampleRequest(
            episode_id=name,
            turn=0,
            segments=segments,
            images=images,
            key=(seed, *_numbers(segments, images), 0),
            is_greedy=seed == GREEDY_SEED,
        )
        try:
            return await self._sampler.sample(request)
        except Failure as failure:
            is_long = failure.cause in (Cause.PROMPT_TOO_LONG, Cause.CONTEXT_FULL)
            cause = Cause.PROMPT_TOO_LONG if is_long else Cause.JUDGE_UNAVAILABLE
            raise Failure(cause, failure.detail) from failure
        finally:
            await self._sampler.release(name)

    def spent(self) -> dict[str, float]:
        """Nothing that has a price."""
        return {}

    async def recovered(self) -> None:
        """It is there as long as the run is."""

    async def close(self) -> None:
        """The sampler is closed by whom it belongs to."""


def answer(reply: types.Reply) -> str:
    """What stands behind the thought of a whole reply, "" = there is nothing."""
    _, border, rest = reply.text.partition(_THINK_CLOSE)
    return rest.strip() if border and not reply.is_truncated else ""


def confidence(reply: types.Reply) -> float:
    """The probability of the answer behind the thought: its fixed words are near
    certain, so that what is left is how sure the judge is of its verdict."""
    return math.exp(sum(reply.logprobs[reply.thought_ids :]))


def _numbers(segments: tuple, images: Mapping[str, bytes]) -> tuple[int, int]:
    """Two numbers of the question, so that equal ones are answered alike."""
    words = "\0".join(segment.text for segment in segments).encode("utf-8", "replace")
    return zlib.crc32(words) >> 1, zlib.crc32("".join(images).encode()) >> 1
