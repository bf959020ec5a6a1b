"""The driver of one training run: checks, actors, metrics, a clean end.

It holds no arrays and touches no jax backend. A run that was killed goes on from its
newest checkpoint when the same command is given again.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.batch import feed
from openwebrl_jax.core import checks, metrics, types
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build, score, store
from openwebrl_jax.runtime import cluster, watch
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.learner import Learner
from openwebrl_jax.runtime.queue import Queue

_SHOWN = {
    "sft": ("learner/loss",),
    "grpo": ("rollout/success", "rollout/mixed", "learner/ratio", "episodes_per_s"),
}


def run(config: Any, workdir: str) -> None:
    """The command: everything is checked before anything is started."""
    origin = check(config, workdir)
    with checks.held(workdir):
        cluster.start(config)
        try:
            if config.stage == "sft":
                sft(config, workdir, origin)
            else:
                crew = Crew(config)
                grpo(config, workdir, origin, crew)
                crew.close()
        finally:
            cluster.stop()


def check(config: Any, workdir: str) -> str:
    """Refuses what cannot run; returns the checkpoint folder to begin from."""
    checks.check_config(config)
    if config.agent.lenient and config.stage == "grpo":
        raise ValueError(
            "config.agent.lenient=True would reward malformed replies; it is for "
            "measuring models that are not trained here, set it to False"
        )
    build.check(config)
    cluster.check(config)
    origin = folder.find(
        config.init_from or config.model.path, command=config.init_command
    )
    folder.check(origin)
    feed.check(origin, config)
    checks.check_workdir(workdir, config)
    return str(origin)


def sft(config: Any, workdir: str, origin: str) -> str:
    """Runs the SFT stage and returns the exported folder."""
    checks.keep_config(workdir, config)
    learner = _actor(Learner, config, "learner")
    ray.get(learner.start.remote(config, workdir, origin))
    writer = metrics.Writer(
        workdir, stage="sft", total=config.sft.steps, show=_SHOWN["sft"]
    )
    stream = learner.sft.options(num_returns="streaming").remote()
    for step, told in map(ray.get, stream):
        writer.write(step, told)
    writer.close()
    return _end(learner)


def grpo(config: Any, workdir: str, origin: str, crew: Crew) -> str:
    """Runs the RL stage with the crew's workers and returns the exported folder."""
    checks.keep_config(workdir, config)
    learner, queue = _actor(Learner, config, "learner"), _actor(Queue, config, "ledger")
    start = learner.start.remote(config, workdir, origin)
    if crew.serving is None:
        crew.serve(origin, config)
    done, snapshot = ray.get(start)
    ray.get(queue.start.remote(config, workdir, snapshot, done))
    writer = metrics.Writer(
        workdir, stage="rl", total=config.algo.iterations, show=_SHOWN["grpo"]
    )
    news = _News(queue)
    judges = watch.Watch(config, crew.judge)
    for iteration, told in _supervised(crew, queue, learner, workdir):
        told |= news.read()
        told |= judges.see(iteration, news.slots)
        judges.check(writer.write(iteration, told))
    writer.close()
    ray.get(queue.close.remote())
    ray.kill(queue)
    return _end(learner)


def _supervised(
    crew: Crew, queue: Any, learner: Any, workdir: str
) -> Iterator[tuple[int, dict[str, float]]]:
    """What the learner tells, while dead workers are replaced."""
    stream = learner.grpo.options(num_returns="streaming").remote(queue, crew.serving)
    kept = str(Path(workdir) / store.FOLDER)
    serving = {w.serve.remote(queue, kept): name for name, w in crew.workers.items()}
    while True:
        (ref,), _ = ray.wait([stream, *serving], num_returns=1)
        if ref is stream:
            try:
                told: Any = ray.get(next(stream))
            except StopIteration:
                return
            yield told
            continue
        name = serving.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError:
            ray.get(queue.worker_lost.remote(name))
            name = crew.replace(name)
            serving[crew.workers[name].serve.remote(queue, kept)] = name


class _News:
    """Turns what the ledger counted between two iterations into metrics."""

    def __init__(self, queue: Any):
        self._queue = queue
        # A resumed run does not tell once more what happened before.
        counts, _ = ray.get(queue.news.remote())
        self._kept, self._dropped = self._closed(counts)
        self._clock = metrics.Stopwatch()
        self.slots: list[types.Slot] = []  # of the last call

    def read(self) -> dict[str, float]:
        """Metrics of all results since the last call, kept groups or not."""
        counts, slots = ray.get(self._queue.news.remote())
        seconds = self._clock.lap()
        kept, dropped = self._closed(counts)
        new_kept, new_dropped = kept - self._kept, dropped - self._dropped
        self._kept, self._dropped = kept, dropped
        closed = new_kept + new_dropped  # 0 while groups are replayed from disk
        mixed = [new_kept / closed] if closed else []
        valid = [slot for slot in slots if slot.reward.is_valid]
        turns = sum(slot.turns for slot in slots)
        told = {
            "rollout/success": [score.is_success(slot.reward) for slot in valid],
            "rollout/reward": [slot.reward.value for slot in valid],
            "rollout/turns": [slot.turns for slot in valid],
            "rollout/episodes": len(slots),
            "rollout/mixed": mixed,
            "rollout/void_frac": metrics.share(len(slots) - len(valid), len(slots)),
            "useful_frac": mixed,
            "episodes_per_s": metrics.share(len(slots), seconds),
            "env_steps_per_s": metrics.share(turns, seconds),
        }
        self.slots = slots
        causes = Counter(slot.reward.cause or slot.cause for slot in slots)
        told |= {f"cause/{cause}": count for cause, count in causes.items()}
        formats = sum((Counter(slot.format) for slot in slots), Counter())
        told |= {f"format/{name}_turns": count for name, count in formats.items()}
        return told

    @staticmethod
    def _closed(counts: Any) -> tuple[int, int]:
        """Groups that were kept so far, and that were filtered."""
        groups = counts["groups"]
        kept = sum(groups[stage] for stage in ("trained", "waiting", "taken"))
        return kept, groups["filtered"]


def _actor(kind: Any, config: Any, role: str) -> Any:
    return kind.options(**cluster.options(config, role)).remote()


def _end(learner: Any) -> str:
    exported: Any = ray.get(learner.export.remote())
    ray.kill(learner)
    return exported
