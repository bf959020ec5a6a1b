"""The picture of a run: success, reward, mixed groups and entropy against update.

In: a run's summary and its records, one an update. Out: a PNG. A band or a bar is a
95 % interval.
"""

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from openwebrl_jax.rollout import score

SUCCESS = "rollout/success"  # share of the episodes that are not void
EPISODES = "rollout/episodes"
VOID = "rollout/void_frac"
REWARD = "rollout/reward"
MIXED = "rollout/mixed"
ENTROPY = "learner/entropy"
PART = "reward/"  # and its name
GAP, SECOND = "judge/gap", "judge/second_gap"

# Held-out success in the summary, before and after; how it is drawn, and how far above
# its point the number stands.
HELDOUT = (
    ("success_after_sft", "success_after_rl", "held-out, sampled", "#e0218a", "o", -13),
    ("greedy_after_sft", "greedy_after_rl", "held-out, greedy", "#6b4fbb", "D", 6),
)
INK, SOFT, GRID = "#1c2430", "#667085", "#e8ebf0"
BLUE, TEAL, AMBER, SLATE = "#2563c9", "#12887a", "#c77a0a", "#475467"
PINK, PLUM = "#e0218a", "#6b4fbb"
PARTS = (BLUE, AMBER, SLATE, PINK, PLUM)


def draw(
    path: str | os.PathLike[str],
    summary: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Draws the panels; one without data says so."""
    figure(summary, records).savefig(path)


def figure(summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Figure:
    """The four panels, and a fifth where a judge was held against checkers."""
    made = Figure(figsize=(11, 6.2), dpi=130, layout="constrained")
    FigureCanvasAgg(made)
    told = {name for record in records for name in record}
    rows = [
        (REWARD, "mean reward, and its parts", TEAL),
        (MIXED, "share of groups with unequal rewards", AMBER),
        (ENTROPY, "token entropy, nats", SLATE),
    ]
    if told & {GAP, SECOND}:
        rows.append((GAP, "success by the judge, less the checkers'", PINK))
    grid = made.add_gridspec(len(rows), 2, width_ratios=(1.9, 1))
    panels = [made.add_subplot(grid[:, 0])]
    _draw_success(panels[0], summary, records)
    for row, (name, title, colour) in enumerate(rows):
        axes = made.add_subplot(grid[row, 1])
        dress(axes, title)
        line(axes, *series(records, name), colour)
        if name == MIXED:
            _share_axis(axes)
        elif name == REWARD:
            _draw_parts(axes, records, told)
        elif name == GAP:
            axes.axhline(0, color=GRID)
            if SECOND in told:
                label = "less a second opinion's"
                line(axes, *series(records, SECOND), SLATE, label)
                axes.legend(frameon=False, fontsize=8, labelcolor=INK)
        panels.append(axes)
    last = max((record["step"] for record in records), default=1)
    for axes in panels:
        axes.set_xlim(-0.03 * last, 1.07 * last)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (panels[0], panels[-1]):
        axes.set_xlabel("update", color=SOFT)
    return made


def series(
    records: Sequence[Mapping[str, Any]], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Updates and values of one metric, where it was recorded and finite."""
    points = [(r["step"], r[name]) for r in records if np.isfinite(r.get(name, np.nan))]
    table = np.array(points, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over the last `width` values, over fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def _draw_success(
    axes: Axes, summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> None:
    """Success in training with its band, and what was measured on held-out tasks."""
    dress(axes, "success, with 95 % intervals")
    _share_axis(axes)
    counted = [
        record for record in records if record.get(EPISODES) and SUCCESS in record
    ]
    steps = [record["step"] for record in counted]
    bounds = np.array([_interval(record) for record in counted]).reshape(-1, 2)
    low, high = bounds.T
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.12, linewidth=0)
    line(axes, *series(records, SUCCESS), BLUE, "in training, sampled")
    last = max((record["step"] for record in records), default=1)
    for before, after, label, colour, marker, above in HELDOUT:
        rates = {
            update: summary[key]
            for update, key in ((0, before), (last, after))
            if summary.get(key, {}).get("rate") is not None
        }
        if rates:
            _draw_rates(axes, rates, label, colour, marker, above)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=INK)


def _draw_parts(
    axes: Axes, records: Sequence[Mapping[str, Any]], told: Collection[str]
) -> None:
    """Each named part of the reward, where there is more than one."""
    names = sorted(name for name in told if name.startswith(PART))
    for name, colour in zip(names, itertools.cycle(PARTS)) if names[1:] else ():
        line(axes, *series(records, name), colour, name.removeprefix(PART))
    if names[1:]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _interval(record: Mapping[str, float]) -> tuple[float, float]:
    """Of an update's success, by the number of its episodes that were not void."""
    valid = round(record[EPISODES] * (1 - record.get(VOID, 0.0)))
    return score.wilson(round(record[SUCCESS] * valid), valid)


def _draw_rates(
    axes: Axes,
    rates: Mapping[int, Mapping[str, float]],
    label: str,
    colour: str,
    marker: str,
    above: int,
) -> None:
    """Measured rates by update, with their intervals and as numbers."""
    centre = np.array([rate["rate"] for rate in rates.values()])
    low = np.array([rate["low"] for rate in rates.values()])
    high = np.array([rate["high"] for rate in rates.values()])
    axes.errorbar(
        list(rates), centre, yerr=(centre - low, high - centre), label=label,
        color=colour, marker=marker, markersize=7, capsize=4, linestyle="", zorder=5,
    )  # fmt: skip
    for place in zip(rates, centre, strict=True):
        axes.annotate(
            f"{place[1]:.0%}", place, textcoords="offset points", xytext=(9, above),
            color=colour, fontsize=10, fontweight="bold",
        )  # fmt: skip


def line(
    axes: Axes, updates: np.ndarray, values: np.ndarray, colour: str, label: str = ""
) -> None:
    """The values faintly, and their running mean over a tenth of the run."""
    if not len(values):
        place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, "not recorded", color=SOFT, **place)
        return
    axes.plot(updates, values, color=colour, alpha=0.3, linewidth=1)
    width = max(len(values) // 10, 1)
    axes.plot(updates, smooth(values, width), color=colour, linewidth=2, label=label)


def _share_axis(axes: Axes) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def dress(axes: Axes, title: str) -> None:
    """One look for all panels."""
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.grid(axis="y", color=GRID)
    axes.tick_params(colors=SOFT, length=0, labelsize=9)
    axes.set_axisbelow(True)
