"""What a task's checks want to see of other pages, once the agent has ended it.

In: a trajectory and the environment that it was played in. Out: the trajectory with
these facts. A site that cannot be opened for it now voids the episode.
"""

import dataclasses
from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rewards import webarena

_ENDED = (Cause.DONE, Cause.PAGE_DONE)


async def look(trajectory: types.Trajectory, env: types.Env) -> types.Trajectory:
    """The trajectory with the facts that its checks want: those of the end script,
    which an agent's `done` leaves unasked, and those of other pages."""
    if trajectory.cause not in _ENDED:
        return trajectory
    facts = dict(trajectory.facts)
    try:
        if trajectory.cause is Cause.DONE and trajectory.task.end_script:
            facts = await _at_the_end(trajectory.task, env) | facts
        for wanted in webarena.looks(trajectory.task.checks):
            if wanted.fact not in facts:
                facts[wanted.fact] = await env.facts(wanted.script, wanted.url)
    except Failure as failure:
        detail = f"after the end: {failure.detail}"
        return dataclasses.replace(trajectory, cause=failure.cause, detail=detail)
    return dataclasses.replace(trajectory, facts=facts)


async def _at_the_end(task: types.Task, env: types.Env) -> dict[str, Any]:
    """What the end script says of the page that the agent has left.

    One that cannot run there says nothing: the page is of the agent's choosing.
    """
    try:
        told = await env.facts(task.end_script)
    except Failure as failure:
        if failure.cause is not Cause.PAGE_CRASH:
            raise
        return {}
    return dict(told.get("facts") or {}) if isinstance(told, dict) else {}
