"""A teacher that reads the page: a Sampler of texts, one an episode.

Its page script is data of the task (`task.oracle`), run by `Env.facts`; it speaks the
policy's own wire format under `agent.single`, so that demonstrations are rendered
exactly as the policy's prompts. With an error rate it is an *imperfect* teacher: in
that share of the episodes it names and clicks a wrong target where the page has one.
"""

import random
from collections.abc import Mapping
from typing import Any

from openwebrl_jax.agent import grammar
from openwebrl_jax.core.types import Env, Reply, SampleRequest, Task, ToolCall

_GIVE_UP = {
    "thought": "nothing to do",
    "call": {"name": "done", "arguments": {"response": ""}},
}


class Oracle:
    """Says the steps of the task's script one by one; see `make_oracle`."""

    def __init__(self, env: Env, script: str, choice: random.Random, errs: bool):
        self._env = env
        self._script = script
        self._choice = choice
        self._errs = errs  # True = the next step that can be wrong will be
        self._steps: list[Mapping[str, Any]] = []

    async def sample(self, request: SampleRequest) -> Reply:
        """The next step as a reply; the page is asked again when none is left."""
        if not self._steps:
            self._steps = list(await self._env.facts(self._script))
        step = self._steps.pop(0) if self._steps else _GIVE_UP
        if self._errs and step.get("others"):
            self._errs = False
            step = self._choice.choice(step["others"])
        call = ToolCall(**step["call"])
        return Reply(text=grammar.render(step["thought"], (call,)))

    async def release(self, episode_id: str) -> None:
        """Keeps nothing that could go."""


def make_oracle(env: Env, task: Task, error_rate: float, seed: int) -> Oracle:
    """The oracle of one episode; whether it errs depends on seed and task alone."""
    if not task.oracle:
        raise ValueError(
            f"task {task.id!r} brings no oracle; leave it out of the demos"
        )
    choice = random.Random(f"{seed}/{task.id}")
    errs = choice.random() < error_rate
    return Oracle(env, task.oracle["script"], choice, errs)
