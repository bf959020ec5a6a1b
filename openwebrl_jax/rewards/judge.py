"""Success by a judge: the one door to all protocols (`config.reward.judge.protocol`).

A protocol puts its questions to a vision-language model and makes named parts of the
answers, of which `judge` is the reward. A reply that cannot be read strictly is asked
for again with another seed, and then the slot is void; an endpoint that is down makes
it void at once. Silence is never a failure of the policy.

Deviations from the originals (OpenWebRL, Online-Mind2Web, WebVoyager, OpAgent): the
page after the last action is shown, verdicts are structured, errors never become
rewards, foreign words stand as JSON strings, and our own words ask.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Complete, Reward, Trajectory
from openwebrl_jax.rewards import (
    evidence,
    judge_opagent,
    judge_single,
    judge_webjudge,
)

SEED = 42  # of the first try of a question; each further one takes the next

T = TypeVar("T")
Protocol = Callable[[Trajectory, "Asking", Any], Awaitable[dict[str, float]]]

PROTOCOLS: dict[str, Protocol] = {
    "single": judge_single.single,
    "webjudge": judge_webjudge.webjudge,
    "webvoyager": judge_single.webvoyager,
    "opagent": judge_opagent.opagent,
}
_PROMPTS = {
    "single": judge_single.INSTRUCTIONS,
    "webjudge": judge_webjudge.INSTRUCTIONS,
    "webvoyager": (judge_single.WEBVOYAGER,),
    "opagent": judge_opagent.INSTRUCTIONS,
}


class Asking:
    """The questions of one judging; counts what could not be read.

    `intent` = the task's, which stays whole where a question must be cut.
    """

    def __init__(self, complete: Complete, intent: str, tries: int, seed: int = SEED):
        self._complete, self._intent = complete, intent
        self._tries, self._seed = tries, seed
        self.asked = self.unparseable = 0

    async def __call__(
        self, messages: list[dict[str, Any]], read: Callable[[str], T | None]
    ) -> T:
        """What `read` makes of a reply; the first that is not None."""
        for attempt in range(self._tries):
            self.asked += 1
            reply, messages = await self._reply(messages, self._seed + attempt)
            found = read(reply)
            if found is not None:
                return found
            self.unparseable += 1
        raise Failure(Cause.JUDGE_UNPARSEABLE, f"{self._tries} replies say nothing")

    async def _reply(
        self, messages: list[dict[str, Any]], seed: int
    ) -> tuple[str, list[dict[str, Any]]]:
        """The reply, and the question as it was short enough: nobody may get out of a
        verdict by being long."""
        while True:
            try:
                return await self._complete(messages, seed=seed), messages
            except Failure as failure:
                if failure.cause is not Cause.PROMPT_TOO_LONG:
                    raise
                shorter = evidence.cut(messages, self._intent)
                if shorter is None:
                    raise Failure(Cause.JUDGE_UNPARSEABLE, failure.detail) from failure
                messages = shorter

    @property
    def spent(self) -> dict[str, float]:
        """Replies so far, and those that said nothing."""
        spent = {"replies": self.asked, "unparseable": self.unparseable}
        return {name: float(count) for name, count in spent.items() if count}


async def judge(
    trajectory: Trajectory, complete: Complete, config: Any, seed: int = SEED
) -> Reward:
    """The judge's reward; void when it cannot be asked or cannot be understood."""
    asking = Asking(complete, trajectory.task.intent, config.tries, seed)
    parts, cause = {}, None
    try:
        parts = await PROTOCOLS[config.protocol](trajectory, asking, config)
    except Failure as failure:
        cause = failure.cause
    return Reward(
        value=parts.get("judge", 0.0),
        parts=parts,
        is_valid=cause is None,
        cause=cause,
        spent=asking.spent,
    )


def identity(config: Any) -> dict[str, Any]:
    """Which judge it is: results of two that differ here cannot be compared.

    `config` is config.reward.judge.
    """
    words = "\0".join((*_PROMPTS[config.protocol], config.prompt))
    return {
        "protocol": config.protocol,
        "model": config.workdir or (config.model if config.base_url else ""),
        "prompt": hashlib.sha256(words.encode()).hexdigest()[:16],
        "screenshots": config.screenshots,
        "relevance": config.relevance,
        "tries": config.tries,
    }
