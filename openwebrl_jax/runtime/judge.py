"""Judging what is stored: by an endpoint, or by a judge of our own that is served here.

In: workdirs that hold trajectories. Out: `judgements.jsonl` (one line a trajectory,
what is there is not asked again), or demonstrations that a judge can learn from.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from absl import logging

from openwebrl_jax.core import checks, types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.policy import remote, served
from openwebrl_jax.rollout import build, judged, score, store
from openwebrl_jax.runtime import cluster, own_judge, progress, worker
from openwebrl_jax.runtime import demonstrate as demonstrations

JUDGEMENTS = "judgements.jsonl"
IDENTITY = "judge.json"  # who they are by
SURE = 1.0  # a success is a reward of at least this
_AT_ONCE = 48
_SECOND_SEED = 1042  # its tries share no seed with those of a reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A stored trajectory and whether it is a success. Made by `load`."""

    name: str
    played: types.Trajectory
    is_success: bool | None  # None = nobody has said so
    labelled_by: str = ""  # checker | judge, see score.reference

    @property
    def site(self) -> str:
        """What it was played on: the page's name, or its host."""
        task = self.played.task
        return task.tags[0] if task.tags else task.start_url.split("/")[2]


def run(
    config: Any, workdir: str, *, stored: Sequence[str], model: str
) -> dict[str, Any]:
    """The command: judges what the workdirs `stored` hold; by `model` = a checkpoint
    folder or a judge's workdir, "" = by the endpoint of config.reward.judge.

    Returns who judged and whom by, how many of what is stored, and why some are void:
    a report says so beside its rates.
    """
    checks.check_config(config, look_at_disk=False)
    if not model and not config.reward.judge.base_url:
        raise ValueError(
            "nobody to ask; set --judge to a checkpoint folder or a judge's workdir, "
            "or config.reward.judge.base_url to an endpoint"
        )
    with checks.held(workdir):
        _keep_identity(Path(workdir) / IDENTITY, config, model)
        found, out = load(stored, with_void=True), Path(workdir) / JUDGEMENTS
        if not found:
            raise ValueError(
                f"nothing in {', '.join(stored)} that a judge can be asked about; "
                "wanted workdirs with trajectories of episodes that were ended as done"
            )
        if not model:
            endpoint = remote.make_remote(config.reward.judge)
            asyncio.run(_ask_all(found, out, endpoint, config))
        else:
            cluster.start(config)
            try:
                ask(found, out, own_judge.serve(config, model, config), config)
            finally:
                cluster.stop()
        told = _provenance(found, out)
        _check_judged(told["not_judged"], len(found))
        return told


def _check_judged(left: int, asked: int) -> None:
    """Says what is left, which the same command asks again; R39."""
    if left == asked:
        raise RuntimeError(
            f"the judge answered none of {left} questions; look at its address, key "
            "and model (config.reward.judge), then run the same command again"
        )
    if left:
        logging.warning(
            "%d of %d are not judged, for the judge did not answer; the same command "
            "asks again",
            left,
            asked,
        )


def _keep_identity(path: Path, config: Any, model: str) -> None:
    """Notes who judges; verdicts of two judges never come into one file."""
    here = build.judge_identity(config) | ({"model": model} if model else {})
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else here
    if there != here:
        raise ValueError(
            f"{path.parent} holds verdicts of the judge {there}, and {here} is asked "
            "for; take another --workdir"
        )
    checks.keep_text(path, json.dumps(here))


def _provenance(found: Sequence[Labelled], out: Path) -> dict[str, Any]:
    lines = read(out)
    asked = {each.name for each in found}
    judged_names = {line["trajectory"] for line in lines}
    return {
        "judge": json.loads((out.parent / IDENTITY).read_text(encoding="utf-8")),
        "labels": dict(Counter(line["labelled_by"] or "nobody" for line in lines)),
        "asked": len(asked | judged_names),
        "judged": len(judged_names),
        "not_judged": len(asked - judged_names),
        "void_causes": dict(Counter(line["cause"] for line in lines if line["cause"])),
    }


def ask(found: Sequence[Labelled], out: Path, serving: Any, config: Any) -> None:
    """Asks a judge of our own that an actor serves; see `run`."""
    asyncio.run(_ask_all(found, out, _spoken(serving, config), config))


def _spoken(serving: Any, config: Any) -> Any:
    """The `Complete` that speaks through the actor, and is away where that hangs."""
    return served.Served(worker.RemoteSampler(serving, config.sample.timeout_s))


def opinions(
    found: Sequence[Labelled], serving: Any, config: Any, is_second: bool = False
) -> list[dict[str, Any]]:
    """The lines of some trajectories by the judge that `serving` or, where that is
    None, the endpoint of the config is; nothing is written.

    `is_second` = it is asked with other seeds than those of a reward.
    """

    async def all_of_them() -> list[dict[str, Any]]:
        complete: Any = _spoken(serving, config) if serving else None
        complete = complete or remote.make_remote(config.reward.judge)
        lines = [_judgement(each, complete, config, is_second) for each in found]
        told = await asyncio.gather(*lines)
        await complete.close()
        return told

    return asyncio.run(all_of_them())


async def _ask_all(
    found: Sequence[Labelled], out: Path, complete: Any, config: Any
) -> None:
    """Writes one line a trajectory; those that have one are left out."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _drop_torn_line(out)
    told = {each["trajectory"] for each in read(out)}
    left = [each for each in found if each.name not in told]
    bar = progress.Bar(f"judging {out.stem}", len(left))
    turnstile = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Labelled) -> None:
        async with turnstile:
            line = await _judgement(each, complete, config)
        if line["cause"] == Cause.JUDGE_UNAVAILABLE:
            return  # it is asked again when the command is
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        bar.tick(line["verdict"] == each.is_success)

    await asyncio.gather(*(one(each) for each in left))
    bar.close()
    await complete.close()


async def _judgement(
    each: Labelled, complete: Any, config: Any, is_second: bool = False
) -> dict[str, Any]:
    """The verdict beside the label, and where it is known how sure the judge is."""
    last = _Last(complete)
    seed = {"seed": _SECOND_SEED} if is_second else {}
    reward = await build.judge_of(each.played, last, config.reward.judge, **seed)
    verdict = reward.value >= SURE if reward.is_valid else None
    sure = last.confidence
    probability = None
    if verdict is not None and sure is not None:
        probability = sure if verdict else 1.0 - sure
    return {
        "trajectory": each.name,
        "site": each.site,
        "ending": each.played.cause,
        "label": each.is_success,
        "labelled_by": each.labelled_by,
        "verdict": verdict,
        "probability": probability,
        "reason": last.text,
        "cause": reward.cause,
        "spent": dict(reward.spent) | complete.spent(),
    }


class _Last:
    """A Complete that remembers the last reply, and how sure it was."""

    def __init__(self, complete: Any):
        self._complete = complete
        self.text, self.confidence = "", None

    async def __call__(self, messages: list[dict[str, Any]], *, seed: int) -> str:
        if not isinstance(self._complete, served.Served):
            self.text = await self._complete(messages, seed=seed)
            return self.text
        reply = await self._complete.reply(messages, seed=seed)
        self.text, self.confidence = reply.text, served.confidence(reply)
        return served.answer(reply)


def read(out: Path) -> list[dict[str, Any]]:
    """The lines that were written; one that a crash cut short is left out."""
    if not out.exists():
        return []
    lines = out.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


def _drop_torn_line(out: Path) -> None:
    """Cuts off what a crash left behind the last whole line: the next one would be
    written into it."""
    if out.exists():
        os.truncate(out, out.read_bytes().rfind(b"\n") + 1)


def load(stored: Iterable[str | Path], *, with_void: bool = False) -> list[Labelled]:
    """All stored trajectories that a judge could be asked about, with their label.

    `with_void`: also those without one, as an outage of the judge leaves them.
    """
    found = []
    for workdir in stored:
        kept = Path(workdir) / store.FOLDER
        for name in store.listing(kept):
            played, reward = store.load(kept, name)
            label, by = score.reference(played, reward)
            is_kept = label is not None or with_void
            if is_kept and judged.can_be_judged(played):
                each = Labelled(
                    name=name, played=played, is_success=label, labelled_by=by
                )
                found.append(each)
    return found


def demonstrate(
    found: Sequence[Labelled],
    workdir: str,
    config: Any,
    reasons: Mapping[str, str] | None = None,
) -> None:
    """Writes a workdir of demonstrations to learn judging from.

    `reasons`: of a judge that gave the labels, by trajectory; else they are made.
    """
    kept = Path(workdir) / store.FOLDER
    names = []
    for each in found:
        if each.is_success is None:
            continue
        reason = (reasons or {}).get(each.name, "")
        shown = judged.demonstration(each.played, each.is_success, reason, config)
        names.append(
            store.save(kept, shown, types.Reward(value=1.0, parts={}, is_valid=True))
        )
    listed = json.dumps(sorted(set(names)))
    checks.keep_text(Path(workdir) / demonstrations.LIST, listed)


def relabelled(
    found: Sequence[Labelled], workdir: str
) -> tuple[list[Labelled], dict[str, str]]:
    """The trajectories under another judge's verdicts, and its reasons by name."""
    lines = {each["trajectory"]: each for each in read(Path(workdir) / JUDGEMENTS)}
    told = {name: line for name, line in lines.items() if line["verdict"] is not None}
    mine = [
        replace(each, is_success=told[each.name]["verdict"], labelled_by="judge")
        for each in found
        if each.name in told
    ]
    reasons = {name: judged.reason(line["reason"]) for name, line in told.items()}
    return mine, reasons


def dismiss(serving: Any) -> None:
    """Ends a serving actor."""
    ray.kill(serving)
