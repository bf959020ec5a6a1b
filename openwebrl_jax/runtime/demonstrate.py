"""Collects demonstrations: the task suite's oracle plays, trajectories are kept.

In: a config whose tasks bring an oracle. Out: `trajectories/` under the workdir and
`demonstrations.json`, the list of those that succeeded or were meant to err.
"""

import json
from pathlib import Path
from typing import Any

from openwebrl_jax.core import checks
from openwebrl_jax.rollout import build, store
from openwebrl_jax.runtime import cluster, progress
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.worker import Job, Result

LIST = "demonstrations.json"


def names(workdir: str | Path) -> list[str]:
    """Trajectories of a workdir to learn from: its list, else all that it stores."""
    path = Path(workdir) / LIST
    if path.exists():
        return json.loads(path.read_text())
    return store.listing(Path(workdir) / store.FOLDER)


def run(config: Any, workdir: str, *, episodes: int, error_rate: float) -> None:
    """The command: starts what is needed, collects, ends it."""
    checks.check_config(config, look_at_disk=False)
    cluster.start(config)
    try:
        crew = Crew(config)
        collect(crew, config, workdir, episodes=episodes, error_rate=error_rate)
        crew.close()
    finally:
        cluster.stop()


def collect(
    crew: Crew, config: Any, workdir: str, *, episodes: int, error_rate: float
) -> list[Result]:
    """Plays `episodes` training tasks; a list that is already there is kept.

    An imperfect teacher names the wrong target on a share `error_rate` of the pages
    where one can be confused; those episodes stay in the list.
    """
    path = Path(workdir) / LIST
    if path.exists():
        return []
    tasks = build.make_source(config, "train")
    jobs = [
        Job(task=tasks.task_at(n), key=(config.seed, n, 0), error_rate=error_rate)
        for n in range(episodes)
    ]
    bar = progress.Bar("demonstrations", len(jobs))
    results = crew.play(
        jobs,
        str(Path(workdir) / store.FOLDER),
        lambda result: bar.tick(result.value >= 1.0),
    )
    bar.close()
    listed = sorted({result.trajectory for result in results if result.is_valid})
    path.write_text(json.dumps(listed))
    return results
