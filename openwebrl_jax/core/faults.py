"""Faults of a config, each as one line: what was got, what was wanted, how to mend it.

In: the tree of configs/common.py. Out: lines; `core.checks` makes the refusal. No
function here relies on another's having found nothing.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openwebrl_jax.core import limits


def of_values(config: Any) -> Iterator[str]:
    """Each value by itself."""
    for key, value in limits.leaves(config).items():
        interval = limits.interval(key)
        if interval and not limits.is_within(value, interval):
            yield f"config.{key}={value!r}; wanted a number in {interval}"
        choices = limits.CHOICES.get(key, (value,))
        if value not in choices:
            yield f"config.{key}={value!r}; wanted one of {', '.join(choices)}"
    for key in limits.RISING:
        sizes = list(limits.leaves(config)[key])
        if not sizes or sizes[0] < 1 or sizes != sorted(set(sizes)):
            yield f"config.{key}={tuple(sizes)}; wanted positive sizes in rising order"
    weights = dict(config.reward.weights)
    if not weights or not all(math.isfinite(weight) for weight in weights.values()):
        yield f"config.reward.weights={weights}; wanted parts with finite weights"


def of_lengths(config: Any) -> Iterator[str]:
    """Lengths that do not fit into one another."""
    sample, batch = config.sample, config.batch
    prompt = sample.context_tokens - sample.response_tokens
    if prompt < 1:
        yield (
            f"config.sample.response_tokens={sample.response_tokens} leaves no prompt "
            f"in context_tokens={sample.context_tokens}; wanted it smaller"
        )
    bucket = max(sample.prompt_buckets, default=0)
    if bucket < prompt:
        yield (
            f"config.sample.prompt_buckets ends at {bucket}; wanted at least {prompt}, "
            "the longest prompt (context_tokens - response_tokens)"
        )
    if config.stage != "grpo":
        return
    length = max(batch.lengths, default=0)
    if length < sample.context_tokens:
        yield (
            f"config.batch.lengths ends at {length}; wanted at least "
            f"{sample.context_tokens}, the longest turn (sample.context_tokens)"
        )
    if batch.loss_tokens < sample.response_tokens:
        yield (
            f"config.batch.loss_tokens={batch.loss_tokens}; wanted at least "
            f"{sample.response_tokens}, the longest reply (sample.response_tokens)"
        )


def of_stage(config: Any) -> Iterator[str]:
    """Parts of an experiment that do not belong together."""
    loss, rollout = config.algo.loss, config.rollout
    wanted = limits.STAGE_LOSS.get(config.stage, loss)
    if loss in limits.CHOICES["algo.loss"] and loss != wanted:
        yield f"config.algo.loss={loss!r}; stage {config.stage} wants {wanted!r}"
    if rollout.lease_timeout_s <= rollout.task_timeout_s:
        yield (
            f"config.rollout.lease_timeout_s={rollout.lease_timeout_s}; wanted more "
            f"than task_timeout_s={rollout.task_timeout_s}, or a slow episode is "
            "leased a second time"
        )


def of_sft(config: Any) -> Iterator[str]:
    """What is learnt from demonstrations; nothing to say of other stages."""
    if config.stage != "sft":
        return
    abilities, shares = tuple(config.sft.abilities), tuple(config.sft.shares)
    if not abilities or set(abilities) - set(limits.ABILITIES):
        yield (
            f"config.sft.abilities={abilities}; wanted some of "
            f"{', '.join(limits.ABILITIES)}"
        )
    is_sound = all(limits.is_within(share, "[0, inf)") for share in shares)
    if len(shares) != len(abilities) or not is_sound or not any(shares):
        yield (
            f"config.sft.shares={shares}; wanted one number in [0, inf) for each of "
            f"{abilities}, not all 0"
        )
    if not config.sft.data:
        yield "config.sft.data=(); wanted folders of trajectories"


def of_tasks(config: Any) -> Iterator[str]:
    """Where tasks come from, and that no held-out one is trained on."""
    tasks, evaluate = config.tasks, config.evaluate
    if tasks.suite == "file" and config.stage == "grpo" and not tasks.path:
        yield "config.tasks.path=''; wanted a JSONL or parquet file of tasks"
    if tasks.suite != "miniwob":
        return
    if not tasks.names:
        yield "config.tasks.names=(); wanted names of MiniWoB++ pages"
    train, heldout = tuple(tasks.train_seeds), tuple(tasks.heldout_seeds)
    ranges = {"train_seeds": train, "heldout_seeds": heldout}
    bad = {k: v for k, v in ranges.items() if len(v) != 2 or not 0 <= v[0] < v[1]}
    yield from (
        f"config.tasks.{k}={v}; wanted (first, last + 1)" for k, v in bad.items()
    )
    if bad:
        return
    if train[0] < heldout[1] and heldout[0] < train[1]:
        yield (
            f"config.tasks.heldout_seeds={heldout} overlaps train_seeds={train}; "
            "wanted seeds that are never trained on"
        )
    count = (heldout[1] - heldout[0]) * len(tasks.names)
    if tasks.names and count < evaluate.episodes:
        yield (
            f"config.evaluate.episodes={evaluate.episodes}; there are {count} held-out "
            "tasks; widen config.tasks.heldout_seeds"
        )


def of_web(config: Any) -> Iterator[str]:
    """Where a tape lies, and a canary that can be opened."""
    web, canary = config.web, config.rollout.canary_url
    if web.tape and not web.tape_folder:
        yield f"config.web.tape_folder=''; wanted a folder to {web.tape}"
    if canary and not canary.startswith(("http://", "https://")):
        yield f"config.rollout.canary_url={canary!r}; wanted http(s)://..."
    if canary and web.tape == "replay":
        yield (
            f"config.rollout.canary_url={canary!r}; wanted '', for no network is "
            "looked at when web.tape='replay'"
        )


def of_judge(config: Any) -> Iterator[str]:
    """The judge's address and the name of its key."""
    judge = config.reward.judge
    host = judge.base_url.partition("://")[2].partition("/")[0]
    if "@" in host or "?" in judge.base_url:  # the config is written into the run
        yield (
            "config.reward.judge.base_url holds a user or a query; wanted neither: put "
            "the key into the variable that config.reward.judge.api_key_env names"
        )
    elif judge.base_url and not judge.base_url.startswith(("http://", "https://")):
        yield f"config.reward.judge.base_url={judge.base_url!r}; wanted http(s)://..."
    # What stands there may be a secret: it is not repeated.
    if judge.api_key_env and not judge.api_key_env.isidentifier():
        yield (
            "config.reward.judge.api_key_env is no variable's name; wanted the name "
            "of the environment variable that holds the key, never the key"
        )
    elif judge.base_url and judge.api_key_env and not os.environ.get(judge.api_key_env):
        yield (
            f"config.reward.judge.api_key_env names {judge.api_key_env}, which is not "
            "set; set the variable, or the key's name to '' where none is needed"
        )
    if judge.canaries and not (judge.base_url or judge.workdir):
        yield "config.reward.judge.canaries is set and there is no judge to ask"
    if judge.base_url and judge.workdir and not judge.second_share:
        yield (
            "config.reward.judge: base_url and workdir are set; wanted one judge, or "
            "second_share above 0: the endpoint then gives second opinions"
        )
    if judge.second_share and not (judge.base_url or judge.workdir):
        yield "config.reward.judge.second_share is set and there is no judge to ask"
    if (judge.second_model or judge.second_protocol) and not judge.base_url:
        yield (
            "config.reward.judge.second_model or second_protocol is set without a "
            "base_url; a judge of our own is asked only as it was trained"
        )


def of_mesh(config: Any, devices: int | None) -> Iterator[str]:
    """The mesh against the learner's devices, and rows against the mesh."""
    mesh, rows = config.mesh, config.batch.rows
    if mesh.fsdp < 1 and mesh.fsdp != -1:
        yield f"config.mesh.fsdp={mesh.fsdp}; wanted -1 (all that are left) or a size"
        return
    fsdp, fixed = mesh.fsdp, mesh.data * mesh.tp
    if fixed < 1 or (fsdp == -1 and devices is None):
        return
    if devices is not None and (devices % (fixed * abs(fsdp))):
        yield (
            f"config.mesh: data={mesh.data} x fsdp={fsdp} x tp={mesh.tp}; wanted "
            f"sizes that divide the learner's {devices} devices"
        )
        return
    if fsdp == -1 and devices is not None:
        fsdp = devices // fixed
    shards = mesh.data * fsdp
    if rows % shards:
        yield (
            f"config.batch.rows={rows} is not a multiple of data x fsdp = {shards}; "
            f"set it to {shards * math.ceil(rows / shards)}"
        )


def of_cluster(config: Any) -> Iterator[str]:
    """What one process, or one device, cannot do."""
    cluster = config.cluster
    if cluster.colocated and cluster.learner_processes > 1:
        yield (
            "config.cluster.colocated=True with learner_processes="
            f"{cluster.learner_processes}; wanted 1: the sampler reads the weights of "
            "its own process alone"
        )
    if cluster.colocated and cluster.serving_replicas > 1:
        yield (
            "config.cluster.colocated=True with serving_replicas="
            f"{cluster.serving_replicas}; wanted 1, in the learner's process"
        )
    is_apart = cluster.platform != "cpu" and not cluster.colocated
    if cluster.serving_devices < 1 and is_apart:
        yield (
            "config.cluster.serving_devices=0 leaves serving no device; wanted 1 or "
            "more, or config.cluster.colocated=True"
        )


def on_disk(config: Any) -> Iterator[str]:
    """Files and folders that must be there before a stage begins."""
    if config.init_from and not Path(config.init_from).exists():
        mend = f"; make it: {config.init_command}" if config.init_command else ""
        yield f"config.init_from={config.init_from!r} is not there{mend}"
    if config.stage == "sft":
        missing = [data for data in config.sft.data if not Path(data).is_dir()]
        yield from (
            f"config.sft.data: no folder {data!r}; python -m launch.demonstrate makes "
            "demonstrations"
            for data in missing
        )
    elif config.tasks.suite == "file" and config.tasks.path:
        yield from _of_task_file(config.tasks.path, config.reward.judge.base_url)


def _of_task_file(path: str, judge: str) -> Iterator[str]:
    """Success must be known: by checks that each task brings, or by a judge."""
    if not Path(path).is_file():
        yield f"config.tasks.path={path!r}; there is no such file"
    elif not judge and not _brings_checks(Path(path)):
        yield (
            f"config.reward.judge.base_url='' and tasks in {path!r} bring no checks: "
            "nothing would say what a success is; wanted an OpenAI-compatible endpoint"
        )


def _brings_checks(path: Path) -> bool:
    """True iff each line of a JSONL file has `checks`; parquet rows have none."""
    if path.suffix != ".jsonl":
        return False
    lines = path.read_text(encoding="utf-8").splitlines()
    return all('"checks"' in line for line in lines if line.strip())
