"""A run's own metrics -> the service times of its twin, and the figures to compare.

In: a workdir's config.json, metrics.jsonl and stored trajectories. Out: a Fit, and
what was measured over the same steady part: without the first iterations, in which
programs are compiled and browsers started, and without the last, in which no group is
opened any more.

A run whose sampler did not count its steps is fitted by its idle share, as a queue
without a limit (M/G/inf is idle for exp(-rate x time)); what a further row costs is
then not known and taken as 0 (`Fitted.is_row_known`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openwebrl_jax.core import metrics
from openwebrl_jax.evals import twin
from openwebrl_jax.rollout import store

_MOST = 400  # trajectories that are read
_LEAST = 4  # iterations in the steady part
_CHUNK = 32  # reply tokens a step: DECODE_TOKENS of policy.generate
_SPREAD = 0.05  # variance of the rows inside from which their price can be told

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A run as its twin sees it. Made by `read`."""

    fit: twin.Fit
    measured: twin.Figures
    updates: int  # in the steady part
    iterations: int  # of the whole run
    is_row_known: bool  # False = what a further row inside costs is not, and is 0


class _Waits(NamedTuple):
    """Of each episode that was read, in seconds."""

    env: np.ndarray
    sampler: np.ndarray
    queue: np.ndarray
    judge: np.ndarray
    turns: np.ndarray  # not a time: how many there were


class _Speech(NamedTuple):
    """The sampler's part of a Fit."""

    step_s: float
    row_s: float
    steps: float
    request_s: float
    is_row_known: bool


def read(workdir: str | Path) -> Fitted:
    """Fits the twin of an RL stage, finished or not; refuses what has too little."""
    workdir = Path(workdir)
    kept = json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    config = kept["config"]
    if config["stage"] != "grpo":
        raise ValueError(f"{workdir} is of stage {config['stage']!r}; wanted grpo")
    records = _steady(metrics.read(workdir / "metrics.jsonl"), config, workdir)
    steady = range(records[0]["step"] - 1, records[-1]["step"])
    episodes, waits = _episodes(workdir, steady)
    sizes, speech = _sizes(config, records[-1]), _speech(records, episodes, waits)
    leases = _sum(records, "rollout/episodes")
    replicas = config.get("cluster.serving_replicas", 1)  # an older run had one
    of_waits_s = float(sum(column.mean() for column in waits[:4]))
    return Fitted(
        fit=twin.Fit(
            sizes=sizes,
            group=config["algo.group"],
            groups=config["algo.groups"],
            slots=config["sample.slots"],
            retries=config["rollout.retries"],
            kept=_kept(records),
            episodes=episodes,
            updates=_updates(records, speech, replicas),
            step_s=speech.step_s,
            row_s=speech.row_s,
            steps=speech.steps,
            request_s=speech.request_s,
            extra_s=max(0.0, _held_s(records) / leases - of_waits_s),
            report_s=_report_s(records),
            replicas=replicas,
        ),
        measured=_figures(records, sizes.browsers),
        updates=len(records),
        iterations=config["algo.iterations"],
        is_row_known=speech.is_row_known,
    )


def _steady(records: Records, config: Mapping[str, Any], workdir: Path) -> Records:
    edge = 1 + config["algo.eta"]
    last = config["algo.iterations"] - edge
    steady = [record for record in records if edge < record["step"] <= last]
    if len(steady) < _LEAST:
        raise ValueError(
            f"{workdir} has {len(steady)} iterations after the first {edge} and before "
            f"the last {edge}; wanted {_LEAST} at least to fit: let it run longer"
        )
    return steady


def _sizes(config: Mapping[str, Any], record: Mapping[str, Any]) -> twin.Sizes:
    """What the run was; an older one does not tell its devices, and has one then."""
    if config.get("cluster.colocated"):
        raise ValueError(
            "that run had config.cluster.colocated=True; wanted one whose learner and "
            "sampler have devices of their own: in the twin they never wait for turns"
        )
    told = config["cluster.learner_devices"] * config["cluster.learner_processes"]
    serving = config["cluster.serving_devices"]
    replicas = config.get("cluster.serving_replicas", 1)
    return twin.Sizes(
        browsers=config["rollout.workers"] * config["rollout.contexts"],
        eta=config["algo.eta"],
        learner=record.get("learner/devices", told or 1),
        sampler=serving * replicas,
        judge=serving if config["reward.judge.workdir"] else 0,
    )


def _sum(records: Records, *names: str) -> float:
    """Of the product of the named metrics; a record that lacks one adds nothing."""
    return sum(
        float(np.prod([record[name] for name in names]))
        for record in records
        if all(name in record for name in names)
    )


def _cycle_s(record: Mapping[str, Any]) -> float:
    names = "learner/wait_batch_s", "learner/busy_s", "bubble_s"
    return sum(record[name] for name in names)


def _lap_s(record: Mapping[str, Any]) -> float:
    rate = record["episodes_per_s"]
    return record["rollout/episodes"] / rate if rate else _cycle_s(record)


def _figures(records: Records, browsers: int) -> twin.Figures:
    """What was measured, in the way in which the twin counts.

    The driver does not look at the same moments as the learner: rates that it tells
    are weighted by its own laps. A context that never gets a lease is idle too, which
    no worker tells: hence by the leases that there were.
    """
    cycles_s = sum(_cycle_s(record) for record in records)
    laps_s = [_lap_s(record) for record in records]

    def mean(name: str) -> float:
        values = [record.get(name, 0.0) for record in records]
        return float(np.average(values, weights=laps_s))

    in_flight = _held_s(records) / sum(laps_s)
    busy_s = _sum(records, "learner/busy_s")
    starved_s = _sum(records, "learner/wait_batch_s")
    return twin.Figures(
        steps_per_s=mean("env_steps_per_s"),
        updates_per_min=60.0 * len(records) / cycles_s,
        browser_idle=max(0.0, 1.0 - in_flight / browsers),
        sampler_idle=mean("sampler/idle_frac"),
        learner_idle=metrics.share(starved_s, starved_s + busy_s),
        staleness=_sum(records, "staleness/mean") / len(records),
    )


def _held_s(records: Records) -> float:
    """Seconds with a lease: by what share of the time the known waits were not."""
    return sum(
        record["rollout/episodes"]
        * record["browser/lease_wait_s"]
        * record["browser/busy_frac"]
        / max(1.0 - record["browser/busy_frac"], 1e-6)
        for record in records
        if "browser/busy_frac" in record
    )


def _report_s(records: Records) -> float:
    """Between an episode and the next lease where nobody waits for admission.

    The shortest waits are that, unless admission always binds: at most twice the
    report, as asking for a lease costs no more. An older run does not tell reports.
    """
    waits_s = [r["browser/lease_wait_s"] for r in records if "browser/busy_frac" in r]
    least_s = float(np.quantile(waits_s, 0.1)) if waits_s else 0.0
    if not any("browser/report_s" in record for record in records):
        return least_s
    told = [record for record in records if "browser/report_s" in record]
    report_s = _sum(told, "browser/report_s", "rollout/episodes")
    return min(least_s, 2 * report_s / _sum(told, "rollout/episodes"))


def _kept(records: Records) -> float:
    told = [record for record in records if "rollout/mixed" in record]
    whole = _sum(told, "rollout/episodes")
    return metrics.share(_sum(told, "rollout/mixed", "rollout/episodes"), whole)


def _episodes(workdir: Path, steady: range) -> tuple[list[twin.Episode], _Waits]:
    """Some of the stored episodes that only steady versions of the policy have played.

    Their names are hashes, so the first ones are a fair sample.
    """
    episodes, rows = [], []
    for name in store.listing(workdir / store.FOLDER):
        trajectory, reward = store.load(workdir / store.FOLDER, name)
        waits, turns = trajectory.waits, trajectory.turns
        if any(turn.version not in steady for turn in turns):
            continue
        episodes.append(
            twin.Episode(
                env_s=waits.env_s,
                judge_s=waits.judge_s,
                tokens=tuple(len(turn.response_ids) for turn in turns),
                is_valid=reward.is_valid,
            )
        )
        row = waits.env_s, waits.sampler_s, waits.sampler_queue_s, waits.judge_s
        rows.append((*row, len(turns)))
        if len(rows) == _MOST:
            break
    if not any(row[-1] for row in rows):
        raise ValueError(f"{workdir / store.FOLDER} has no episode to fit")
    return episodes, _Waits(*np.array(rows, np.float64).T)


def _speech(
    records: Records, episodes: Sequence[twin.Episode], waits: _Waits
) -> _Speech:
    """Time of a step as step_s + row_s * rows, by least squares over all steps.

    The sums of each iteration are enough for that. On the way to the sampler and back
    a turn takes what it waited beyond its steps, and what even the luckiest queue for.
    """
    spoke = waits.turns > 0
    reply_s = waits.sampler.sum() / waits.turns.sum()
    queue_s = float(np.quantile(waits.queue[spoke] / waits.turns[spoke], 0.1))
    steps = _sum(records, "sampler/steps")
    if not steps:
        tokens = float(np.mean([n for episode in episodes for n in episode.tokens]))
        count = 1.0 + tokens / _CHUNK
        figures = _figures(records, 1)
        idle = min(max(figures.sampler_idle, 0.01), 0.99)
        inside_s = min(-np.log(idle) / max(figures.steps_per_s, 1e-9), reply_s)
        beyond_s = float(reply_s - inside_s) + queue_s
        return _Speech(float(inside_s / count), 0.0, count, beyond_s, False)
    rows = _sum(records, "sampler/row_steps") / steps
    mean_s = _sum(records, "sampler/busy_s") / steps
    variance = _sum(records, "sampler/row_steps_sq") / steps - rows**2
    together = _sum(records, "sampler/row_s") / steps - rows * mean_s
    is_known = variance > _SPREAD
    row_s = min(max(together / variance, 0.0), mean_s / rows) if is_known else 0.0
    replies = _sum(records, "sampler/replies")
    beyond_s = reply_s - _sum(records, "sampler/row_s") / replies
    return _Speech(
        step_s=mean_s - row_s * rows,
        row_s=row_s,
        steps=rows * steps / replies,
        request_s=max(0.0, float(beyond_s)) + queue_s,
        is_row_known=is_known,
    )


def _updates(records: Records, speech: _Speech, replicas: int) -> list[twin.Update]:
    """Publishing without the wait for replies in the middle: the twin waits itself.

    Of r such replies, each anywhere in its steps, the last has r / (r + 1) of them
    left on average.
    """
    found = []
    for record in records:
        busy = 1.0 - record.get("sampler/idle_frac", 1.0)
        steps = record.get("sampler/steps", 0)
        rows = record["sampler/row_steps"] / steps if steps else 1.0
        step_s = speech.step_s + speech.row_s * rows
        replies = rows * replicas
        drain_s = busy * speech.steps * step_s * replies / (replies + 1)
        publish_s = record.get("learner/publish_s", record["bubble_s"])
        found.append(
            twin.Update(
                busy_s=record["learner/busy_s"],
                publish_s=max(0.0, publish_s - drain_s),
                keep_s=record["bubble_s"] - publish_s,
            )
        )
    return found
