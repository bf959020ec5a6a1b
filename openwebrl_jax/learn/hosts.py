"""Several processes as one learner: every one runs the same program on the same plan.

Arrays lie over the devices of all of them. Where there is one process, nothing here
does more than jax would.
"""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# A process that has died is noticed by the others within this time; they end then.
_DEAD_AFTER_S = 20


def join(address: str, count: int, index: int) -> None:
    """Makes this process one of `count`; the first statement that jax may see.

    `address` is host:port of process 0. When one dies the others do: whoever started
    them begins all anew.
    """
    jax.distributed.initialize(
        address,
        num_processes=count,
        process_id=index,
        heartbeat_timeout_seconds=_DEAD_AFTER_S,
    )


def is_first() -> bool:
    """True in the one process that writes and speaks for all."""
    return jax.process_index() == 0


def agree(number: int) -> int:
    """The first process's number, in every process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def meet(what: str) -> None:
    """Returns when every process has come here."""
    multihost_utils.sync_global_devices(what)


def place(tree: Any, shardings: Any) -> Any:
    """Arrays that every process has whole, on the devices that the shardings name."""
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)

    def one(leaf, sharding):
        whole = np.asarray(leaf)
        return jax.make_array_from_callback(
            whole.shape, sharding, lambda index: whole[index]
        )

    return jax.tree.map(one, tree, shardings)


def gather(tree: Any) -> Any:
    """Copies of the arrays in every process's memory, one at a time; in step."""

    def one(leaf):
        if leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.array(leaf)
        return np.array(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(one, tree)
