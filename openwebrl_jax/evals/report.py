"""What a run came to, for a person: numbers, curves, and episodes as pictures.

In: the summary of a run (any of: rates `{rate, low, high, n}`, a gain `{value, low,
high}`, numbers, tables by name, lists by update), the records of `core.metrics`, one
an update, and some episodes. Out, in the workdir: summary.json, report.md, curves.png,
episodes.html and episodes.png.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openwebrl_jax.evals import curves, gallery, sheet


def write_report(
    workdir: str | os.PathLike[str],
    summary: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    *,
    episodes: Sequence[gallery.Episode] = (),
    title: str = "What the run came to",
) -> None:
    """Writes all of it; without episodes there are no pictures of them."""
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(summary), indent=1, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    curves.draw(folder / "curves.png", summary, metrics)
    report = markdown(summary, title)
    if episodes:
        gallery.write_page(folder / "episodes.html", episodes, title=title)
        sheet.write_sheet(folder / "episodes.png", episodes)
        report += "\n## Some episodes\n\n[![Episodes](episodes.png)](episodes.html)\n"
    (folder / "report.md").write_text(report, encoding="utf-8")


def to_json(value: Any) -> Any:
    """The value as JSON knows it: numpy's numbers as Python's, NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(summary: Mapping[str, Any], title: str) -> str:
    """The report: rates with their intervals first, then numbers, then tables."""
    rates = {k: v for k, v in summary.items() if _has(v, "rate")}
    gains = {k: v for k, v in summary.items() if _has(v, "value")}
    numbers = {k: v for k, v in summary.items() if _is_plain(v)}
    tables = {
        k: v
        for k, v in summary.items()
        if isinstance(v, Mapping) and v and k not in {**rates, **gains}
    }
    lines = [f"# {title}", ""]
    if rates:
        lines += ["| | success | 95 % interval | episodes |", "|---|---|---|---|"]
        lines += [
            f"| {_words(k)} | **{_measured(v['rate'])}** | {_range(v)} | "
            f"{v.get('n', '')} |"
            for k, v in rates.items()
        ]
        lines.append("")
    lines += [
        f"**{_words(k).capitalize()}: {_measured(v['value'], '+')}** (95 % interval "
        f"{_range(v)}, the same tasks before and after).\n"
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


def _measured(value: float | None, sign: str = "") -> str:
    """A rate or gain; None = every episode was void."""
    return "not measured" if value is None else f"{value:{sign}.3f}"


def _range(value: Mapping[str, float]) -> str:
    return f"{value['low']:.3f} to {value['high']:.3f}"


def _words(name: str) -> str:
    """A key as a person reads it, safe inside a table."""
    return name.replace("_", " ").replace("|", "\\|")


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | np.number)


def _number(value: Any) -> str:
    """Whole numbers whole, others to four digits, texts safe inside a table."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")
