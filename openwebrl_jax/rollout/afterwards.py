"""What a task's checks want to see of other pages, once the agent has ended it.

In: a trajectory and the environment that it was played in. Out: the trajectory with
these facts. A site that cannot be opened for it now voids the episode.
"""

import dataclasses

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rewards import webarena

_ENDED = (Cause.DONE, Cause.PAGE_DONE)


async def look(trajectory: types.Trajectory, env: types.Env) -> types.Trajectory:
    """The trajectory with the facts that its end script has not given."""
    if trajectory.cause not in _ENDED:
        return trajectory
    facts = dict(trajectory.facts)
    try:
        for wanted in webarena.looks(trajectory.task.checks):
            if wanted.fact not in facts:
                facts[wanted.fact] = await env.facts(wanted.script, wanted.url)
    except Failure as failure:
        detail = f"after the end: {failure.detail}"
        return dataclasses.replace(trajectory, cause=failure.cause, detail=detail)
    return dataclasses.replace(trajectory, facts=facts)
