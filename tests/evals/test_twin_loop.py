"""The twin against the real loop on scripted pages, at sizes it was not fitted on.

The real ledger, journal, store, worker, learner, batcher and metrics in one process;
pages, steps of the sampler and updates take as long as they would elsewhere by
sleeping, so that the twin is tested and not the cores of this machine.
"""

import asyncio
import contextlib
import functools
import io
import json
import threading
import time
import types as python

import jax
import numpy as np
import pytest

from configs import grpo_short
from openwebrl_jax.agent import grammar
from openwebrl_jax.batch import feed
from openwebrl_jax.core import checks, metrics, types
from openwebrl_jax.evals import twin, twin_fit
from openwebrl_jax.learn import setup
from openwebrl_jax.policy import batcher, speaker
from openwebrl_jax.rollout import store
from openwebrl_jax.runtime import learner, news, queue, worker
from openwebrl_jax.web import fake
from tests.runtime import test_learner_exact as exact

RESET_S, ACT_S, LEARN_S = 0.25, 0.15, 1.0
STEP_S, ROW_S = 0.015, 0.005  # of the sampler
SETTINGS = {
    **exact.SETTINGS,
    "tasks.max_turns": 3,
    "tasks.train_seeds": (0, 10_000),
    "tasks.floor": 1.0,
    "agent.parse_failures": 3,
    "algo.group": 4,
    "algo.iterations": 18,
    "sample.context_tokens": 512,
    "sample.prompt_buckets": (464,),
    "batch.lengths": (512,),
    "batch.loss_tokens": 144,
    "checkpoint.every": 5,
}


class SlowEnv(fake.FakeEnv):
    async def reset(self, task):
        await asyncio.sleep(RESET_S)
        return await super().reset(task)

    async def step(self, calls):
        await asyncio.sleep(ACT_S)
        return await super().step(calls)


class SlowLearner(learner.Learner):
    def _learn(self, groups, iteration):
        time.sleep(LEARN_S)
        return super()._learn(groups, iteration)


class Steps:
    """A `batcher.Work` whose steps cost what a device's would, and count as ours do."""

    def __init__(self):
        self.totals = dict.fromkeys(speaker.COUNTED, 0.0)
        self.version, self._lines = 0, []

    def add(self, item, came_s, finish):
        self._lines.append([item, time.monotonic() - came_s, finish])

    def step(self):
        start_s, rows = time.monotonic(), len(self._lines)
        time.sleep(STEP_S + ROW_S * rows)
        spent_s = time.monotonic() - start_s
        counts = {"busy_s": spent_s, "steps": 1, "row_steps": rows}
        counts |= {"row_steps_sq": rows**2, "row_s": rows * spent_s}
        for line in self._lines:
            line[0] -= 1
            if not line[0]:
                line[2]((self.version, line[1]))
                self.totals["replies"] += 1
        self._lines = [line for line in self._lines if line[0]]
        for name, count in counts.items():
            self.totals[name] += count

    def drop(self):
        self._lines = []


class Policy:
    """Clicks, scrolls or babbles, at random, and talks for longer or shorter."""

    def __init__(self, chat, slots):
        self._chat, self._steps, self._told = chat, Steps(), {}
        self._batcher = batcher.Batcher(self._steps, slots)

    async def load(self, version, leaves):
        await self._batcher.between(lambda: setattr(self._steps, "version", version))

    async def sample(self, request):
        draw = np.random.default_rng(request.key)
        name, arguments = "click", {"point_2d": draw.choice([200, 280, 720, 800], 2)}
        arguments["point_2d"] = arguments["point_2d"].tolist()
        if draw.random() < 0.4:
            name, arguments = "hover", arguments
        call = types.ToolCall(name=name, arguments=arguments)
        text = grammar.render("hm " * draw.integers(1, 9), (call,))
        response = self._chat.encode_reply(text)
        seen, remembered = self._chat.user(request.segments[-1], 35)
        version, queued_s = await self._batcher.submit(1 + len(response) // 8)
        return types.Reply(
            text=text,
            system_ids=self._chat.system(request.segments[0]),
            seen_ids=seen,
            remembered_ids=self._chat.remembered(remembered, response),
            response_ids=response,
            closing_ids=self._chat.closing(response),
            logprobs=tuple((-draw.random(len(response))).tolist()),
            version=version,
            queued_s=queued_s,
        )

    async def release(self, episode_id):
        pass

    async def stats(self):
        totals = dict(self._steps.totals)
        told = {name: totals[name] - self._told.get(name, 0.0) for name in totals}
        self._told = totals
        return told | {"compilations": 0.0, "replicas": 1.0}

    async def close(self):
        await self._batcher.close()


class Near:
    """Stands for `cluster.Near`: what is asked runs on the other thread's loop."""

    def __init__(self, thing, loop):
        self._thing, self._loop = thing, loop

    def __getattr__(self, name):
        method = getattr(self._thing, name)

        def call(*given):
            asked = asyncio.run_coroutine_threadsafe(method(*given), self._loop)
            return asked.result()

        return call


@contextlib.contextmanager
def a_loop():
    """An event loop in a thread of its own, where workers and ledger live."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def run(model, workdir, patch, **changes):
    """A whole RL stage; its metrics are written as `runtime.train` does it."""
    config = grpo_short.get_config("tiny")
    config.update_from_flattened_dict(SETTINGS | changes)
    checks.keep_config(workdir, config)
    made = feed.make_feed(model, config)
    policy, actor = Policy(made.chat, config.sample.slots), SlowLearner()
    ledger, player = queue.Queue(), worker.Worker()
    with a_loop() as loop:
        near = functools.partial(Near, loop=loop)
        patch.setattr(news.cluster, "Near", near)
        done, snapshot = actor.start(config, str(workdir), str(model))
        near(ledger).start(config, str(workdir), snapshot, done)
        near(player).start(config, "w")
        player._runner.connect(policy, made.rule)
        actor.connect(near(ledger), near(policy))
        crew = python.SimpleNamespace(
            serving_stats=near(policy).stats, stats=lambda: [near(player).stats()]
        )
        told_of = news.News(config, ledger, crew)
        pulls = asyncio.run_coroutine_threadsafe(
            player.serve(exact.Far(ledger), str(workdir / store.FOLDER)), loop
        )
        writer = metrics.Writer(workdir, stream=io.StringIO())
        for iteration, told in actor.grpo():
            writer.write(iteration, told | told_of.read())
        writer.close()
        near(ledger).close()
        pulls.result()
        near(player).close()
        near(policy).close()
    actor._keeper.close()
    actor._fence.close()
    ledger._fence.close()
    ledger._journal.close()
    return twin_fit.read(workdir)


@pytest.mark.long
def test_the_twin_foretells_runs_that_it_was_not_fitted_on(
    tiny_folder, tmp_path, monkeypatch
):
    """Rates within 15 %, idle shares within 0.15; staleness within 0.25 versions."""
    one = functools.partial(setup.mesh.make_mesh, devices=jax.devices()[:1])
    monkeypatch.setattr(setup.mesh, "make_mesh", one)
    monkeypatch.setattr(fake, "FakeEnv", SlowEnv)
    model = exact.shrink(tiny_folder, tmp_path / "model")
    sizes = {
        "fitted": {"rollout.contexts": 4, "algo.eta": 1},
        "more browsers": {"rollout.contexts": 8, "algo.eta": 1},
        "synchronous": {"rollout.contexts": 4, "algo.eta": 0},
        "both": {"rollout.contexts": 12, "algo.eta": 0},
    }
    runs = {
        name: run(model, tmp_path / name, monkeypatch, **changes)
        for name, changes in sizes.items()
    }
    fit, faults = runs["fitted"].fit, []
    assert runs["fitted"].is_row_known
    for name, real in runs.items():
        told = twin.figures(twin.simulate(fit, real.fit.sizes, seed=0, updates=200))
        for key, wanted in twin.figures(real.measured).items():
            off, most = told[key] - wanted, 0.25 if key == "staleness" else 0.15
            if "_per_" in key:
                off /= wanted
            print(json.dumps([name, key, round(wanted, 3), round(told[key], 3)]))
            faults += [f"{name}: {key} is off by {off:+.3f}"] * (abs(off) > most)
    assert not faults, "\n".join(faults)
