"""The pipeline of the demo, stage after stage, each one skipped where it is done.

demonstrations -> SFT -> evaluation -> RL -> evaluation -> summary. One Ray, one crew
of browser workers. Killed anywhere and started again, it goes on where it was.
"""

import contextlib
import functools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openwebrl_jax.core import checks, metrics
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build
from openwebrl_jax.runtime import cluster, demonstrate, evaluate, train
from openwebrl_jax.runtime.crew import Crew

_MINUTES = "minutes.json"
_NOTED_EVERY_S = 5.0
_LOADED = 5  # updates that load what every later one uses
BEFORE, AFTER = "after_sft.json", "after_rl.json"


def run(
    sft: Any, rl: Any, workdir: str, *, episodes: int, error_rate: float
) -> dict[str, Any]:
    """Runs what is left to do under `workdir` and returns the summary.

    Args:
      sft: config of the SFT stage; its checkpoint folder `model.path` is there.
      rl: config of the RL stage.
      episodes: demonstrations that the teacher gives.
      error_rate: share of ambiguous pages on which it is wrong.
    """
    base = Path(workdir)
    sft.sft.data, rl.init_from = (str(base / "demos"),), str(base / "sft")
    for config, stage in ((sft, "sft"), (rl, "rl")):
        checks.check_config(config, look_at_disk=False)
        build.check(config)
        cluster.check(config)
        checks.check_workdir(base / stage, config)
    asked = {"episodes": episodes, "error_rate": error_rate}
    demonstrate.check(sft.sft.data[0], sft, **asked)
    with timed(base, "start"):
        cluster.start(rl)
        crew = Crew(rl)
    try:
        with timed(base, "demonstrations"):
            demonstrate.collect(crew, sft, sft.sft.data[0], **asked)
        with timed(base, "sft"):
            train_once(sft, rl.init_from, train.sft)
        with timed(base, "evaluation"):
            _measure(crew, rl, base, rl.init_from, BEFORE)
        with timed(base, "rl"):
            train_once(rl, str(base / "rl"), functools.partial(train.grpo, crew=crew))
        with timed(base, "evaluation"):
            _measure(crew, rl, base, str(base / "rl"), AFTER)
        crew.close()
    finally:
        cluster.stop()
    return summary(base)


def summary(base: Path) -> dict[str, Any]:
    """What the demo reports, from the files that its stages left."""
    before, after = (json.loads((base / f).read_text()) for f in (BEFORE, AFTER))
    told = metrics.read(base / "rl" / "metrics.jsonl")
    seconds = json.loads((base / _MINUTES).read_text())
    episodes = sum(record["rollout/episodes"] for record in told)
    causes = Counter()
    for record in told:
        found = {k[6:]: v for k, v in record.items() if k.startswith("cause/")}
        causes.update(found)
    return {
        "success_after_sft": evaluate.rate(before["sampled"]),
        "success_after_rl": evaluate.rate(after["sampled"]),
        "greedy_after_sft": evaluate.rate(before["greedy"]),
        "greedy_after_rl": evaluate.rate(after["greedy"]),
        "gain": evaluate.gain(before["sampled"], after["sampled"]),
        "minutes": round(sum(seconds.values()) / 60, 2),
        "minutes_by_stage": {k: round(v / 60, 2) for k, v in seconds.items()},
        "episodes": int(episodes),
        "updates": len(told),
        "env_steps_per_s": _mean(told, "env_steps_per_s"),
        "memory_mb_per_update": {
            name: round(metrics.slope(told[_LOADED:], f"host_rss/{name}_mb"), 3)
            for name in ("driver", "ledger")
            if len(told) > _LOADED + 1
        },
        "mixed_groups": [
            round(record["rollout/mixed"], 3)
            for record in told
            if "rollout/mixed" in record  # not while groups are replayed from disk
        ],
        "causes": dict(causes),
    }


def train_once(config: Any, workdir: str, stage: Any) -> None:
    """Trains unless the run has exported its policy."""
    if not (Path(workdir) / folder.EXPORT / "model.safetensors").exists():
        stage(config, workdir, train.check(config, workdir))


def _measure(crew: Crew, config: Any, base: Path, model: str, name: str) -> None:
    """Evaluates a workdir's export unless that was done."""
    if (base / name).exists():
        return
    crew.serve(str(folder.find(model)), config)
    stage = f"evaluation {name.removesuffix('.json').replace('_', ' ')}"
    told = evaluate.measure(crew, config, str(base / "evaluation"), stage)
    (base / name).write_text(json.dumps(told, indent=1))


@contextlib.contextmanager
def timed(base: Path, stage: str) -> Iterator[None]:
    """Adds a stage's seconds to those of earlier starts; a kill loses few of them."""
    path = base / _MINUTES
    seconds = json.loads(path.read_text()) if path.exists() else {}
    earlier_s, began_s = seconds.get(stage, 0.0), time.monotonic()
    ended = threading.Event()

    def note() -> None:
        seconds[stage] = earlier_s + time.monotonic() - began_s
        part = path.with_suffix(".part")
        part.write_text(json.dumps(seconds))
        part.replace(path)

    def keep_noting() -> None:
        while not ended.wait(_NOTED_EVERY_S):
            note()

    base.mkdir(parents=True, exist_ok=True)
    noting = threading.Thread(target=keep_noting, daemon=True)
    noting.start()
    try:
        yield
    finally:
        ended.set()
        noting.join()
        note()


def _mean(told: list[dict[str, Any]], name: str) -> float:
    return round(sum(record[name] for record in told) / max(len(told), 1), 2)
