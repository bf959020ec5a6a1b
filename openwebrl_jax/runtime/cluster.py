"""Starts and stops Ray, and says what each kind of actor gets of the machines.

The driver never touches a jax backend: whether an accelerator is there is read from
the device files, and each jax process is told its share by environment variables.
"""

import glob
import logging
import os
from typing import Any

import ray

from openwebrl_jax.core import checks

# Short-lived local clusters: fewer processes, and no usage reports.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",  # browsers and learner are no background work
}


def accelerators() -> tuple[str, int]:
    """Kind ("gpu", "tpu" or "cpu") and number of this machine's accelerators."""
    for kind, pattern in (("gpu", "/dev/nvidia[0-9]*"), ("tpu", "/dev/accel[0-9]*")):
        found = len(glob.glob(pattern))
        if found:
            return kind, found
    return "cpu", 0


def check(config: Any) -> None:
    """Refuses a config that wants an accelerator where there is none."""
    if not config.cluster.address:
        checks.check_platform(config.cluster.platform, accelerators()[0])


def start(config: Any) -> None:
    """Joins or starts Ray; a local one is sized for waiting, not for computing."""
    os.environ.update(_QUIET)
    address = config.cluster.address or None
    local = {} if address else {"num_cpus": 2, "include_dashboard": False}
    ray.init(
        address=address,
        ignore_reinit_error=True,
        logging_level=logging.ERROR,
        log_to_driver=True,
        **local,
    )


def stop() -> None:
    """Ends what `start` began; a cluster that was joined stays."""
    ray.shutdown()


def options(config: Any, role: str) -> dict[str, Any]:
    """Ray options of an actor: role is "learner", "serving", "browser" or "ledger"."""
    env = {}
    resources: dict[str, Any] = {"num_cpus": 0}
    if role not in ("learner", "serving"):
        env["JAX_PLATFORMS"] = "cpu"
    elif config.cluster.platform == "cpu":
        env.update(JAX_PLATFORMS="cpu", **_threads(config.cluster.cpu_threads))
    else:
        kind, count = accelerators()
        share = config.cluster.serving_devices
        if role == "learner":
            share = config.cluster.learner_devices or count - share
        resources |= (
            {"num_gpus": share} if kind == "gpu" else {"resources": {"TPU": share}}
        )
    return resources | {"runtime_env": {"env_vars": env}}


def _threads(count: int) -> dict[str, str]:
    """Environment that holds XLA on CPU to `count` threads; 0 = as many as cores."""
    if not count:
        return {}
    return (
        {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        if count == 1
        else {"NPROC": str(count)}
    )
