"""A learner of two processes with four devices each: the same numbers, no hang."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from openwebrl_jax.learn import checkpoint, hosts
from openwebrl_jax.learn import state as states
from tests import conftest
from tests.learn import host, toys

FLAG = "--xla_force_host_platform_device_count="
SLURM = {  # as they are in every process of a job
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "gpu-[1-2]",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "2",
}


def start(folder, **env):
    port = hosts.free_port()
    env = {**os.environ, "XLA_FLAGS": f"{conftest.QUICK} {FLAG}4", **SLURM, **env}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.learn.host", str(i), str(port), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for i in range(2)
    ]


@pytest.mark.long
def test_two_processes_are_one_learner_and_none_outlives_the_other(tmp_path):
    first, second = start(tmp_path, DIE_AT="3")
    try:
        second.communicate(timeout=120)
        began = time.monotonic()
        # No hang in a collective whose other half is dead.
        first.communicate(timeout=40)
        assert first.returncode != 0 and time.monotonic() - began < 30
    finally:
        first.kill()
        second.kill()
    keeper = checkpoint.Checkpointer(tmp_path, keep=2)
    assert keeper.latest() == 2
    keeper.close()

    told = []
    for process in start(tmp_path):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err[-2000:]
        told.append(out.split()[-1])
    assert told[0] == told[1]  # the digest of the weights, on both sides

    state, update = toys.make_learner()  # of one device
    for step in range(1, host.STEPS + 1):
        state, _ = update.step(state, host.make_batches(step))
    with np.load(tmp_path / "params.npz") as got:
        for ours, want in zip(got.values(), states.to_host(state.params), strict=True):
            # Adam's steps are 1e-2, even where a gradient is nearly rounding alone.
            apart = np.abs(ours - want)
            assert apart.mean() < 1e-6 and apart.max() < 1e-3
