"""What a judge came to: report.json and judge.png of its workdir.

In: judgements by judge and by set (see runtime.judge), what the judge learnt from, and
the records of RL under its word. The top of the report is about tasks seen; `unseen`
holds the same of tasks that the judge has never learnt from.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from openwebrl_jax.evals import agreement, curves, report

Lines = Sequence[Mapping[str, Any]]


def write(
    base: Path,
    *,
    judged: Mapping[str, Mapping[str, Lines]],
    learnt: Sequence[tuple[str, bool]],
    records: Sequence[Mapping[str, Any]],
    gains: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes both and returns the few numbers to look at first."""
    by_set = {on: _on(judged, learnt, on) for on in ("seen", "unseen")}
    told = {**by_set["seen"], "unseen": by_set["unseen"]}
    trained = judged["trained"]
    told["injections"] = {
        on: agreement.rates(_all(trained[on]))["false_positive_rate"]
        | {
            "n": len(trained[on]),
            "void": sum(it["verdict"] is None for it in trained[on]),
        }
        for on in ("injected", "plain")
    }
    told["rl"] = dict(gains)
    text = json.dumps(report.to_json(told), indent=1, allow_nan=False)
    (base / "report.json").write_text(text + "\n", encoding="utf-8")
    draw(base / "judge.png", told["trained"]["calibration"], records)
    short = {who: told[who]["kappa"] for who in ("trained", "untrained", "text")}
    return report.to_json({"kappa": short, "rl": told["rl"]})


def _on(
    judged: Mapping[str, Mapping[str, Lines]],
    learnt: Sequence[tuple[str, bool]],
    on: str,
) -> dict[str, Any]:
    """The judges and the baselines on one set."""
    told = {who: agreement.report(_all(judged[who][on])) for who in judged}
    others = agreement.baselines(learnt, _all(judged["trained"][on]))
    return told | {name: agreement.rates(each) for name, each in others.items()}


def _all(lines: Lines) -> list[agreement.Judgement]:
    return [agreement.of_line(line) for line in lines]


def draw(
    path: Path,
    calibration: Sequence[Mapping[str, float]],
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Success in RL by the judge and by the checkers, and the judge's calibration."""
    figure = Figure(figsize=(11, 4.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.9, 1))
    curves.dress(left, "success in RL with the judge as its only reward")
    for part, colour in (("judge", curves.AMBER), ("checker", curves.BLUE)):
        curves.line(left, *curves.series(records, f"reward/{part}"), colour, part)
    both = [r for r in records if {"reward/judge", "reward/checker"} <= r.keys()]
    left.fill_between(
        [record["step"] for record in both],
        [record["reward/judge"] for record in both],
        [record["reward/checker"] for record in both],
        color=curves.AMBER,
        alpha=0.15,
        linewidth=0,
        label="their gap",
    )
    left.set_xlabel("update", color=curves.SOFT)
    curves.dress(right, "calibration on held-out trajectories")
    right.plot([0, 1], [0, 1], color=curves.GRID)
    right.plot(
        [each["probability"] for each in calibration],
        [each["share"] for each in calibration],
        color=curves.TEAL,
        marker="o",
    )
    right.set_xlabel("the judge's probability of success", color=curves.SOFT)
    for axes in (left, right):
        axes.set_ylim(0, 1)
    left.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=curves.INK)
    figure.savefig(path)
