"""The real loop: Ray, the tiny model, scripted pages; killed and resumed."""

import os
import subprocess
import sys
import time

import pytest

from configs import grpo_short
from openwebrl_jax.core import metrics
from openwebrl_jax.rollout import books, events, ledger, store
from openwebrl_jax.runtime import journal, queue
from tests import conftest

ITERATIONS = 4
SMALL = {
    "init_from": "",
    "tasks.suite": "fake",
    # A fresh model only babbles: that it ends its reply or not makes the difference.
    "agent.parse_failures": 1,
    "algo.iterations": ITERATIONS,
    "algo.groups": 2,
    "algo.group": 8,
    "algo.starve_batches": 1000,
    "rollout.contexts": 16,
    "sample.response_tokens": 48,
    "sample.slots": 16,
    "sample.prompt_buckets": (144,),
    "sample.context_tokens": 192,
    "batch.lengths": (192,),
    "batch.loss_tokens": 48,
    "checkpoint.every": 1,
}


def command(folder, workdir):
    settings = {**SMALL, "model.path": str(folder)}
    return [
        sys.executable,
        "-m",
        "launch.train",
        "--config=configs/grpo_short.py:tiny",
        f"--workdir={workdir}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def one_device():
    """The environment of a user: none of the tests' eight devices."""
    return {**os.environ, "XLA_FLAGS": conftest.QUICK}


def last_state(workdir, groups=SMALL["algo.groups"]):
    config = grpo_short.get_config("tiny")
    config.algo.groups, config.algo.group = groups, SMALL["algo.group"]
    told = journal.read(workdir / queue.JOURNAL)
    return events.apply_all(ledger.new_state(queue.limits(config)), told), told


@pytest.mark.long
def test_a_killed_run_goes_on_and_the_laws_hold(tiny_folder, tmp_path):
    workdir = tmp_path / "run"
    with open(tmp_path / "log.txt", "w") as log:
        first = subprocess.Popen(
            command(tiny_folder, workdir), stdout=log, stderr=log, env=one_device()
        )
    try:
        wait_for(lambda: len(metrics.read(workdir / "metrics.jsonl")) >= 2, first)
    finally:
        first.kill()  # SIGKILL: nothing is said goodbye to
        first.wait()
    done = subprocess.run(
        command(tiny_folder, workdir),
        capture_output=True,
        text=True,
        env=one_device(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = metrics.read(workdir / "metrics.jsonl")
    assert [record["step"] for record in told] == list(range(1, ITERATIONS + 1))
    state, found = last_state(workdir)
    books.check(state)
    counts = books.counts(state)
    assert counts["groups"]["trained"] == ITERATIONS * SMALL["algo.groups"]
    assert events.trained_twice(found) == 0
    assert {"rolled_back", "restarted"} <= {event["kind"] for event in found}
    assert (workdir / "export" / "model.safetensors").exists()
    scored = [
        event["record"]["trajectory"] for event in found if event["kind"] == "scored"
    ]
    assert set(scored) <= set(store.listing(workdir / store.FOLDER))


def wait_for(condition, process, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < end, "the run came to nothing in time"
        time.sleep(0.2)
