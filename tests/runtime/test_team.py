"""A learner of two Ray actors with four devices each; one is killed in the middle."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openwebrl_jax.core import metrics
from openwebrl_jax.rollout import books, events
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


# A driver of two learners: of one that looks whether what it told was written before it
# goes on; and of one whose first process waits for the other in a collective.
DRIVER = """
import pathlib, sys, time
from configs import mt_sft
from openwebrl_jax.runtime import cluster, learner, team

written = pathlib.Path(sys.argv[1])

class One(learner.Learner):
    def sft(self):
        for step in "123":
            yield step
            assert written.read_text()[-1] == step, "ahead of its record"

class Two(learner.Learner):
    def sft(self):
        yield 1
        time.sleep(600.0)

    def follow(self, stage):
        raise FileNotFoundError(f"{stage} has no workdir here")

config = mt_sft.get_config("tiny")
cluster.start(config)
try:
    team.Learner = One
    for step in team.Team(config).results("sft"):
        time.sleep(0.2)
        written.write_text(step)
    team.Learner = Two
    config.cluster.learner_processes = 2
    list(team.Team(config).results("sft"))
finally:
    cluster.stop()
"""


def test_no_record_is_lost_and_an_error_of_one_process_ends_all(tmp_path):
    run = [sys.executable, "-c", DRIVER, str(tmp_path / "written")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "sft has no workdir here" in done.stderr
    assert (tmp_path / "written").read_text() == "3"


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
