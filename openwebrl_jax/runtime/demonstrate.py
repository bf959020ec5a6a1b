"""Collects demonstrations: the task suite's oracle plays, trajectories are kept.

In: a config whose tasks bring an oracle. Out: `trajectories/` under the workdir and
`demonstrations.json`, the list of those that succeeded or were meant to err.
"""

import json
from pathlib import Path
from typing import Any

from openwebrl_jax.core import checks
from openwebrl_jax.core.types import Trajectory
from openwebrl_jax.rollout import build, store
from openwebrl_jax.runtime import cluster, progress
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.worker import Job, Result

LIST = "demonstrations.json"
_ASKED = "asked.json"  # what the list was made by


def load(workdir: str | Path) -> dict[str, Trajectory]:
    """What is learnt from a workdir: its list, else all that it stores of success."""
    kept = Path(workdir) / store.FOLDER
    stored = {name: store.load(kept, name) for name in names(workdir)}
    if (Path(workdir) / LIST).exists():
        return {name: trajectory for name, (trajectory, _) in stored.items()}
    return {
        name: trajectory
        for name, (trajectory, reward) in stored.items()
        if reward.is_valid and reward.value >= 1.0
    }


def names(workdir: str | Path) -> list[str]:
    """Of the trajectories that `load` looks at; each is the hash of its content."""
    path = Path(workdir) / LIST
    if path.exists():
        return json.loads(path.read_text())
    return store.listing(Path(workdir) / store.FOLDER)


def run(config: Any, workdir: str, *, episodes: int, error_rate: float) -> None:
    """The command: starts what is needed, collects, ends it."""
    checks.check_config(config, look_at_disk=False)
    build.check(config)
    cluster.check(config)
    check(workdir, config, episodes=episodes, error_rate=error_rate)
    with checks.held(workdir):
        cluster.start(config)
        try:
            crew = Crew(config)
            collect(crew, config, workdir, episodes=episodes, error_rate=error_rate)
            crew.close()
        finally:
            cluster.stop()


def check(workdir: str, config: Any, *, episodes: int, error_rate: float) -> None:
    """Refuses wrong numbers, and a workdir with a list that was asked for otherwise."""
    if episodes < 1 or not 0.0 <= error_rate <= 1.0:
        raise ValueError(
            f"episodes={episodes}, error={error_rate}; wanted at least one episode and "
            "a share from 0 to 1"
        )
    path = Path(workdir) / _ASKED
    here = _asked(config, episodes, error_rate)
    there = json.loads(path.read_text()) if path.exists() else here
    if there != here:
        raise ValueError(
            f"{workdir} holds demonstrations of {there}, wanted {here}; take another "
            "--workdir"
        )


def _asked(config: Any, episodes: int, error_rate: float) -> dict[str, Any]:
    names = list(config.tasks.names)
    asked = {"episodes": episodes, "error": error_rate, "seed": config.seed}
    return asked | {"tasks": names}


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
    cluster.check_shared(workdir, crew.workers.values())
    tasks = build.make_source(config, "train")
    jobs = [
        Job(task=tasks.task_at(n), key=(config.seed, n, 0), error_rate=error_rate)
        for n in range(episodes)
    ]
    bar = progress.Bar("demonstrations", len(jobs))
    results = crew.play(
        jobs,
        str(Path(workdir) / store.FOLDER),
        lambda result: bar.tick(bool(result.is_success)),
    )
    bar.close()
    listed = sorted(
        {result.trajectory for result in results if result.is_success is not None}
    )
    asked = json.dumps(_asked(config, episodes, error_rate))
    checks.keep_text(Path(workdir) / _ASKED, asked)
    checks.keep_text(path, json.dumps(listed))
    return results
