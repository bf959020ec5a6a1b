"""Actors whose machine does not have the workdir are seen before a run begins."""

import os
import subprocess
import sys

import pytest

from tests import conftest

# An actor may look at other files than its driver: its working directory is another.
# The second kind has an event loop, as serving and the ledger have.
DRIVER = """
import os, pathlib, sys
import ray
from configs import grpo_short
from openwebrl_jax.runtime import cluster

here, there = (pathlib.Path(name) for name in sys.argv[1:])
os.chdir(here)

class Actor:
    def __init__(self, folder):
        os.chdir(folder)

class Waiting(Actor):
    async def watch(self):
        pass

cluster.start(grpo_short.get_config("tiny"))
ray.nodes = lambda: [{"Alive": True}] * 2
kinds = [ray.remote(kind).options(num_cpus=0) for kind in (Actor, Waiting)]
same = [kind.remote(str(here)) for kind in kinds]
other = [kind.remote(str(there)) for kind in kinds]
cluster.check_shared("run", same)
for actor in other:
    try:
        cluster.check_shared("run", [*same, actor])
    except ValueError as error:
        print(error)
assert not any((here / "run").iterdir())
cluster.check_shared(str(here / "run"), other)
cluster.stop()
"""


@pytest.mark.long
def test_a_workdir_that_is_not_shared_is_refused(tmp_path):
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
    run = [sys.executable, "-c", DRIVER, *map(str, folders)]
    env = os.environ | {"PYTHONPATH": str(conftest.ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("wanted a folder that all machines share") == 2
