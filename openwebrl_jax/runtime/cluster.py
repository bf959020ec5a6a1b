"""Starts and stops Ray, and says what each kind of actor gets of the machines.

The driver never touches a jax backend: whether an accelerator is there is read from
the device files, and each jax process is told its share by environment variables.
"""

import contextlib
import fcntl
import glob
import logging
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import ray
import ray.exceptions

from openwebrl_jax.core import checks
from openwebrl_jax.runtime import devices

# Programs that were compiled once are read back by later runs and restarts.
_COMPILED = {
    "JAX_COMPILATION_CACHE_DIR": os.path.expanduser("~/.cache/openwebrl_jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
}

# Short-lived local clusters: fewer processes, and no usage reports.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",  # browsers and learner are no background work
}

# The resources of each node of a cluster elsewhere, as it was when it was joined.
_joined: list[devices.Node] = []

_CALLS = 1000  # at once, to the ledger, beside those of waiting contexts


def accelerators() -> tuple[str, int]:
    """Kind ("gpu", "tpu" or "cpu") and number of this machine's accelerators."""
    files = (("gpu", "nvidia[0-9]*"), ("tpu", "accel[0-9]*"), ("tpu", "vfio/[0-9]*"))
    for kind, pattern in files:
        found = len(glob.glob(f"/dev/{pattern}"))
        if found:
            return kind, found
    return "cpu", 0


def check(config: Any) -> None:
    """Refuses a config that wants an accelerator where there is none."""
    if not config.cluster.address:
        checks.check_platform(config.cluster.platform, accelerators()[0])


def check_room(config: Any, width: int) -> None:
    """Refuses actors that find no room, and a mesh that does not fit the learner's.

    `width` is that of the model. A cluster elsewhere is looked at once it was joined.
    """
    if not config.cluster.address or ray.is_initialized():
        count = devices.check(config, _nodes(config))
        checks.check_config(config, devices=count or None, look_at_disk=False)
        devices.check_width(config, count, width)


def check_replicas(config: Any) -> None:
    """Refuses replicas of serving that would wait for room for ever."""
    devices.check_replicas(config, _nodes(config))


def _nodes(config: Any) -> list[devices.Node]:
    """The resources of each node of the cluster, or of this machine.

    A node that was lost since the cluster was joined is counted: what needs it waits
    until it is back, and goes nowhere else.
    """
    if config.cluster.address:
        return _joined
    kind, count = accelerators()
    return [{kind.upper(): count} if count else {}]


def start(config: Any) -> None:
    """Joins or starts Ray; a local one is sized for waiting, not for computing."""
    os.environ.update(_QUIET)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR}
    if config.cluster.address:
        ray.init(address=config.cluster.address, **quiet)
        _joined[:] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return
    for is_last in (False, False, True):  # a busy machine can be late for Ray's 30 s
        try:
            ray.init("local", num_cpus=2, include_dashboard=False, **quiet)
            return
        except Exception as error:
            ray.shutdown()
            if is_last or "timed out" not in str(error):
                raise


def stop() -> None:
    """Ends what `start` began; a cluster that was joined stays."""
    ray.shutdown()


def actor(kind: type, config: Any, role: str) -> Any:
    """A plain class as an actor; its calls are `handle.method.remote(...)`."""
    return ray.remote(kind).options(**options(config, role)).remote()


def here() -> str:
    """This machine's address in the cluster."""
    return ray.util.get_node_ip_address()


class Near:
    """An actor called as if it were here: each method waits for its answer."""

    def __init__(self, handle: Any):
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not before it is unpickled
            raise AttributeError(name)
        method = getattr(self._handle, name)
        return lambda *arguments: ray.get(method.remote(*arguments))


def is_death(error: BaseException | None) -> bool:
    """True = an actor is gone, however many others have passed the news on."""
    while error is not None and not isinstance(error, ray.exceptions.RayActorError):
        error = getattr(error, "cause", None)
    return error is not None


def kill(*handles: Any) -> None:
    """Ends actors at once; those that are gone already are none."""
    for handle in handles:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(handle)


def check_shared(workdir: str, actors: Iterable[Any]) -> None:
    """Refuses a workdir that is not one folder for all: each would write its own part.

    One machine has one, and nobody is asked.
    """
    if len(ray.nodes()) < 2:
        return
    probe = Path(workdir) / f"probe-{secrets.token_hex(8)}"
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.touch()
    try:
        told = ray.get([a.__ray_call__.remote(_sees, str(probe)) for a in actors])
    finally:
        probe.unlink()
    blind = {where for is_there, where in told if not is_there}
    if blind:
        raise ValueError(
            f"what {here()} writes to {workdir} is not seen by actors on "
            f"{', '.join(sorted(blind))}; wanted a folder that all machines share: "
            "mount it there by the same path, or take another --workdir"
        )


def _sees(actor: object, path: str) -> tuple[bool, str]:
    """Run by an actor: whether the file is there, and where the actor is."""
    return os.path.isfile(path), here()


def fence(path: Path, timeout_s: float = 60.0) -> TextIO:
    """The right to write what belongs to `path`, for as long as the file is open.

    An actor that was killed, or whose driver was, may live on for a moment: its
    successor waits here until the system has taken the right from it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w")
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise RuntimeError(f"another process still holds {path}") from None
            time.sleep(0.1)


def options(config: Any, role: str) -> dict[str, Any]:
    """Ray options of an actor: role is "learner", "serving", "browser" or "ledger"."""
    env = {"JAX_PLATFORMS": "cpu"}
    needs = devices.needs(config, role, _nodes(config))
    more: dict[str, Any] = {"num_gpus": needs.pop("GPU")} if "GPU" in needs else {}
    if role in ("learner", "serving"):
        env |= {key: os.environ.get(key, value) for key, value in _COMPILED.items()}
        if config.cluster.platform != "cpu":
            del env["JAX_PLATFORMS"]
    if role == "learner" and config.cluster.learner_processes > 1:
        more["scheduling_strategy"] = "SPREAD"  # a host each where there are any
    if role == "ledger":  # all contexts may wait in it, and those of dead workers
        contexts = config.rollout.workers * config.rollout.contexts
        more["max_concurrency"] = _CALLS + 4 * contexts
    more |= {"resources": needs} if needs else {}
    return {"num_cpus": 0, **more, "runtime_env": {"env_vars": env}}
