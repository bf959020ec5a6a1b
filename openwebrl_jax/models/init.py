"""Fresh models: every parameter drawn as its declaration says, or one that sees sooner.

A model that is trained from nothing has to find out where things are. `smooth` gives
it a head start that a real checkpoint does not need: places that lie near each other,
in the picture and among the coordinate tokens, begin with vectors that are alike.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openwebrl_jax.models import qwen3_vl
from openwebrl_jax.models.sizes import Sizes

_CYCLES = (0.25, 4.0)  # slowest and fastest wave along a side


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


def smooth(model: qwen3_vl.Model, coordinates: Mapping[int, float], seed: int) -> None:
    """Gives the model, in place, a sense of near and far.

    The vision tower's position table [side * side, width] becomes sines and cosines
    of row and column (std 0.7); the embedding rows of the coordinate tokens become a
    random projection of those of their value, of the size that rows have.

    Args:
      coordinates: token id -> its value as a share of the side, 0..1.
    """
    tower, decoder = model.sizes.vision, model.sizes.decoder
    side, width = tower.table_side, tower.width
    wave_SC = waves(np.linspace(0.0, 1.0, side), width // 2)
    row_SSC = np.broadcast_to(wave_SC[:, None], (side, side, width // 2))
    column_SSC = np.broadcast_to(wave_SC[None], (side, side, width // 2))
    table_PC = np.concatenate([row_SSC, column_SSC], axis=-1).reshape(-1, width)
    model.vision.table[...] = jnp.asarray(table_PC, jnp.float32)

    ids, values = list(coordinates), np.array(list(coordinates.values()))
    project_WD = np.random.default_rng(seed).standard_normal((width, decoder.width))
    rows_ND = waves(values, width) @ project_WD
    table_VD = model.decoder.embed[...]
    rows_ND *= float(jnp.std(table_VD)) / rows_ND.std()
    model.decoder.embed[...] = table_VD.at[jnp.array(ids)].set(
        jnp.asarray(rows_ND, jnp.float32)
    )


def waves(values_N: np.ndarray, width: int) -> np.ndarray:
    """Sines and cosines [N, width] of the values, from slow to fast."""
    cycles_W = np.geomspace(*_CYCLES, width // 2)
    angle_NW = 2 * np.pi * values_N[:, None] * cycles_W
    return np.concatenate([np.sin(angle_NW), np.cos(angle_NW)], axis=1)
