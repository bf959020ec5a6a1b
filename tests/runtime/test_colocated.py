"""A learner and serving in one process: the same run, its devices used in turns."""

import asyncio
import subprocess
import threading
import time

import pytest

from openwebrl_jax.core import metrics
from openwebrl_jax.policy import batcher
from openwebrl_jax.runtime import colocated
from tests.runtime import test_train


def test_turns_are_taken_in_the_order_in_which_they_were_asked_for():
    """Whoever lets go of it asks behind those that wait already."""
    turns, order, ended = colocated.Turns(), [], []

    def work(name):
        for _ in range(20):
            with turns:
                order.append(name)
                while turns._asked < turns._now + 2 and not ended:
                    time.sleep(0.001)  # the other one comes to wait
        ended.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    middle = "".join(order[2:-2])
    assert "aaa" not in middle and "bbb" not in middle


def test_turns_go_on_after_an_error():
    turns = colocated.Turns()
    with pytest.raises(RuntimeError), turns:
        raise RuntimeError
    with turns:
        pass


class Busy:
    """Sampler's work of 20 steps; notes when anybody is beside it."""

    def __init__(self, beside, turns):
        self.beside, self.turns, self.left, self.found = beside, turns, 20, []

    def add(self, item, came_s, finish):
        self.finish = finish

    def step(self):
        self.found.append(self.beside.is_set())
        while self.turns._asked < 2:
            time.sleep(0.001)  # the update comes to wait
        time.sleep(0.001)
        self.found.append(self.beside.is_set())
        self.left -= 1
        if not self.left:
            self.finish("done")

    def drop(self):
        raise AssertionError


async def test_a_sampler_and_an_update_take_turns():
    """Neither runs beside the other, and neither waits until the other has ended."""
    turns, updating = colocated.Turns(), threading.Event()
    work = Busy(updating, turns)
    one = batcher.Batcher(work, 1, turns)

    def update():
        seen = []
        for _ in range(5):
            with turns:
                updating.set()
                seen.append(work.left)
                time.sleep(0.002)
                updating.clear()
        return seen

    task = asyncio.create_task(one.submit("item"))
    while not work.found:
        await asyncio.sleep(0)
    seen = await asyncio.to_thread(update)
    assert await task == "done"
    await one.close()
    assert not any(work.found)
    assert 0 < seen[-1] < seen[0]


@pytest.mark.long
def test_losses_are_those_of_two_processes(tiny_folder, tmp_path):
    """At eta = 0, with replies equal to the bit, all that is learnt is the same."""
    told = {}
    for name in ("False", "True"):
        done = subprocess.run(
            [
                *test_train.command(tiny_folder, tmp_path / name),
                "--config.algo.eta=0",
                "--config.algo.iterations=3",
                "--config.sample.static=True",
                f"--config.cluster.colocated={name}",
                "--config.cluster.peak_tflops=0.1",
            ],
            capture_output=True,
            text=True,
            env=test_train.one_device(),
            timeout=140,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        records = metrics.read(tmp_path / name / "metrics.jsonl")
        for record in records:
            done_flops = record["learner/flops"] * record["learner/steps"]
            possible = 0.1e12 * record["learner/busy_s"]
            assert record["mfu"] == pytest.approx(done_flops / possible)
            assert 0.0 < record["mfu"] < 1.0
        told[name] = [
            {
                key: value
                for key, value in record.items()
                if key.startswith(("learner/", "rollout/", "staleness/"))
                and not key.endswith(("_s", "idle_frac"))
            }
            for record in records
        ]
        assert "Using blocking ray.get" not in done.stderr
    assert len(told["True"]) == 3
    assert told["True"] == told["False"]
