"""The trained policy as an agent: one reply a turn, then its calls.

Pure functions, memory in and memory out, in the order of a turn:

    memory = first(task, config.agent)
    while ...:
        ask = prompt(memory, observation, config.agent)      # to the sampler
        memory = read(memory, observation, ask, reply, config.agent)
        if cause := ending(memory, config.agent): break
        memory = feel(memory, step.feedback)                 # if calls were run
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openwebrl_jax.agent import grammar, history, prompts
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import (
    Feedback,
    Observation,
    Reply,
    Segment,
    Task,
    Turn,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the agent knows of its episode so far. Made and eaten here.

    `system.ids` are empty until a sampler of ours has spoken. Example: after one turn
    Memory(intent="click OK", system=Segment(...), turns=(Turn(...),)).
    """

    intent: str
    system: Segment
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The whole prompt of a turn. Made by `prompt`, eaten by `rollout.episode`.

    The last of `segments` is this turn's user segment; `images` holds the PNG of each
    image that they name.
    """

    segments: tuple[Segment, ...]
    images: Mapping[str, bytes]


def first(task: Task, config: Any, more_tools: Sequence[dict[str, Any]] = ()) -> Memory:
    """The memory before the first turn; `more_tools` are offered beside the thirteen.

    The task's intent is filled in by then.
    """
    text = prompts.system_text(config.prompt, more_tools)
    system = Segment(role="system", text=text)
    return Memory(intent=task.intent, system=system)


def prompt(memory: Memory, observation: Observation, config: Any) -> Ask:
    """What the policy reads now."""
    past = history.segments(memory.turns, config.context_screenshots, config.history)
    now = _user_segment(memory, observation, config.prompt)
    shown = [turn.observation for turn in memory.turns] + [observation]
    images = {
        history.image_hash(seen.screenshot): seen.screenshot
        for seen in shown[-config.context_screenshots :]
    }
    return Ask(segments=(memory.system, *past, now), images=images)


def read(
    memory: Memory,
    observation: Observation,
    ask: Ask,
    reply: Reply,
    config: Any,
) -> Memory:
    """Adds the turn that the reply makes; its calls are `memory.turns[-1].calls`."""
    parsed = grammar.parse(reply.text, config.open_think, config.lenient)
    turn = Turn(
        observation=observation,
        segments=ask.segments[-1:],
        reply_text=reply.text,
        thought=parsed.thought,
        calls=parsed.calls,
        parse_error=parsed.complaint,
        leniencies=parsed.leniencies,
        seen_ids=reply.seen_ids,
        remembered_ids=reply.remembered_ids,
        response_ids=reply.response_ids,
        closing_ids=reply.closing_ids,
        logprobs=reply.logprobs,
        version=reply.version,
    )
    system = dataclasses.replace(memory.system, ids=reply.system_ids)
    return dataclasses.replace(memory, system=system, turns=(*memory.turns, turn))


def feel(memory: Memory, feedback: Sequence[Feedback]) -> Memory:
    """Adds what the newest turn's calls did."""
    turn = dataclasses.replace(memory.turns[-1], feedback=tuple(feedback))
    return dataclasses.replace(memory, turns=(*memory.turns[:-1], turn))


def ending(memory: Memory, config: Any) -> Cause | None:
    """FORMAT_ERROR when the newest replies could not be read, so many in a row."""
    newest = memory.turns[-config.parse_failures :]
    if len(newest) < config.parse_failures:
        return None
    return Cause.FORMAT_ERROR if all(turn.parse_error for turn in newest) else None


def _user_segment(memory: Memory, observation: Observation, style: str) -> Segment:
    if memory.turns:
        last = memory.turns[-1]
        text, remembered = prompts.later_text(
            style, last.feedback, last.parse_error, observation
        )
    else:
        text, remembered = prompts.first_text(style, memory.intent, observation)
    return Segment(
        role="user",
        text=text,
        image=history.image_hash(observation.screenshot),
        remembered_text=remembered,
    )
