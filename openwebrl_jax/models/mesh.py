"""Which dimension of which array is split over which axis of the device mesh.

The mesh has three axes: `data` (copies of the model), `fsdp` (rows and parameters are
split), `tp` (heads, MLP and vocabulary are split). Its axes are Auto: the compiler
places what nothing here names.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

RULES = {
    "batch": ("data", "fsdp"),  # rows, and images
    "embed": "fsdp",
    "vocab": "tp",
    "heads": "tp",
    "mlp": "tp",
    "layers": None,
    None: None,
}


def make_mesh(
    data: int, fsdp: int, tp: int, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh over all devices, or those given; fsdp = -1 takes what is left."""
    devices = jax.devices() if devices is None else devices
    count = len(devices)
    if fsdp == -1:
        fsdp = max(count // (data * tp), 1)
    if data * fsdp * tp != count:
        raise ValueError(
            f"mesh data={data} x fsdp={fsdp} x tp={tp} does not fill {count} devices; "
            "set config.mesh so that the product is their number"
        )
    grid = np.asarray(devices, dtype=object).reshape(data, fsdp, tp)
    return Mesh(grid, ("data", "fsdp", "tp"), axis_types=(AxisType.Auto,) * 3)


def spec(axes: Sequence[str | None], shape: Sequence[int], mesh) -> PartitionSpec:
    """The split of an array whose dimensions bear these logical names.

    A dimension that its mesh axes do not divide stays whole.
    """
    parts = []
    for axis, size in zip(axes, shape, strict=True):
        names = RULES[axis]
        names = (names,) if isinstance(names, str) else names or ()
        ways = int(np.prod([mesh.shape[name] for name in names]))
        parts.append(names if ways > 1 and size % ways == 0 else None)
    return PartitionSpec(*parts)


def named(axes: Sequence[str | None], shape: Sequence[int], mesh: Mesh):
    """The sharding of one array."""
    return NamedSharding(mesh, spec(axes, shape, mesh))


def shardings(state, mesh: Mesh):
    """The same tree with a sharding for each array.

    Parameters, and optimizer states shaped like them, are split by their axes;
    whatever has none, such as a counter, is on every device.
    """

    def one(leaf):
        if not isinstance(leaf, nnx.Param):
            return NamedSharding(mesh, PartitionSpec())
        if leaf.ndim != len(leaf.axes):
            return leaf.replace(NamedSharding(mesh, PartitionSpec()))
        return leaf.replace(named(leaf.axes, leaf.shape, mesh))

    return jax.tree.map(one, state, is_leaf=lambda leaf: isinstance(leaf, nnx.Param))


def constrain(x, *axes: str | None):
    """Splits an activation, inside jit under `jax.set_mesh`; else changes nothing."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec(axes, x.shape, mesh))
