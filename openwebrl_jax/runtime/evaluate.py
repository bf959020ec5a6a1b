"""Success of a policy on held-out tasks, sampled as in training and greedy.

In: a checkpoint folder. Out: `evaluation.json` with rates, intervals, causes, and the
outcome of each task, so that two evaluations can be compared in pairs.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from openwebrl_jax.batch import feed
from openwebrl_jax.core import checks
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build, score, store
from openwebrl_jax.runtime import cluster, own_judge, progress
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.worker import Job, Result

REPORT = "evaluation.json"
FOLDER = "evaluation"  # its trajectories lie apart from those that are trained on
_PURPOSE = 1_000_003  # keeps an evaluation's token streams apart from training's


def run(config: Any, workdir: str, model: str) -> None:
    """The command: starts what is needed, measures, ends it."""
    config.init_from = ""  # where training begins is not asked for here
    checks.check_config(config)
    build.check(config)
    cluster.check(config)
    origin = folder.find(model or workdir).absolute()
    folder.check(origin)
    feed.check(origin, config, build.opening(config))
    cluster.start(config)
    try:
        crew = Crew(config)
        crew.serve(str(origin), config)
        told = measure(crew, config, str(Path(workdir) / FOLDER), "evaluation")
        crew.close()
    finally:
        cluster.stop()
    (Path(workdir) / REPORT).write_text(json.dumps(told, indent=1))
    print(json.dumps({mode: rate(numbers) for mode, numbers in told.items()}))


def measure(crew: Crew, config: Any, workdir: str, stage: str) -> dict[str, Any]:
    """Plays the held-out tasks with the policy that the crew now serves."""
    cluster.check_shared(workdir, crew.workers.values())
    tasks = build.make_source(config, "heldout")
    modes = {"sampled": config.evaluate.samples, "greedy": int(config.evaluate.greedy)}
    jobs = {
        mode: [
            Job(
                task=tasks.task_at(n),
                key=(config.seed + _PURPOSE, n, slot),
                is_greedy=mode == "greedy",
            )
            for n in range(config.evaluate.episodes)
            for slot in range(count)
        ]
        for mode, count in modes.items()
    }
    kept = str(Path(workdir) / store.FOLDER)
    told: dict[str, Any] = {}
    for mode, wanted in jobs.items():
        results = _play(crew, wanted, kept, f"{stage}, {mode}")
        told[mode] = _summary(results) | {"judge": own_judge.identity(config)}
    return told


def gain(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The paired gain between two evaluations; refuses those of two judges."""
    judges = [told.get("judge") for told in (before, after)]
    if None not in judges and judges[0] != judges[1]:
        raise ValueError(
            f"success was judged by {judges[0]} before and by {judges[1]} after; "
            "wanted two evaluations by the same judge"
        )
    early, late = (
        [each["success"] for each in told["episodes"]] for told in (before, after)
    )
    return score.paired_gain(early, late)


def rate(told: dict[str, Any]) -> dict[str, Any]:
    """Of an evaluation's mode only the rate and its interval."""
    return {name: told[name] for name in ("rate", "low", "high", "n")}


def _play(crew: Crew, jobs: list[Job], kept: str, stage: str) -> list[Result]:
    bar = progress.Bar(stage, len(jobs))
    results = crew.play(jobs, kept, lambda result: bar.tick(bool(result.is_success)))
    bar.close()
    return results


def _summary(results: list[Result]) -> dict[str, Any]:
    """Void episodes leave the rate and are counted by cause."""
    played = [
        {
            "task": each.task_id,
            "success": each.is_success,
            "cause": each.cause,
            "turns": each.turns,
            "trajectory": each.trajectory,
        }
        for each in results
    ]
    rate = score.success([each["success"] for each in played])
    causes = Counter(each.cause for each in results)
    formats = sum((Counter(each.format) for each in results), Counter())
    spent = sum((Counter(each.spent) for each in results), Counter())
    told = {"causes": causes, "format": formats, "judge_spent": spent}
    return rate | told | {"episodes": played}
