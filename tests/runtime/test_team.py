"""A learner of two Ray actors with four devices each; one is killed in the middle."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import ray

from configs import mt_sft
from openwebrl_jax.core import metrics
from openwebrl_jax.rollout import books, events
from openwebrl_jax.runtime import cluster, team
from openwebrl_jax.web import processes
from tests import conftest
from tests.runtime import test_train

MORE = ("--config.cluster.learner_processes=2",)
DEVICES = f"{conftest.QUICK} --xla_force_host_platform_device_count=4"


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class Learner:
    """The first process waits for the others in a collective."""

    def sft(self):
        yield 1
        time.sleep(60.0)

    def follow(self, stage):
        raise FileNotFoundError(f"{stage} has no workdir here")


def test_an_error_of_one_process_ends_the_stage_of_all(monkeypatch):
    monkeypatch.setattr(team, "Learner", Learner)
    config = mt_sft.get_config("tiny")
    config.cluster.learner_processes = 2
    cluster.start(config)
    try:
        learner = team.Team(config)
        with pytest.raises(ray.exceptions.RayTaskError, match="sft has no workdir"):
            list(learner.results("sft"))
        learner.kill()
    finally:
        cluster.stop()


@pytest.mark.long
def test_the_death_of_one_process_begins_all_anew(tiny_folder, tmp_path):
    workdir = tmp_path / "run"
    with open(tmp_path / "log.txt", "w") as log:
        run = subprocess.Popen(
            [*test_train.command(tiny_folder, workdir), *MORE],
            stdout=log,
            stderr=log,
            env={**os.environ, "XLA_FLAGS": DEVICES},
        )
    try:
        test_train.wait_for(
            lambda: len(metrics.read(workdir / "metrics.jsonl")) >= 2, run
        )
        (second,) = (
            pid
            for pid in processes.descendants(run.pid)
            if "ray::Learner.follow" in name_of(pid)
        )
        os.kill(second, signal.SIGKILL)
        assert run.wait(300) == 0, (tmp_path / "log.txt").read_text()[-2000:]
    finally:
        run.kill()
        run.wait()
    assert "go on from the newest checkpoint" in (tmp_path / "log.txt").read_text()
    told = metrics.read(workdir / "metrics.jsonl")
    assert [each["step"] for each in told] == [*range(1, test_train.ITERATIONS + 1)]
    state, found = test_train.last_state(workdir)
    books.check(state)
    assert events.trained_twice(found) == 0
    assert (workdir / "export" / "model.safetensors").exists()
