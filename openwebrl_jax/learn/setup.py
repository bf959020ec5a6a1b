"""From a checkpoint folder and a config to the state and the programs of a run."""

from typing import Any

from openwebrl_jax.core import types
from openwebrl_jax.learn import folder, optim, state, update
from openwebrl_jax.models import mesh


def make(
    policy: folder.Policy, config: Any, rule: types.SamplingRule
) -> tuple[update.Update, state.TrainState]:
    """The update and the state before its first step, on this process's devices.

    Args:
      rule: the distribution that the sampler draws from.
    """
    devices = mesh.make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tp)
    tx = optim.make_optimizer(config.optim)
    like = state.abstract_state(policy.params, tx, devices)
    programs = update.make_update(
        policy.graphdef, like, tx, devices, rule, config.algo, config.model
    )
    return programs, state.init_state(policy.params, tx, devices)
