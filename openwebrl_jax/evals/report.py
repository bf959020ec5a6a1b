"""What a run came to, for a person: summary.json, report.md and curves.png.

In: the summary of a run (any of: rates `{rate, low, high, n}`, a gain `{value, low,
high}`, numbers, tables by name, lists by update) and the records of `core.metrics`,
one an update. Out: the three files in the workdir.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openwebrl_jax.evals import curves

Summary = Mapping[str, Any]
Records = Sequence[Mapping[str, Any]]


def write_report(
    workdir: str | os.PathLike[str],
    summary: Summary,
    metrics: Records,
    *,
    title: str = "What the run came to",
) -> None:
    """Writes all three; curves that were not recorded are left out."""
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=1, allow_nan=False, default=_plain)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    curves.draw(folder / "curves.png", summary, metrics)
    (folder / "report.md").write_text(markdown(summary, title), encoding="utf-8")


def markdown(summary: Summary, title: str) -> str:
    """The report: rates with their intervals first, then numbers, then tables."""
    rates = {k: v for k, v in summary.items() if _has(v, "rate")}
    gains = {k: v for k, v in summary.items() if _has(v, "value")}
    numbers = {k: v for k, v in summary.items() if isinstance(v, int | float | str)}
    tables = {
        k: v
        for k, v in summary.items()
        if isinstance(v, Mapping) and v and k not in rates and k not in gains
    }
    lines = [f"# {title}", ""]
    if rates:
        lines += ["| | success | 95 % interval | episodes |", "|---|---|---|---|"]
        lines += [
            f"| {_words(k)} | **{v['rate']:.3f}** | {_range(v)} | {v.get('n', '')} |"
            for k, v in rates.items()
        ]
        lines.append("")
    lines += [
        f"**{_words(k).capitalize()}: {v['value']:+.3f}** (95 % interval {_range(v)}, "
        "the same tasks before and after).\n"
        for k, v in gains.items()
    ]
    lines += ["![Curves of the run](curves.png)", ""]
    if numbers:
        lines += ["| | |", "|---|---|"]
        lines += [f"| {_words(k)} | {_number(v)} |" for k, v in numbers.items()] + [""]
    for name, table in tables.items():
        lines += [f"## {_words(name).capitalize()}", "", "| | |", "|---|---|"]
        lines += [f"| {_words(str(k))} | {_number(v)} |" for k, v in table.items()]
        lines.append("")
    return "\n".join(lines)


def _has(value: Any, key: str) -> bool:
    return isinstance(value, Mapping) and key in value


def _range(value: Mapping[str, float]) -> str:
    return f"{value['low']:.3f} to {value['high']:.3f}"


def _words(name: str) -> str:
    """A key as a person reads it, safe inside a table."""
    return name.replace("_", " ").replace("|", "\\|")


def _number(value: Any) -> str:
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value).replace("|", "\\|").replace("\n", " ")
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as JSON's."""
    return value.tolist()
