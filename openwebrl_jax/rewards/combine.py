"""A trajectory -> its Reward: named parts, weighed by `config.reward.weights`.

    outcome   success: by the task's own checks, else by the judge
    judge     success by the judge, whatever checks there are
    checker   success by the task's checks; nothing where it brings none
    process   penalties of single steps by the decision tree, meant over turns
    format    share of turns in the exact wire format

A part of weight 0 is told and kept and counts for nothing. `checker` is always told
beside `judge`, to show how far they part. Validity comes first: an ending that the
policy did not cause is void. Of the scored endings only DONE and PAGE_DONE can be a
success; the others are worth 0 (a FORMAT_ERROR `config.reward.format_error`) and no
judge is asked.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Complete, Reward, Task, Trajectory
from openwebrl_jax.rewards import decision_tree, judge, outcome, webarena

RewardOf = Callable[[Trajectory], Awaitable[Reward]]
Part = Callable[[Trajectory, Any, Complete | None], Awaitable[Reward | None]]

_ENDED = (Cause.DONE, Cause.PAGE_DONE)
_SAME = {"outcome": "judge", "judge": "outcome"}  # one question, without checks
SHOWN_FAULTS = 10


def make_reward(config: Any, complete: Complete | None) -> RewardOf:
    """The reward of `config.reward`; `complete` = the judge's endpoint, None = none."""
    unknown = sorted(set(config.weights) - set(PARTS))
    if unknown:
        raise ValueError(
            f"config.reward.weights names {unknown}; wanted some of {sorted(PARTS)}"
        )

    async def reward(trajectory: Trajectory) -> Reward:
        if not trajectory.cause.is_scored:
            return Reward(value=0.0, parts={}, is_valid=False)
        if trajectory.cause is Cause.FORMAT_ERROR:
            value = config.format_error
            return Reward(value=value, parts={"format_error": value}, is_valid=True)
        return await _weighed(trajectory, config, complete)

    return reward


def is_open(trajectory: Trajectory) -> bool:
    """True = success is a question for the judge; else the ending answers it."""
    is_silent = trajectory.cause is Cause.DONE and not trajectory.answer
    return trajectory.cause in _ENDED and not is_silent


async def _weighed(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """The sum of the weighted parts; void as soon as one that counts is."""
    value, parts, spent = 0.0, {}, {}
    weights = dict(config.weights)
    if "judge" in weights:
        weights.setdefault("checker", 0.0)
    told: dict[str, Reward | None] = {}
    for name, weight in weights.items():
        try:
            if (same := _SAME.get(name)) in told and not trajectory.task.checks:
                part = told[same]
            else:
                part = await PARTS[name](trajectory, config, complete)
                spent |= part.spent if part else {}
        except Failure as failure:
            part = _void(failure.cause)
        told[name] = part
        if part is None:
            continue
        if part.is_valid:
            value += weight * part.value
            parts |= {**part.parts, name: part.value}
        elif weight:
            return dataclasses.replace(part, parts=parts, spent=spent)
    return Reward(value=value, parts=parts, is_valid=True, spent=spent)


async def _outcome(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """Success: by the task's own checks, else by the judge."""
    if trajectory.task.checks:
        return await _checker(trajectory, config, complete) or _worth(0.0)
    return await _judge(trajectory, config, complete)


async def _judge(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """Success by the judge."""
    if not is_open(trajectory):
        return _worth(0.0)
    if complete is None:
        raise ValueError(
            f"task {trajectory.task.id!r} brings no checks and there is no judge; set "
            "config.reward.judge.base_url or give the task `checks`"
        )
    return await judge.judge(trajectory, complete, config.judge)


async def _checker(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward | None:
    """Success by the task's checks."""
    if not trajectory.task.checks:
        return None
    if trajectory.cause not in _ENDED:
        return _worth(0.0)
    value = await outcome.check(trajectory.task, trajectory, complete)
    if value is not None and value < 0:
        return _void(Cause.BLOCKED)
    return _worth(value or 0.0)


async def _process(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """Mean over turns of the scaled penalties: 0 = no step was for nothing."""
    intent, tries = trajectory.task.intent, config.judge.tries
    asking = judge.Asking(complete, intent, tries) if complete else None
    values = await decision_tree.penalties(trajectory, asking)
    scaled = decision_tree.combine(values)
    mean = sum(scaled) / len(scaled) if scaled else 0.0
    spent = asking.spent if asking else {}
    return dataclasses.replace(
        _worth(mean),
        parts=decision_tree.summary(values),
        spent={f"process_{name}": count for name, count in spent.items()},
    )


async def _format(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """Share of turns whose reply is in the exact wire format."""
    exact = [not it.parse_error and not it.leniencies for it in trajectory.turns]
    return _worth(sum(exact) / len(exact) if exact else 0.0)


PARTS: dict[str, Part] = {
    "outcome": _outcome,
    "judge": _judge,
    "checker": _checker,
    "process": _process,
    "format": _format,
}


def check_tasks(tasks: Iterable[Task], has_judge: bool, has_grader: bool) -> None:
    """Refuses tasks that could not be scored, before any of them is played.

    `has_grader` = the judge is an endpoint, which can also grade a reference.
    """
    found = [
        f"task {task.id!r}: {fault}"
        for task in tasks
        for fault in _faults(task, has_judge, has_grader)
    ]
    if found:
        more = len(found) - SHOWN_FAULTS
        shown = found[:SHOWN_FAULTS] + [f"and {more} more"] * (more > 0)
        raise ValueError("; ".join(shown))


def _faults(task: Task, has_judge: bool, has_grader: bool) -> Iterator[str]:
    if not task.checks and not has_judge:
        yield (
            "no checks, and there is no judge; give it `checks` or set "
            "config.reward.judge.base_url"
        )
    for check in task.checks:
        found = list(outcome.faults(check, task))
        yield from found
        if not found and not has_grader and webarena.wants_grade(check):
            yield (
                "a reference that a model must grade (fuzzy_match), and no endpoint "
                "to ask; set config.reward.judge.base_url, without a judge of our own"
            )


def _worth(value: float) -> Reward:
    return Reward(value=value, parts={}, is_valid=True)


def _void(cause: Cause) -> Reward:
    return Reward(value=0.0, parts={}, is_valid=False, cause=cause)
