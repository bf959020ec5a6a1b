"""The learner as an actor: it takes groups, makes versions, keeps checkpoints.

One process or several, one mesh, one update for both stages. `sft` and `grpo` are
generators of (step, metrics): what they yield is written by the driver.
"""

import contextlib
import functools
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openwebrl_jax.batch import feed, rows
from openwebrl_jax.core import metrics, types
from openwebrl_jax.learn import checkpoint, flops, folder, hosts, loop, optim, setup
from openwebrl_jax.learn import state as states
from openwebrl_jax.rollout import store
from openwebrl_jax.runtime import cluster, demonstrate

_LEDGER = "ledger.json"
_TOLD_EVERY = 10  # SFT steps between two lines of metrics

Told = tuple[int, dict[str, float]]


class Learner:
    """Owns the TrainState, the jitted update and the checkpoints of one run.

    It knows the ledger (`runtime.queue`) and serving by their methods alone.
    """

    def __init__(self, turns: contextlib.AbstractContextManager | None = None):
        """`turns`: when the devices are its own, beside a sampler in this process.

        None = always; serving is elsewhere.
        """
        self._turns = turns

    def place(self) -> int:
        """This host's place in its TPU slice, which numbers processes by it; else 0."""
        return int(os.environ.get("TPU_WORKER_ID") or 0)

    def address(self) -> str:
        """Where the other processes of a learner can find this one."""
        return f"{cluster.here()}:{hosts.free_port()}"

    def start(
        self,
        config: Any,
        workdir: str,
        origin: str,
        seat: hosts.Seat = hosts.ALONE,
    ) -> tuple[int, bytes | None]:
        """Loads the newest checkpoint, or else the folder `origin`.

        Returns the step (sft) or iteration (grpo) that is done and the ledger's
        snapshot of then, None where there is none.
        """
        hosts.join(seat)
        self._config = config
        self._workdir = Path(workdir)
        if hosts.is_first():
            self._fence = cluster.fence(self._workdir / "learner.lock")
        found = folder.find(origin)
        self._policy = folder.read(found)
        self._feed = feed.make_feed(str(found), config)
        self._update, self._state = setup.make(self._policy, config, self._feed.rule)
        if self._turns is not None:
            self._update = self._update.in_turns(self._turns)
        self._keeper = checkpoint.Checkpointer(
            self._workdir / "checkpoints", config.checkpoint.keep
        )
        self._done = hosts.agree(self._keeper.latest() or 0)
        if not self._done:
            return 0, None
        self._state, extras = self._keeper.restore(self._done, self._state)
        return self._done, extras.get(_LEDGER)

    def sft(self) -> Iterator[Told]:
        """MT-SFT over the configured demonstrations, to the last step."""
        stream = self._feed.sft_stream(self._config, _demonstrations(self._config))
        last, every = self._config.sft.steps, self._config.checkpoint.every
        steps = (
            (
                step,
                self._feed.batches(stream.rows_at(step - 1)),
                optim.tail(self._config.optim, (step - 1) / last),
            )
            for step in range(self._done + 1, last + 1)
        )
        watch, flops_done = metrics.Stopwatch(), 0.0
        for step, told in self._run(steps):
            flops_done += told["learner/flops"]
            if step % _TOLD_EVERY == 0 or step == last:
                yield step, told | self._utilisation(flops_done, watch.lap())
                flops_done = 0.0
            if step % every == 0 or step == last:
                self._keeper.save(step, self._state, {})
        self._keeper.wait()

    def connect(self, queue: Any, serving: Any) -> None:
        """Makes serving speak with the newest version, before anything is asked of it.

        Both are actors, or stand in for them with the same methods.
        """
        self._queue, self._serving = hosts.Heard(queue), hosts.Heard(serving)
        self._publish(self._done)

    def grpo(self) -> Iterator[Told]:
        """MM-GRPO: an iteration is B groups, some steps, one published version."""
        kept_s = 0.0  # until the last iteration was written down and kept
        for iteration in range(self._done + 1, self._config.algo.iterations + 1):
            began_s = time.monotonic()
            groups = self._queue.take(self._config.algo.groups)
            taken_s = time.monotonic()
            told = self._learn(groups, iteration)
            ordinals = [group.ordinal for group in groups]
            snapshot = self._queue.trained(iteration, ordinals, iteration)
            learnt_s = time.monotonic()
            self._publish(iteration)
            published_s = time.monotonic()
            busy_s, wait_s = learnt_s - taken_s, taken_s - began_s
            told |= {
                "learner/wait_batch_s": wait_s,
                "learner/busy_s": busy_s,
                "learner/idle_frac": metrics.share(wait_s, wait_s + busy_s),
                "tokens_per_s": metrics.share(told["learner/tokens_trained"], busy_s),
                "learner/publish_s": published_s - learnt_s,
                "learner/devices": hosts.devices(),
                "bubble_s": published_s - learnt_s + kept_s,
            }
            flops_done = told["learner/flops"] * told["learner/steps"]
            told |= self._utilisation(flops_done, busy_s)
            told_s = time.monotonic()
            yield iteration, told
            self._keep(iteration, snapshot)
            kept_s = time.monotonic() - told_s
        self._keeper.wait()

    def tell(self, stage: str) -> Iterator[Told | None]:
        """Runs a stage and yields what it tells, each time followed by None.

        Whoever takes the None has written down what came before it. Only then is a
        checkpoint made: no death of the driver leaves one without its record.
        """
        for told in getattr(self, stage)():
            yield told
            yield None

    def follow(self, stage: str) -> None:
        """Does what the first process does, whose word counts."""
        for _ in getattr(self, stage)():
            pass

    def export(self) -> str:
        """Writes the policy as a checkpoint folder and returns its path."""
        target = self._workdir / folder.EXPORT
        folder.write(self._policy, self._state.params, target)
        return str(target)

    def _learn(self, groups: Sequence[types.Group], iteration: int) -> dict[str, float]:
        """All steps of an iteration; metrics are means over them."""
        algo = self._config.algo
        played = self._trajectories(groups)
        made = self._feed.rows(groups, played)
        if algo.old_logp == "proximal":
            made = self._decoupled(made)
        turns = rows.turn_counts(made)
        tokens = algo.constant_k or (
            self._config.sample.response_tokens * self._config.tasks.max_turns
        )
        parts = [
            rows.weigh(part, algo.weighting, turns, tokens)
            for epoch in range(algo.ppo_epochs)
            for part in rows.minibatches(
                made,
                algo.minibatch_turns,
                seed=self._config.seed,
                iteration=iteration,
                epoch=epoch,
            )
        ]
        rate = optim.tail(self._config.optim, (iteration - 1) / algo.iterations)
        steps = ((n, self._feed.batches(part), rate) for n, part in enumerate(parts))
        told = [numbers for _, numbers in self._run(steps)]
        tokens = sum(numbers.get("learner/tokens", 0.0) for numbers in told)
        spread = metrics.spread("staleness", _ages(groups, iteration))
        return _mean(told) | {
            **spread,
            "learner/tokens_trained": tokens,
            "learner/steps": len(told),
        }

    def _run(self, steps: Iterable[loop.Step]) -> Iterator[tuple[Any, dict]]:
        """Takes the steps and yields (name, metrics); the state is kept up to date."""
        done: dict[Any, float] = defaultdict(float)

        def counted(name, batches):
            for batch in batches:
                done[name] += flops.of_update(
                    self._policy.sizes,
                    batch,
                    train_vision=self._config.model.train_vision,
                )
                yield batch

        steps = ((name, counted(name, part), rate) for name, part, rate in steps)
        for name, state, told in loop.run(self._state, steps, self._update):
            self._state = state
            yield name, told | {"learner/flops": done.pop(name, 0.0)}

    def _utilisation(self, done: float, busy_s: float) -> dict[str, float]:
        """The share of what the devices can do; nothing where that is not known."""
        wanted = self._config.cluster.peak_tflops, self._config.model.dtype
        possible = flops.peak(*wanted) * busy_s
        return {"mfu": done / possible} if possible else {}

    def _trajectories(
        self, groups: Sequence[types.Group]
    ) -> dict[str, types.Trajectory]:
        where = self._workdir / store.FOLDER
        return {
            slot.trajectory: store.load(where, slot.trajectory)[0]
            for group in groups
            for slot, advantage in zip(group.slots, group.advantages, strict=True)
            if advantage is not None
        }

    def _decoupled(self, made: Sequence[types.Row]) -> list[types.Row]:
        """Rows with log-probs recomputed before the iteration's first step."""
        logps = functools.partial(self._update.logps, self._state.params)
        return [
            rows.decouple(row, logp) for row, logp in self._feed.scored(made, logps)
        ]

    def _publish(self, version: int) -> None:
        """Serving has the version when this returns."""
        give = states.to_host if self._turns is None else states.on_devices
        self._serving.load(version, give(self._state.params))
        self._queue.acknowledged(version)

    def _keep(self, iteration: int, snapshot: bytes) -> None:
        every, last = self._config.checkpoint.every, self._config.algo.iterations
        if iteration % every == 0 or iteration == last:
            self._keeper.save(iteration, self._state, {_LEDGER: snapshot})
            oldest = hosts.agree(self._keeper.oldest() or 0)
            if oldest:
                self._queue.checkpointed(oldest)


def _demonstrations(config: Any) -> dict[str, types.Trajectory]:
    """Trajectories of the configured workdirs, by hash, in a fixed order."""
    found: dict[str, types.Trajectory] = {}
    for workdir in config.sft.data:
        more = demonstrate.load(workdir)
        if not more:
            raise ValueError(
                f"config.sft.data: {workdir} holds no trajectory to learn from; "
                "python -m launch.demonstrate makes some"
            )
        found |= more
    return found


def _ages(groups: Sequence[types.Group], iteration: int) -> list[int]:
    """Versions since the oldest token of each episode that is trained on."""
    return [
        iteration - 1 - min(slot.versions)
        for group in groups
        for slot, advantage in zip(group.slots, group.advantages, strict=True)
        if advantage is not None and slot.versions
    ]


def _mean(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name: None for numbers in told for name in numbers}
    return {
        name: sum(numbers.get(name, 0.0) for numbers in told) / len(told)
        for name in names
    }
