"""How far a judge agrees with reference labels.

In: judgements, one a trajectory. Out: dicts of plain numbers. Intervals are 95 %:
Wilson's for shares, so that 0 of n is not told as certain, and for F1 and kappa the
percentile bootstrap over trajectories. A void verdict counts as "not a success", as the
reference counts what it cannot parse, and is told apart: a judge that says nothing is
right about each failure, which its kappa of 0 shows and its accuracy does not.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openwebrl_jax.rollout import score

RESAMPLES = 2000
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One verdict beside the label. Example: Judgement(trajectory="9f..", site=
    "click-tab", cause="page_done", label=True, verdict=False, probability=0.1)."""

    trajectory: str
    site: str
    cause: str
    label: bool
    verdict: bool | None  # None = void
    probability: float | None = None  # of success, as the judge has it; None = unknown


def of_line(line: Mapping[str, Any]) -> Judgement:
    """From a line of judgements.jsonl, see runtime.judge."""
    names = ("trajectory", "site", "label", "verdict", "probability")
    return Judgement(cause=line["ending"], **{name: line[name] for name in names})


def report(judgements: Sequence[Judgement], seed: int = 0) -> dict[str, Any]:
    """All that there is to say: rates, tables by site and by cause, calibration."""
    return {
        **rates(judgements, seed),
        "by_site": _by(judgements, lambda each: each.site),
        "by_cause": _by(judgements, lambda each: each.cause),
        "calibration": calibration(judgements),
    }


def rates(judgements: Sequence[Judgement], seed: int = 0) -> dict[str, Any]:
    """SHARES and MEASURES as {value, low, high}, `n` by class, the confusion table."""
    label, said = _columns(judgements)
    table = _table(label, said)
    draws = np.random.default_rng(seed).multinomial(
        max(len(label), 1), table.ravel() / max(table.sum(), 1), size=RESAMPLES
    )
    told: dict[str, Any] = {}
    for name, share in SHARES.items():
        part, whole = map(int, share(*table.ravel()))
        low, high = score.wilson(part, whole)
        told[name] = {"value": _ratio(part, whole), "low": low, "high": high}
    for name, measure in MEASURES.items():
        spread = [measure(*draw) for draw in draws] if len(label) else []
        spread = [value for value in spread if not math.isnan(value)] or [math.nan]
        low, high = np.percentile(spread, (2.5, 97.5))
        told[name] = {"value": measure(*table.ravel())}
        told[name] |= {"low": float(low), "high": float(high)}
    told["n"] = {"success": int(label.sum()), "failure": int((~label).sum())}
    told["void"] = sum(each.verdict is None for each in judgements)
    told["confusion"] = confusion(judgements)
    return told


def confusion(judgements: Sequence[Judgement]) -> dict[str, int]:
    """Counts by what is true and what was said."""
    names = ("true_negative", "false_positive", "false_negative", "true_positive")
    return dict(zip(names, _table(*_columns(judgements)).ravel().tolist(), strict=True))


def calibration(judgements: Sequence[Judgement]) -> list[dict[str, float]]:
    """By bins of the judge's probability: its mean, share of successes, count."""
    known = [each for each in judgements if each.probability is not None]
    p = np.array([each.probability for each in known], np.float64)
    label = np.array([each.label for each in known], bool)
    place = np.minimum((p * BINS).astype(int), BINS - 1)
    return [
        {
            "probability": float(p[place == b].mean()),
            "share": float(label[place == b].mean()),
            "n": int((place == b).sum()),
        }
        for b in range(BINS)
        if (place == b).any()
    ]


def kappa(tn: float, fp: float, fn: float, tp: float) -> float:
    """Cohen's: agreement above that of chance. Example: (40, 10, 10, 40) -> 0.6."""
    n = tn + fp + fn + tp
    if not n:
        return math.nan
    chance = ((tp + fp) * (tp + fn) + (tn + fn) * (tn + fp)) / n**2
    return 0.0 if chance == 1 else float(((tn + tp) / n - chance) / (1 - chance))


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else math.nan


SHARES: dict[str, Callable[..., tuple[float, float]]] = {  # part and whole
    "accuracy": lambda tn, fp, fn, tp: (tn + tp, tn + fp + fn + tp),
    "precision": lambda tn, fp, fn, tp: (tp, tp + fp),
    "recall": lambda tn, fp, fn, tp: (tp, tp + fn),
    "false_positive_rate": lambda tn, fp, fn, tp: (fp, fp + tn),
}
MEASURES: dict[str, Callable[..., float]] = {
    "f1": lambda tn, fp, fn, tp: _ratio(2 * tp, 2 * tp + fp + fn),
    "kappa": kappa,
}


def baselines(
    learnt: Sequence[tuple[str, bool]], asked: Sequence[Judgement]
) -> dict[str, list[Judgement]]:
    """What one would say who has seen nothing: the majority, and that of each site.

    Args:
      learnt: site and label of the trajectories that the judge was trained on.
      asked: those that it is measured on.
    """
    overall = _majority([label for _, label in learnt])
    sites = {site for site, _ in learnt}
    by_site = {
        site: _majority([label for there, label in learnt if there == site])
        for site in sites
    }
    return {
        "majority": [_saying(each, overall) for each in asked],
        "task_name": [_saying(each, by_site.get(each.site, overall)) for each in asked],
    }


def _saying(each: Judgement, verdict: bool) -> Judgement:
    return Judgement(
        trajectory=each.trajectory,
        site=each.site,
        cause=each.cause,
        label=each.label,
        verdict=verdict,
    )


def _majority(labels: Sequence[bool]) -> bool:
    return 2 * sum(labels) >= len(labels)


def _by(
    judgements: Sequence[Judgement], key: Callable[[Judgement], str]
) -> Mapping[str, dict[str, Any]]:
    groups: dict[str, list[Judgement]] = {}
    for each in judgements:
        groups.setdefault(key(each), []).append(each)
    return {
        name: confusion(group) | {"kappa": kappa(*_table(*_columns(group)).ravel())}
        for name, group in sorted(groups.items())
    }


def _columns(judgements: Sequence[Judgement]) -> tuple[np.ndarray, np.ndarray]:
    label = np.array([each.label for each in judgements], bool)
    return label, np.array([bool(each.verdict) for each in judgements], bool)


def _table(label: np.ndarray, said: np.ndarray) -> np.ndarray:
    """[label, said] counts."""
    return np.array(
        [[((label == a) & (said == b)).sum() for b in (0, 1)] for a in (0, 1)]
    )
