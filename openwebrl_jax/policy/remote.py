"""An OpenAI-compatible chat endpoint as a `Complete`: messages in, text out.

Bounded in time and in calls at once. Rate limits, server errors and lost connections
are tried again with growing pauses; what is left of trouble is a Failure with the
cause JUDGE_UNAVAILABLE, never a text. The key is read from the environment and shows
in no message.
"""

import asyncio
import os
from typing import Any

import openai

from openwebrl_jax.core.causes import Cause, Failure

RETRIES = 3  # after the first try; pauses grow from half a second to eight


class Remote:
    """A `Complete`; owns the HTTP client until `close`."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, concurrency: int):
        self._client = client
        self._model = model
        self._turnstile = asyncio.Semaphore(concurrency)

    async def __call__(self, messages: list[dict[str, Any]], *, seed: int) -> str:
        """The first choice's text; "" when the model declines to write any."""
        try:
            async with self._turnstile:
                completion: Any = await self._client.chat.completions.create(
                    model=self._model,
                    messages=messages,  # pyright: ignore[reportArgumentType]
                    seed=seed,
                )
        except (openai.OpenAIError, ValueError) as trouble:
            # Its text may hold the key or a page of HTML; the kind says enough.
            status = getattr(trouble, "status_code", "no answer")
            detail = f"{type(trouble).__name__} ({status})"
            raise Failure(Cause.JUDGE_UNAVAILABLE, detail) from None
        return _content(completion)

    async def close(self) -> None:
        """Ends the client's connections."""
        await self._client.close()


def _content(completion: Any) -> str:
    """The whole text of an answer; the client does not check what endpoints send."""
    try:
        choice = completion.choices[0]
        content = choice.message.content
        if getattr(choice, "finish_reason", None) == "length":
            return ""  # cut short: what it would have come to is not known
    except (AttributeError, LookupError, TypeError):
        content = False
    if content is not None and not isinstance(content, str):
        raise Failure(Cause.JUDGE_UNAVAILABLE, "the answer is no chat completion")
    return content or ""


def make_remote(config: Any) -> Remote:
    """The endpoint of `config.reward.judge`."""
    key = os.environ.get(config.api_key_env, "") if config.api_key_env else "none"
    if not key:
        raise ValueError(
            f"the variable {config.api_key_env} is not set; set it, or "
            "config.reward.judge.api_key_env='' for an endpoint without a key"
        )
    client = openai.AsyncOpenAI(
        base_url=config.base_url,
        api_key=key,
        timeout=config.timeout_s,
        max_retries=RETRIES,
    )
    return Remote(client, config.model, config.concurrency)
