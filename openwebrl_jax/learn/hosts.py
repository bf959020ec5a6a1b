"""Several processes as one learner: every one runs the same program on the same plan.

Arrays lie over the devices of all of them. Where there is one process, nothing here
does more than jax would.
"""

import pickle
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

# A process that has died is noticed by the others within this time; they end then.
_DEAD_AFTER_S = 20


class Seat(NamedTuple):
    """Which process of how many this is."""

    index: int
    count: int
    address: str  # host:port of the first one


ALONE = Seat(0, 1, "")


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return free.getsockname()[1]


def join(seat: Seat) -> None:
    """Makes this process one of several; the first statement that jax may see.

    When one dies the others do: whoever started them begins all anew.
    """
    if seat.count > 1:
        jax.distributed.initialize(
            seat.address,
            num_processes=seat.count,
            process_id=seat.index,
            heartbeat_timeout_seconds=_DEAD_AFTER_S,
            # A SLURM job's variables would leave each process one device.
            cluster_detection_method="deactivate",
        )


def devices() -> int:
    """How many there are in all processes."""
    return jax.device_count()


def is_first() -> bool:
    """True in the one process that writes and speaks for all."""
    return jax.process_index() == 0


def agree(number: int) -> int:
    """The first process's number, in every process."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


class Heard:
    """What the first process talks to alone; every process gets the same answers."""

    def __init__(self, port: Any):
        self._port = port

    def __getattr__(self, name: str) -> Callable:
        return lambda *arguments: _hear(lambda: getattr(self._port, name)(*arguments))


def _hear(call: Callable[[], Any]) -> Any:
    """What the call returns in the first process, in every one."""
    if jax.process_count() == 1:
        return call()
    said = pickle.dumps(call()) if is_first() else b""
    length = agree(len(said))
    letters = np.frombuffer(said.ljust(length, b"\0")[:length], np.uint8)
    return pickle.loads(multihost_utils.broadcast_one_to_all(letters).tobytes())


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
