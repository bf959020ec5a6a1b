"""The actors that play episodes: browser workers, and serving once there is a model.

It starts them, hands out jobs, and replaces a worker that died.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.runtime import cluster, judge
from openwebrl_jax.runtime.serving import Serving
from openwebrl_jax.runtime.worker import Job, Result, Worker

_RESTARTS = 10  # of workers in one run; more is no accident
_CLOSE_S = 30.0


class Crew:
    """Owns the worker and serving actors of one driver."""

    def __init__(self, config: Any):
        self._config = config
        self._born = 0
        self.serving: Any = None  # None = no model yet
        self.rule: types.SamplingRule | None = None
        self.workers: dict[str, Any] = {}
        self.judge: Any = None  # None = no judge of our own
        workdir = config.reward.judge.workdir
        if workdir:
            self.judge = judge.serve(config, workdir, judge.own_config(workdir))
            self._config = judge.as_trained(config)
        for _ in range(config.rollout.workers):
            self.hire()

    def hire(self) -> str:
        """Starts one more worker and returns its name."""
        if self._born >= self._config.rollout.workers + _RESTARTS:
            raise RuntimeError(f"{_RESTARTS} browser workers died; see Ray's logs")
        name = f"worker-{self._born}"
        self._born += 1
        worker = Worker.options(**cluster.options(self._config, "browser")).remote()
        ray.get(
            worker.start.remote(self._config, name, self.judge)
        )  # its methods interleave
        if self.serving is not None:
            ray.get(worker.connect.remote(self.serving, self.rule))
        self.workers[name] = worker
        return name

    def serve(self, folder: str, config: Any) -> None:
        """Puts a checkpoint folder's policy before the workers, as version 0."""
        kind = cluster.options(self._config, "serving")
        self.dismiss()
        self.serving = Serving.options(**kind).remote()
        self.rule = ray.get(self.serving.start.remote(config, folder))
        ray.get(
            [w.connect.remote(self.serving, self.rule) for w in self.workers.values()]
        )

    def dismiss(self) -> None:
        """Ends the serving actor, if there is one."""
        if self.serving is not None:
            ray.kill(self.serving)
            self.serving = None

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
                for (index, _), result in zip(part, ray.get(ref), strict=True):
                    results[index] = result
                    on_result(result)
            except ray.exceptions.RayActorError:
                waiting += part
                name = self.replace(name)
            give(name)
        return [results[index] for index in range(len(jobs))]

    def replace(self, name: str) -> str:
        """Buries a dead worker and returns its successor's name; knows both names."""
        if name not in self.workers:  # another of its jobs has seen the death
            return next(reversed(self.workers))
        del self.workers[name]
        return self.hire()

    def close(self) -> None:
        """Ends all actors; each worker its own browser first."""
        workers = list(self.workers.values())
        ray.get([worker.close.remote() for worker in workers], timeout=_CLOSE_S)
        for worker in workers:
            ray.kill(worker)
        if self.judge is not None:
            ray.kill(self.judge)
        self.dismiss()
