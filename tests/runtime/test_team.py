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


# A driver that publishes one version, and prints what learner and serving hold of it.
PUBLISHER = """
import dataclasses, hashlib, sys
import jax, numpy, ray
from configs import grpo_short
from openwebrl_jax.learn import state
from openwebrl_jax.policy import sampler
from openwebrl_jax.runtime import cluster, learner, serving

def digest(leaves):
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()

class Learner(learner.Learner):
    def change(self, version):
        params = jax.tree.map(lambda leaf: leaf * 1.25, self._state.params)
        self._state = dataclasses.replace(self._state, params=params)
        self._publish(version)
        return digest(state.to_host(params))

class Serving(serving.Serving):
    async def serve(self, config, folder):
        self._sampler = sampler.make_sampler(folder, config)  # and compiles nothing

    async def digest(self):
        held = self._sampler._speaker.params
        stacks = jax.tree.map(lambda *layers: numpy.stack(layers), *held.layers)
        stack = iter(jax.tree.leaves(stacks))
        rest = jax.tree_util.tree_leaves_with_path(held.rest)
        return digest(
            next(stack) if [key.key for key in path[:2]] == ["decoder", "layers"]
            else numpy.asarray(leaf)
            for path, leaf in rest
        )

class Ledger:
    def acknowledged(self, version):
        pass

config = grpo_short.get_config("tiny")
cluster.start(config)
try:
    teacher = cluster.actor(Learner, config, "learner")
    speaker = cluster.actor(Serving, config, "serving")
    served = speaker.serve.remote(config, sys.argv[1])
    ray.get(teacher.start.remote(config, sys.argv[2], sys.argv[1]))
    ray.get(served)
    print(ray.get(speaker.digest.remote()))
    ray.get(teacher.connect.remote(Ledger(), cluster.Near(speaker)))
    print(ray.get(speaker.digest.remote()))
    print(ray.get(teacher.change.remote(1)))
    print(ray.get(speaker.digest.remote()))
finally:
    cluster.stop()
"""


@pytest.mark.long
def test_serving_holds_the_bits_that_the_learner_published(tiny_folder, tmp_path):
    """Through the object store, into layers of their own: not one bit is another."""
    run = [sys.executable, "-c", PUBLISHER, str(tiny_folder), str(tmp_path / "run")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded, resumed, published, spoken = done.stdout.split()
    assert spoken == published
    assert loaded == resumed != published


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
