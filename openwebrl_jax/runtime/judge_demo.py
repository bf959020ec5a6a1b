"""A judge of our own from nothing: played, trained, measured, then trained with.

demonstrations -> policy -> trajectories of mixed quality -> judge -> held-out report ->
RL with that judge as its only reward. Each stage is skipped where it is done.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openwebrl_jax.core import checks, metrics
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build, judged, score, store
from openwebrl_jax.runtime import cluster, demo, demonstrate, judge, own_judge, train
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.worker import Job

UNSEEN = ("click-dialog", "click-test-2", "click-link", "click-widget")
_PURPOSE = 2_000_003  # keeps these token streams apart from training's


def run(
    policy: Any, critic: Any, rl: Any, workdir: str, *, counts: Mapping[str, int]
) -> None:
    """Runs what is left to do under `workdir`.

    Args:
      policy: config of the policy's SFT; its checkpoint folder is there.
      critic: config of the judge's SFT.
      rl: config of RL, whose only reward becomes the judge.
      counts: episodes for demonstrations, train, seen and unseen.
    """
    base = Path(workdir)
    policy.sft.data = (str(base / "demos"),)
    blind = critic.copy_and_resolve_references()
    blind.reward.judge.screenshots = -1
    judges = {"judge": critic, "judge_text": blind}
    for name, config in judges.items():
        config.init_from = str(base / "sft")
        config.model.path = policy.model.path
        config.sft.data = (str(base / f"{name}_data"),)
    for config in (policy, *judges.values()):
        checks.check_config(config, look_at_disk=False)
    build.check(rl)
    cluster.check(rl)
    asked = {"episodes": counts["demonstrations"], "error_rate": 0.5}
    cluster.start(rl)
    try:
        with demo.timed(base, "policy"):
            _play(policy, rl, base, asked, counts)
        for name, config in judges.items():
            with demo.timed(base, name):
                _teach(config, base, name)
        with demo.timed(base, "judging"):
            _measure(critic, blind, rl, base)
        with demo.timed(base, "rl"):
            _improve(rl, base)
    finally:
        cluster.stop()


def learnt(base: Path) -> list[tuple[str, bool]]:
    """Site and label of what the judge was trained on."""
    found = judge.load([base / "played" / "train"])
    return [(each.site, bool(each.is_success)) for each in found]


def judgements(base: Path, who: str, on: str) -> list[dict[str, Any]]:
    """The lines of one judge on one set; see runtime.judge."""
    return judge.read(base / "judged" / who / f"{on}.jsonl")


def curves(base: Path) -> list[dict[str, Any]]:
    """RL's metrics, one record an update."""
    return metrics.read(base / "rl" / "metrics.jsonl")


def _play(
    policy: Any, rl: Any, base: Path, asked: Any, counts: Mapping[str, int]
) -> None:
    """The policy, and what it plays: to learn judging from, and held-out."""
    if (base / "played.json").exists():
        return
    crew = Crew(rl)
    demonstrate.collect(crew, policy, policy.sft.data[0], **asked)
    demo.train_once(policy, str(base / "sft"), train.sft)
    crew.serve(str(folder.find(str(base / "sft"))), rl)
    other = rl.copy_and_resolve_references()
    other.tasks.names = UNSEEN
    for name, tasks in (
        ("train", build.make_source(rl, "train")),
        ("seen", build.make_source(rl, "heldout")),
        ("unseen", build.make_source(other, "heldout")),
    ):
        key = rl.seed + _PURPOSE
        jobs = [
            Job(task=tasks.task_at(n), key=(key, n, 0)) for n in range(counts[name])
        ]
        kept = str(base / "played" / name / store.FOLDER)
        crew.play(jobs, kept, lambda result: None)
    crew.close()
    (base / "played.json").write_text(json.dumps(dict(counts)))


def _teach(config: Any, base: Path, name: str) -> None:
    """A judge from the labels of the checkers."""
    data = base / f"{name}_data"
    if not (data / demonstrate.LIST).exists():
        judge.demonstrate(judge.load([base / "played" / "train"]), str(data), config)
    demo.train_once(config, str(base / name), train.sft)


def _measure(critic: Any, blind: Any, rl: Any, base: Path) -> None:
    """All judges on what none of them has seen, and the trained one on injections."""
    sets = {on: judge.load([base / "played" / on]) for on in ("seen", "unseen")}
    failed = [each for each in sets["seen"] if not each.is_success][:12]
    protocol = critic.reward.judge.protocol
    begging = {
        "injected": [
            judge.Labelled(name=f"{each.name}/{n}", played=played, is_success=False)
            for each in failed
            for n, played in enumerate(judged.injected(each.played, protocol))
        ],
        "plain": failed,
    }
    for who, model, config, asked in (
        ("trained", base / "judge", critic, sets | begging),
        ("untrained", base / "sft", critic, sets),
        ("text", base / "judge_text", blind, sets),
    ):
        outs = {on: base / "judged" / who / f"{on}.jsonl" for on in asked}
        if (base / "judged" / who / "done").exists():
            continue
        serving = own_judge.serve(rl, str(model), config)
        for on, found in asked.items():
            judge.ask(found, outs[on], serving, config)
        judge.dismiss(serving)
        (base / "judged" / who / "done").touch()


def _improve(rl: Any, base: Path) -> None:
    """RL by the judge's word; the checkers' is told and counts for nothing."""
    rl.init_from = str(base / "sft")
    rl.reward.judge.workdir = str(base / "judge")
    with rl.reward.unlocked():
        rl.reward.weights = {"judge": 1.0, "checker": 0.0}
    crew = Crew(rl)
    demo.train_once(rl, str(base / "rl"), functools.partial(train.grpo, crew=crew))
    crew.close()


def gain(told: Sequence[Mapping[str, float]], part: str) -> dict[str, Any]:
    """A part's rate over the first and the last quarter of RL, with intervals.

    Episodes that ended by a format error have no such part; they are failures.
    """
    told = [record for record in told if f"reward/{part}" in record]  # none of replays
    quarter = max(1, len(told) // 4)
    rates = {}
    for name, records in (("first", told[:quarter]), ("last", told[-quarter:])):
        n = hits = 0
        for record in records:
            valid = round(
                record["rollout/episodes"] * (1 - record["rollout/void_frac"])
            )
            with_part = valid - record.get("cause/format_error", 0)
            hits += round(record[f"reward/{part}"] * with_part)
            n += valid
        low, high = score.wilson(hits, n)
        rates[name] = {"rate": hits / max(n, 1), "low": low, "high": high, "n": n}
    return rates
