"""A judge of our own as an actor: its checkpoint, asked in the way it was trained.

In: the workdir of `configs/judge_sft.py`. Out: a serving actor, and the config that its
questions are put by.
"""

import json
from pathlib import Path
from typing import Any

import ml_collections
import ray

from openwebrl_jax.core import limits
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build
from openwebrl_jax.runtime import cluster
from openwebrl_jax.runtime.serving import Serving


def own_config(workdir: str) -> Any:
    """The config that a judge's workdir was trained with."""
    path = Path(workdir) / "config.json"
    if not path.is_file():
        raise ValueError(
            f"{workdir} is no judge's workdir; python -m launch.train "
            "--config=configs/judge_sft.py makes one"
        )
    kept = json.loads(path.read_text(encoding="utf-8"))["config"]
    return ml_collections.ConfigDict(limits.tree(kept))


def as_trained(config: Any) -> Any:
    """The config with its own judge asked in the way in which that was trained."""
    config = config.copy_and_resolve_references()
    trained = own_config(config.reward.judge.workdir).reward.judge
    for key in ("protocol", "prompt", "screenshots"):
        config.reward.judge[key] = trained[key]
    return config


def identity(config: Any) -> dict[str, Any]:
    """Which judge scores a run: one of our own by what it was asked and its weights."""
    workdir = config.reward.judge.workdir
    if not workdir:
        return build.judge_identity(config)
    told = build.judge_identity(as_trained(config))
    return told | {"weights": folder.digest(folder.find(workdir))}


def serve(config: Any, model: str, judge: Any) -> Any:
    """An actor that serves the checkpoint `model` under the judge's config."""
    actor = cluster.actor(Serving, config, "serving")
    ray.get(actor.serve.remote(judge, folder.everywhere(model)))
    return actor
