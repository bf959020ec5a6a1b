"""What training changes: parameters, optimizer state, step counter; and where it lies.

Parameters are the nnx.State of `nnx.split(model, nnx.Param)`; every leaf is a device
array, split over the mesh by the axes that its parameter declares.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from openwebrl_jax.learn import hosts
from openwebrl_jax.models import mesh as meshes


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """State of one run. Made by `init_state`, changed by learn.update alone."""

    params: Any
    opt_state: Any
    step: Any  # int32, optimizer steps taken


def init_state(
    params: nnx.State, tx: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """The state before the first step; it takes the parameters over."""
    like = abstract_state(params, tx, mesh)
    places = jax.tree.map(lambda leaf: leaf.sharding, like)
    params = hosts.place(params, places.params)
    return jax.jit(_fresh(tx), out_shardings=places)(params)


def abstract_state(
    params: nnx.State, tx: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """Shape, dtype and sharding of every leaf of the state; holds no array."""
    shapes = jax.eval_shape(_fresh(tx), params)
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=place
        ),
        shapes,
        shardings(shapes, mesh),
    )


def shardings(tree, mesh: Mesh):
    """Where each leaf of parameters, gradients or a whole state belongs."""

    def one(node):
        # An optimizer that leaves a parameter to another has an empty node there.
        return meshes.shardings(node, mesh) if jax.tree.leaves(node) else node

    return jax.tree.map(one, tree, is_leaf=lambda node: isinstance(node, nnx.Param))


def to_host(params: nnx.State) -> list[np.ndarray]:
    """Copies of the leaves in their order: what a new version is published as."""
    return hosts.gather(jax.tree.leaves(params))


def on_devices(params: nnx.State) -> list[jax.Array]:
    """The leaves themselves, for who copies them before the next step."""
    return jax.tree.leaves(params)


def _fresh(tx: optax.GradientTransformation):
    return lambda params: TrainState(
        params=params, opt_state=tx.init(params), step=jnp.zeros((), jnp.int32)
    )
