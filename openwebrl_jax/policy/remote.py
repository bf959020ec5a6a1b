"""An OpenAI-compatible chat endpoint as a `Complete`: messages in, text out.

Bounded in time, in calls at once and in calls against an endpoint that is down. Rate
limits, server errors and lost connections are tried again with growing pauses; what
is left of trouble is a Failure with the cause JUDGE_UNAVAILABLE, never a text; a
question that the endpoint refuses to take is JUDGE_UNPARSEABLE and no outage, one that
is too long for it PROMPT_TOO_LONG. Tokens and money are counted. The key is read from
the environment and shows in no message.
"""

import asyncio
import datetime
import email.utils
import os
import random
import re
import time
from collections.abc import Callable
from typing import Any

import openai
from absl import logging

from openwebrl_jax.core.causes import Cause, Failure

RETRIES = 3  # after the first try of a call
PAUSE_S = (0.5, 8.0)  # the first pause, which doubles, and the longest
LONGEST_WAIT_S = 60.0  # an endpoint that asks for more is taken as down

_PASSING = (408, 409, 429)  # and all from 500 on: another try may be answered
_REFUSED = (400, 422)  # too long, or against its rules: it may be the question's fault
_TOO_LONG = re.compile(r"context.?length|maximum context|string_above_max|too.?long")
# What no other question would mend, though some endpoints call it a bad request.
_SETTING = re.compile(r"api.?key|billing|quota|model.?not.?found|unauthori[sz]ed")
_CUT = ("length", "content_filter", "tool_calls", "function_call")  # no whole text
_DENIED = (400, 401, 403, 404)  # it is there, and refuses us whatever we ask


class Breaker:
    """Keeps calls away from an endpoint that is down.

    It opens when `FAILURES` calls in a row have failed. After a rest one call is let
    through: if that is answered all are, if not the rest begins again.
    """

    FAILURES = 5

    def __init__(self, rest_s: float, clock: Callable[[], float] = time.monotonic):
        self._rest_s, self._clock = rest_s, clock
        self._failures = 0
        self._rested_s = 0.0  # when the next probe may be made
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """True = the endpoint counts as down."""
        return self._failures >= self.FAILURES

    @property
    def lets_through(self) -> bool:
        """True = a call may be made now."""
        is_rested = not self._is_probing and self._clock() >= self._rested_s
        return not self.is_open or is_rested

    def begin(self) -> bool:
        """A call is made: True = it is the probe. It raises where none may be."""
        if not self.lets_through:
            raise Failure(Cause.JUDGE_UNAVAILABLE, "the circuit is open")
        self._is_probing = self.is_open
        return self._is_probing

    def end(self, is_answered: bool | None, *, is_probe: bool) -> None:
        """The call is over; None = it was cancelled, which says nothing.

        Calls made before the circuit opened may end while the probe is under way.
        """
        if is_probe:
            self._is_probing = False
        if is_answered is not None:
            self._failures = 0 if is_answered else self._failures + 1
        if is_answered is False:
            self._rested_s = self._clock() + self._rest_s


class Remote:
    """A `Complete`; owns the HTTP client until `close`."""

    def __init__(self, client: openai.AsyncOpenAI, config: Any):
        """`config` is config.reward.judge."""
        self._client = client
        self._config = config
        self._turnstile = asyncio.Semaphore(config.concurrency)
        self._breaker = Breaker(config.rest_s)
        self._has_answered = False
        self._status: Any = None  # HTTP's, of the last call that failed
        self._spent = _nothing()

    async def __call__(self, messages: list[dict[str, Any]], *, seed: int) -> str:
        """The first choice's text; "" when the model declines or was cut short."""
        async with self._turnstile:
            is_probe = self._breaker.begin()
            is_answered, detail = None, ""
            try:
                completion = await self._persist(messages, seed)
                self._count(completion)
                text = _content(completion)
                is_answered = self._has_answered = True
                return text
            except Failure as failure:
                is_answered = failure.cause is not Cause.JUDGE_UNAVAILABLE
                self._spent["failures"] += 1
                detail = failure.detail
                raise
            finally:
                was_open = self._breaker.is_open
                self._breaker.end(is_answered, is_probe=is_probe)
                if self._breaker.is_open is not was_open:
                    self._tell(detail)

    async def recovered(self) -> None:
        """Waits while the endpoint counts as down and no probe is due."""
        while not self._breaker.lets_through:
            await asyncio.sleep(min(1.0, self._config.rest_s))

    def spent(self) -> dict[str, float]:
        """Since the last call: calls, retries, failures, tokens and money."""
        told, self._spent = self._spent, _nothing()
        return {name: value for name, value in told.items() if value}

    async def close(self) -> None:
        """Ends the client's connections."""
        await self._client.close()

    async def _persist(self, messages: list[dict[str, Any]], seed: int) -> Any:
        """Tries until there is an answer, it is hopeless, or the tries are used up."""
        for attempt in range(RETRIES + 1):
            self._spent["calls"] += 1
            self._spent["retries"] += attempt > 0
            try:
                # The client bounds each read; a stream that drips needs this one.
                async with asyncio.timeout(self._config.timeout_s):
                    return await self._client.chat.completions.create(
                        model=self._config.model,
                        messages=messages,  # pyright: ignore[reportArgumentType]
                        seed=seed,
                    )
            # Of a body nested without end the reader says RecursionError.
            except (
                openai.OpenAIError,
                ValueError,
                TimeoutError,
                RecursionError,
            ) as trouble:
                wait_s = _wait_s(trouble, attempt)
                if attempt == RETRIES or wait_s is None:
                    # Its text may hold the key or a page of HTML; the kind is enough.
                    status = getattr(trouble, "status_code", None)
                    detail = f"{type(trouble).__name__} ({status or 'no answer'})"
                    self._status = status
                    raise Failure(self._cause(trouble, status), detail) from None
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _cause(self, trouble: Exception, status: Any) -> Cause:
        """An outage, or a question that it refuses to take.

        Who has never answered may be set up wrongly: then nothing is the question's
        fault, and what was played waits until that is mended.
        """
        said = str(getattr(trouble, "body", None) or trouble).lower()
        if status == 413 or (status in _REFUSED and _TOO_LONG.search(said)):
            return Cause.PROMPT_TOO_LONG
        is_refused = status in _REFUSED and not _SETTING.search(said)
        if is_refused and self._has_answered:
            return Cause.JUDGE_UNPARSEABLE
        return Cause.JUDGE_UNAVAILABLE

    def _tell(self, detail: str) -> None:
        """A line when an outage begins, and one when it is over."""
        if not self._breaker.is_open:
            logging.warning("the judge answers again")
            return
        mend = ""
        if self._status in _DENIED:
            mend = "; look at config.reward.judge.api_key_env, base_url and model"
        logging.error("the judge is away, episodes wait for it: %s%s", detail, mend)

    def _count(self, completion: Any) -> None:
        usage = getattr(completion, "usage", None)
        for kind, price in (
            ("prompt", self._config.usd_per_million_in),
            ("completion", self._config.usd_per_million_out),
        ):
            tokens = getattr(usage, f"{kind}_tokens", None)
            if isinstance(tokens, int):
                self._spent[f"{kind}_tokens"] += tokens
                self._spent["usd"] += tokens * price / 1e6


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
        max_retries=0,  # they are made, counted and bounded here
    )
    return Remote(client, config)


def _wait_s(trouble: Exception, attempt: int) -> float | None:
    """Seconds until the next try, as the endpoint asks or doubling; None = hopeless."""
    status = getattr(trouble, "status_code", None)
    if status is not None and status not in _PASSING and status < 500:
        return None
    is_lost = isinstance(trouble, openai.APIConnectionError | TimeoutError)
    if status is None and not is_lost:
        return None  # no chat completion: it will be none next time
    asked_s = _asked_s(getattr(trouble, "response", None))
    if asked_s is not None:
        return asked_s if asked_s <= LONGEST_WAIT_S else None
    first_s, longest_s = PAUSE_S
    return min(first_s * 2**attempt, longest_s) * random.uniform(0.75, 1.25)


def _asked_s(response: Any) -> float | None:
    """What `retry-after` asks for; None = nothing that can be read."""
    headers = getattr(response, "headers", {})
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            asked_s = _seconds(headers[name]) * unit_s
        except (KeyError, TypeError, ValueError):
            continue
        if 0.0 <= asked_s < float("inf"):
            return asked_s
    return None


def _seconds(text: str) -> float:
    """Of a number, or until a date of HTTP's."""
    try:
        return float(text)
    except ValueError:
        until = email.utils.parsedate_to_datetime(text)
        return max((until - datetime.datetime.now(datetime.UTC)).total_seconds(), 0.0)


def _content(completion: Any) -> str:
    """The whole text of an answer; the client does not check what endpoints send."""
    try:
        choice = completion.choices[0]
        content = choice.message.content
        if getattr(choice, "finish_reason", None) in _CUT:
            return ""  # what it would have come to is not known
    except (AttributeError, LookupError, TypeError):
        content = False
    if content is not None and not isinstance(content, str):
        raise Failure(Cause.JUDGE_UNAVAILABLE, "the answer is no chat completion")
    return content or ""


def _nothing() -> dict[str, float]:
    names = ("calls", "retries", "failures", "prompt_tokens", "completion_tokens")
    return {**dict.fromkeys(names, 0), "usd": 0.0}
