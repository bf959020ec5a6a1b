"""Before a site is blamed, another one is tried: it may be our own network."""

import asyncio
import dataclasses
from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rollout import cooldown


async def confirm(
    trajectory: types.Trajectory, env: types.Env, config: Any
) -> types.Trajectory:
    """The trajectory; NETWORK_DOWN ends it where the canary cannot be opened either.

    `config` is config.rollout; `env` is the one that the episode was played in.
    """
    is_blame = trajectory.cause in cooldown.BLAMED
    if not (config.canary_url and is_blame and cooldown.site_of(trajectory.task)):
        return trajectory
    canary = types.Task(
        id="canary", intent="", start_url=config.canary_url, max_turns=1
    )
    try:
        async with asyncio.timeout(config.task_timeout_s):
            await env.reset(canary)
    except (Failure, TimeoutError) as error:
        detail = f"{trajectory.detail}; the canary failed too: {error}"
        return dataclasses.replace(trajectory, cause=Cause.NETWORK_DOWN, detail=detail)
    return trajectory
