"""A trajectory -> its Reward: named parts, weighed by `config.reward.weights`.

Validity comes first: an ending that the policy did not cause is void. Of the scored
endings only DONE and PAGE_DONE can be a success; the others are worth 0 (a
FORMAT_ERROR `config.reward.format_error`) and no judge is asked.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import Complete, Reward, Trajectory
from openwebrl_jax.rewards import judge, outcome

RewardOf = Callable[[Trajectory], Awaitable[Reward]]
Part = Callable[[Trajectory, Any, Complete | None], Awaitable[Reward]]

_ENDED = (Cause.DONE, Cause.PAGE_DONE)


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
        if trajectory.cause not in _ENDED:
            return Reward(value=0.0, parts={}, is_valid=True)
        return await _weighed(trajectory, config, complete)

    return reward


async def _weighed(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """The sum of the weighted parts; void as soon as one of them is."""
    value, parts = 0.0, {}
    for name, weight in config.weights.items():
        part = await PARTS[name](trajectory, config, complete)
        if not part.is_valid:
            return part
        value += weight * part.value
        parts[name] = part.value
    return Reward(value=value, parts=parts, is_valid=True)


async def _outcome(
    trajectory: Trajectory, config: Any, complete: Complete | None
) -> Reward:
    """Success: by the task's own checks, else by the judge."""
    value = outcome.check(trajectory.task, trajectory)
    if value is not None:
        return Reward(value=value, parts={}, is_valid=True)
    if complete is None:
        raise ValueError(
            f"task {trajectory.task.id!r} brings no checks and there is no judge; set "
            "config.reward.judge.base_url or give the task `checks`"
        )
    if trajectory.cause is Cause.DONE and not trajectory.answer:
        return Reward(value=0.0, parts={}, is_valid=True)
    return await judge.judge(trajectory, complete, config.judge)


PARTS: dict[str, Part] = {"outcome": _outcome}
