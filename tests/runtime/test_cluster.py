"""Actors whose machine does not have the workdir are seen before a run begins."""

import os

import pytest
import ray

from openwebrl_jax.runtime import cluster


class Actor:
    """One that may look at other files than its driver: its folder is another."""

    def __init__(self, folder):
        os.chdir(folder)


class Waiting(Actor):
    """The same with an event loop, as serving and the ledger have."""

    async def watch(self):
        """Makes Ray give it a loop."""


@pytest.fixture
def ray_here(monkeypatch):
    ray.init("local", num_cpus=1, include_dashboard=False, logging_level="ERROR")
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True}] * 2)
    yield
    ray.shutdown()


def test_a_workdir_that_is_not_shared_is_refused(ray_here, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    kinds = [ray.remote(kind).options(num_cpus=0) for kind in (Actor, Waiting)]
    same = [kind.remote(str(here)) for kind in kinds]
    other = [kind.remote(str(there)) for kind in kinds]
    cluster.check_shared("run", same)
    for actor in other:
        with pytest.raises(ValueError, match="wanted a folder that all machines share"):
            cluster.check_shared("run", [*same, actor])
    assert not any((here / "run").iterdir())
    cluster.check_shared(str(here / "run"), other)
