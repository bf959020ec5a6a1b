"""Fresh models: every parameter drawn as its declaration says."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openwebrl_jax.models import qwen3_vl
from openwebrl_jax.models.sizes import Sizes


def init_model(sizes: Sizes, seed: int) -> qwen3_vl.Model:
    """A model with random float32 parameters; the same for the same seed."""
    model = qwen3_vl.Model(sizes)
    graphdef, params = nnx.split(model, nnx.Param)
    draw = np.random.default_rng(seed)

    def fill(param):
        mean, std = param.mean, param.std
        values = mean + std * draw.standard_normal(param.shape, np.float32)
        return param.replace(jnp.asarray(values, jnp.float32))

    is_param = lambda node: isinstance(node, nnx.Param)  # noqa: E731
    return nnx.merge(graphdef, jax.tree.map(fill, params, is_leaf=is_param))
