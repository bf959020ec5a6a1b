"""`config.optim` -> an optax chain: clip, then AdamW or Muon, by a schedule.

Muon orthogonalises each layer's matrix by itself; embedding tables, the head, the
position table, norms and biases stay with Adam. Weight decay is on matrices and
tables, never on norms and biases.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from flax import nnx

CONSISTENT_RMS = 0.2  # Muon's updates get the size of Adam's (arXiv 2502.16982)
TABLES = ("embed", "table", "head")


def make_optimizer(config_optim) -> optax.GradientTransformation:
    """The chain, with the rate's warm-up; `tail` says what follows that."""
    if config_optim.name not in OPTIMIZERS:
        raise ValueError(
            f"config.optim.name={config_optim.name!r}; set it to one of "
            f"{', '.join(OPTIMIZERS)}"
        )
    return optax.chain(
        optax.clip_by_global_norm(config_optim.clip_norm),
        OPTIMIZERS[config_optim.name](config_optim),
    )


def tail(config_optim, done: float) -> float:
    """What all rates are multiplied by when the share `done` of the run is over.

    Of the run and not of its steps: how many steps an iteration of RL takes depends on
    how long its episodes are. Updates of AdamW and Muon, weight decay included, are
    linear in the rate, so that they can be scaled afterwards.
    """
    if config_optim.schedule not in TAILS:
        raise ValueError(
            f"config.optim.schedule={config_optim.schedule!r}; set it to one of "
            f"{', '.join(TAILS)}"
        )
    return TAILS[config_optim.schedule](done, config_optim.decay_share)


TAILS = {
    "constant": lambda done, share: 1.0,
    "cosine": lambda done, share: 0.5 * (1.0 + math.cos(math.pi * done)),
    # 1, and over the last share of the run linearly to 0
    "trapezoid": lambda done, share: min(1.0, (1.0 - done) / max(share, 1e-9)),
}


def _rise(config_optim, peak: float) -> Callable:
    """Rate by optimizer step: a linear warm-up to the peak."""
    warmup = config_optim.warmup_steps
    return lambda step: peak * jnp.minimum((step + 1) / (warmup + 1), 1.0)


def _adamw(config_optim) -> optax.GradientTransformation:
    return optax.adamw(
        _rise(config_optim, config_optim.lr_peak),
        b1=config_optim.b1,
        b2=config_optim.b2,
        weight_decay=config_optim.weight_decay,
        mask=decayed,
    )


def _muon(config_optim) -> optax.GradientTransformation:
    lr_rest = config_optim.lr_rest or config_optim.lr_peak / 2
    return optax.contrib.muon(
        _rise(config_optim, config_optim.lr_peak),
        adam_learning_rate=_rise(config_optim, lr_rest),
        adam_b1=config_optim.b1,
        adam_b2=config_optim.b2,
        weight_decay=config_optim.weight_decay,
        consistent_rms=CONSISTENT_RMS,
        muon_weight_dimension_numbers=matrix_axes,
    )


OPTIMIZERS = {"adamw": _adamw, "muon": _muon}


def decayed(params):
    """True for each matrix and table, False for norms and biases."""
    return _by_param(lambda name, axes: len(axes) == 2, params)


def matrix_axes(params):
    """Muon's dimension numbers for each matrix [..., in, out]; None = Adam's."""

    def one(name, axes):
        if len(axes) != 2 or name in TABLES:
            return None
        return optax.contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)

    return _by_param(one, params)


def _by_param(function: Callable, params):
    """The tree of function(name, axes) for every parameter, stacking axes left out."""

    def one(path, param):
        axes = [axis for axis in param.axes if axis != "layers"]
        return function(path[-1].key, axes)

    return jax.tree.map_with_path(
        one, params, is_leaf=lambda node: isinstance(node, nnx.Param)
    )
