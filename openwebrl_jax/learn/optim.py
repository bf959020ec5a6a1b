"""`config.optim` -> an optax chain: clip, then AdamW or Muon, by a schedule.

Muon orthogonalises each layer's matrix by itself; embedding tables, the head, the
position table, norms and biases stay with Adam. Weight decay is on matrices and
tables, never on norms and biases.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from flax import nnx

CONSISTENT_RMS = 0.2  # Muon's updates get the size of Adam's (arXiv 2502.16982)
TABLES = ("embed", "table", "head")


def make_optimizer(config_optim, steps: int) -> optax.GradientTransformation:
    """The chain for a run of that many optimizer steps."""
    if config_optim.name not in OPTIMIZERS:
        raise ValueError(
            f"config.optim.name={config_optim.name!r}; set it to one of "
            f"{', '.join(OPTIMIZERS)}"
        )
    return optax.chain(
        optax.clip_by_global_norm(config_optim.clip_norm),
        OPTIMIZERS[config_optim.name](config_optim, steps),
    )


def make_schedule(config_optim, steps: int, peak: float) -> Callable:
    """Learning rate by optimizer step: linear warm-up to the peak, then the tail."""
    if config_optim.schedule not in TAILS:
        raise ValueError(
            f"config.optim.schedule={config_optim.schedule!r}; set it to one of "
            f"{', '.join(TAILS)}"
        )
    warmup = config_optim.warmup_steps
    tail = TAILS[config_optim.schedule]

    def rate(step):
        rise = jnp.minimum((step + 1) / (warmup + 1), 1.0)
        return peak * rise * tail(step, warmup, steps, config_optim.decay_share)

    return rate


def _constant(step, warmup, steps, decay_share):
    return 1.0


def _cosine(step, warmup, steps, decay_share):
    """Half a cosine from the end of the warm-up to 0."""
    done = (step - warmup) / max(steps - warmup, 1)
    return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(done, 0.0, 1.0)))


def _trapezoid(step, warmup, steps, decay_share):
    """1, and over the last share of the steps linearly to 0."""
    return jnp.clip((steps - step) / max(decay_share * steps, 1.0), 0.0, 1.0)


TAILS = {"constant": _constant, "cosine": _cosine, "trapezoid": _trapezoid}


def _adamw(config_optim, steps: int) -> optax.GradientTransformation:
    return optax.adamw(
        make_schedule(config_optim, steps, config_optim.lr_peak),
        b1=config_optim.b1,
        b2=config_optim.b2,
        weight_decay=config_optim.weight_decay,
        mask=decayed,
    )


def _muon(config_optim, steps: int) -> optax.GradientTransformation:
    lr_rest = config_optim.lr_rest or config_optim.lr_peak / 2
    return optax.contrib.muon(
        make_schedule(config_optim, steps, config_optim.lr_peak),
        adam_learning_rate=make_schedule(config_optim, steps, lr_rest),
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
