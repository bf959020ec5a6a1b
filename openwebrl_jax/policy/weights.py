"""The sampler's own copy of the weights, with each layer's in arrays of their own.

A program that decodes would copy a layer out of the stack again and again: XLA-CPU
does so at every token. So the stacks are cut once, when weights come in.
"""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from openwebrl_jax.models import decoder, qwen3_vl


class Weights(NamedTuple):
    """What the programs eat. Made by `own`."""

    rest: Any  # the parameter tree; its decoder's layers are empty
    layers: tuple[Any, ...]  # of the decoder, one by one


def abstract(params: Any) -> Any:
    """Shapes, dtypes and places of a parameter tree."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params
    )


def own(params: Any, like: Any) -> Weights:
    """A copy of `params` in the dtypes and places of `like`, see `abstract`.

    A stack is gone once it is cut: no second copy of all of them is ever there.
    """
    cut = []  # of each stack, its layers

    def place(path, new, old):
        if new.shape != old.shape:
            raise ValueError(
                f"weights{jax.tree_util.keystr(path)} have the shape {new.shape}, "
                f"the sampler's {old.shape}: they are of another model"
            )
        placed = jax.device_put(new.astype(old.dtype), old.sharding, may_alias=False)
        if [getattr(key, "key", "") for key in path[:2]] != ["decoder", "layers"]:
            return placed
        cut.append(jax.block_until_ready([placed[i] for i in range(len(placed))]))
        return jnp.zeros((), old.dtype)

    rest = jax.tree.map_with_path(place, params, like)
    form = jax.tree.structure(params["decoder"]["layers"])
    layers = [form.unflatten(layer) for layer in zip(*cut, strict=True)]
    return Weights(rest, tuple(layers))


def free_bytes(params: Any) -> int:
    """What a copy of `params` would leave of a device that holds them.

    A host's memory is counted as if it held nothing else.
    """
    leaves = jax.tree.leaves(params)
    needed = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    stats = leaves[0].addressable_shards[0].device.memory_stats()
    if stats is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - needed
    return stats["bytes_limit"] - stats["bytes_in_use"] - needed


def merge(
    graphdef: nnx.GraphDef, weights: Weights
) -> tuple[qwen3_vl.Model, list[decoder.Layers]]:
    """The model, and the layers of its decoder that `qwen3_vl.extend` takes."""
    model = nnx.merge(graphdef, weights.rest)
    layer_graphdef, _ = nnx.split(model.decoder.layers, nnx.Param)
    return model, [nnx.merge(layer_graphdef, layer) for layer in weights.layers]


def host_inputs() -> Any:
    """Lets a program's arrays come from the host with its call.

    To place each with `device_put` takes Python as long as a small program runs.
    """
    return jax.transfer_guard_host_to_device("allow")


def beside(weights: Any) -> jax.sharding.Sharding:
    """Where the cache is: on the weights' device, or on each one of their mesh."""
    sharding = jax.tree.leaves(weights)[0].sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return sharding
