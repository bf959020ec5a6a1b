"""The actors that play episodes: browser workers, and serving once there is a model.

It starts them, hands out jobs, and replaces a worker that died.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.runtime import cluster, own_judge, replicas
from openwebrl_jax.runtime.deaths import Deaths
from openwebrl_jax.runtime.worker import Job, Result, Worker

_CLOSE_S = 30.0
_STATS_S = 5.0


class Crew:
    """Owns the worker and serving actors of one driver."""

    def __init__(self, config: Any):
        self._config = config
        self._born = 0
        self.deaths = Deaths(config.rollout.workers)
        self.serving: Any = None  # None = no model yet
        self.rule: types.SamplingRule | None = None
        self.workers: dict[str, Any] = {}
        self.starts: dict[str, Any] = {}  # what is there when a worker has started
        self.judge: Any = None  # None = no judge of our own
        self._settings = config  # as the workers get it
        if config.reward.judge.workdir:
            self._settings = own_judge.as_trained(config)
        self.gather()

    def gather(self) -> None:
        """Hires what is missing: a judge of our own, workers."""
        workdir = self._config.reward.judge.workdir
        if workdir and self.judge is None:
            own = own_judge.own_config(workdir)
            self.judge = own_judge.serve(self._config, workdir, own)
        missing = self._config.rollout.workers - len(self.workers)
        ray.get([self.starts[self.hire()] for _ in range(missing)])

    def hire(self) -> str:
        """Calls for one more worker and returns its name.

        Nobody can say when it has started: a node may have to come back first.
        """
        name = f"worker-{self._born}"
        self._born += 1
        worker = cluster.actor(Worker, self._config, "browser")
        voice = (self.serving, self.rule) if self.rule is not None else ()
        self.starts[name] = worker.start.remote(
            self._settings, name, self.judge, *voice
        )
        self.workers[name] = worker
        return name

    def serve(self, folder: str, config: Any, host: Any = None) -> None:
        """Puts a checkpoint folder's policy before the workers, as version 0.

        Workers that are wanting are hired while the policy is loaded. `host` = the
        actor that serves beside its other work; None = serving gets its own.
        """
        self.dismiss()
        self.serving = host or replicas.make(self._config)
        start = self.serving.serve.remote(config, folder)
        self.gather()
        self.rule = ray.get(start)
        ray.get(
            [w.connect.remote(self.serving, self.rule) for w in self.workers.values()]
        )

    def dismiss(self) -> None:
        """Ends the serving actor, if there is one, and its replicas with it."""
        if self.serving is not None:
            cluster.kill(self.serving)
            self.serving = self.rule = None

    def play(
        self, jobs: Sequence[Job], folder: str, on_result: Callable[[Result], None]
    ) -> list[Result]:
        """Plays all jobs into a store's folder; results are in the order of the jobs.

        A worker's death costs the jobs that it held another try.
        """
        waiting = list(enumerate(jobs))[::-1]
        share = max(1, self._config.rollout.contexts // 2)
        results: dict[int, Result] = {}
        running: dict[Any, tuple[str, list[tuple[int, Job]]]] = {}

        def give(name: str) -> None:
            part = [waiting.pop() for _ in range(min(share, len(waiting)))]
            if part:
                ref = self.workers[name].play.remote([job for _, job in part], folder)
                running[ref] = (name, part)

        for name in list(self.workers) * 3:  # the next parts wait at the worker
            give(name)
        while running:
            (ref,), _ = ray.wait(list(running), num_returns=1)
            name, part = running.pop(ref)
            try:
                told = ray.get(ref) or []  # a worker that has started tells nothing
                for (index, _), result in zip(part, told, strict=True):
                    results[index] = result
                    on_result(result)
            except ray.exceptions.RayActorError:
                waiting += part
                name = self.replace(name)
                running[self.starts[name]] = (name, [])
                continue
            give(name)
        return [results[index] for index in range(len(jobs))]

    def replace(self, name: str) -> str:
        """Buries a dead worker and returns its successor's name; knows both names."""
        if name not in self.workers:  # another of its jobs has seen the death
            return next(reversed(self.workers))
        self.deaths.mourn(f"{name} died; another one takes its place")
        del self.workers[name], self.starts[name]
        return self.hire()

    def disband(self) -> None:
        """Ends what is left of all actors, at once."""
        cluster.kill(*self.workers.values())
        self.workers.clear()
        self.starts.clear()
        self._dismiss_judge()
        self.dismiss()

    def stats(self) -> Iterator[dict[str, float]]:
        """What the workers say of themselves; one that dies or hangs says nothing."""
        for ref in [worker.stats.remote() for worker in self.workers.values()]:
            with contextlib.suppress(ray.exceptions.RayError):
                yield ray.get(ref, timeout=_STATS_S)

    def serving_stats(self) -> dict[str, float]:
        """What serving says of itself; nothing if it dies or hangs."""
        with contextlib.suppress(ray.exceptions.RayError):
            return ray.get(self.serving.stats.remote(), timeout=_STATS_S)
        return {}

    def close(self) -> None:
        """Ends all actors; each worker its own browser first."""
        workers = list(self.workers.values())
        endings = [worker.close.remote() for worker in workers]
        ray.wait(endings, num_returns=len(endings), timeout=_CLOSE_S)
        cluster.kill(*workers)
        self._dismiss_judge()
        self.dismiss()

    def _dismiss_judge(self) -> None:
        if self.judge is not None:
            cluster.kill(self.judge)
            self.judge = None
