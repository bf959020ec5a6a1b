"""Metrics of a run: one record a step, to a jsonl file, TensorBoard and the terminal.

In: a step and a mapping of names to numbers or arrays. Out: `<name>.jsonl` in full
precision, `tensorboard/`, one line on stdout. Names are `room/thing_unit`, the same
everywhere. A run that goes on appends; one that went back some steps writes them
again, and `read` gives back the steps that survived.
"""

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

_NAME = re.compile(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.:-]+)*")


class Writer:
    """Owns the two files of one stage's metrics.

    Example: Writer("runs/demo/rl", stage="rl", total=50, show=("reward/mean",)) and
    write(12, {"reward/mean": 0.53, "learner/loss": loss}) print
    `rl 12/50  reward/mean 0.53  9.8 s/step  6 min left`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        stage: str = "step",
        total: int = 0,  # steps of the whole run; 0 = not known, no time left is told
        show: Sequence[str] = (),  # names on the terminal, in this order
        name: str = "metrics",  # of the jsonl file
        stream: TextIO | None = None,  # None = stdout
        clock: Callable[[], float] = time.monotonic,
    ):
        path = Path(folder) / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(path)
        self._file = path.open("a", encoding="utf-8")
        self._board_folder = path.parent / "tensorboard" / name
        self._board: Any = None  # None = nothing yet
        self._stage, self._total, self._show = stage, total, show
        self._stream = stream or sys.stdout
        self._clock = clock
        self._began: tuple[int, float] | None = None  # first step here and its time
        self._born_s = clock()

    def write(self, step: int, values: Mapping[str, Any]) -> dict[str, float]:
        """Records one step and returns its numbers: an array's mean, none if empty."""
        numbers = scalars(values)
        record = {"step": step, **{k: _to_json(v) for k, v in numbers.items()}}
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()
        if self._board is None:
            # Points of a run that went further and was taken back are purged.
            import tensorboardX  # seconds where torch is installed: it brings it in

            self._board = tensorboardX.SummaryWriter(
                str(self._board_folder), purge_step=step
            )
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        print(self._line(step, numbers), file=self._stream, flush=True)
        return numbers

    def close(self) -> None:
        """Flushes and closes both files; a second call does nothing."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def _line(self, step: int, numbers: Mapping[str, float]) -> str:
        """What the terminal shows of a step."""
        count = f"{step}/{self._total}" if self._total else str(step)
        shown = [f"{k} {numbers[k]:.4g}" for k in self._show if k in numbers]
        return "  ".join((f"{self._stage} {count}", *shown, *self._pace(step)))

    def _pace(self, step: int) -> list[str]:
        """Rate and time left; the first step here is timed from the start."""
        now = self._clock()
        if self._began is None:
            self._began = (step - 1, self._born_s)
        first, since = self._began
        if step <= first or now <= since:
            return []
        step_s = (now - since) / (step - first)
        rate = f"{step_s:.1f} s/step" if step_s >= 1 else f"{1 / step_s:.1f} steps/s"
        left = (self._total - step) * step_s
        return [rate, f"{duration(left)} left"] if self._total else [rate]


class Stopwatch:
    """Tells how long it was since it was last asked, or made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = clock()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._since = self._since, self._clock()
        return self._since - before


def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of the steps that survived, in order of step; no file = none.

    A record at step s takes the place of all earlier ones at s or later: what a run
    did after the checkpoint to which it went back belongs to no surviving state. A
    last line that a crash cut short is left out.
    """
    records: list[dict[str, Any]] = []
    path = Path(path)
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
    for line in lines[:-1]:  # what follows the last newline is torn, or empty
        record = {k: _from_json(v) for k, v in json.loads(line).items()}
        while records and records[-1]["step"] >= record["step"]:
            records.pop()
        records.append(record)
    return records


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Each value as one number: itself, or the mean of an array; empty ones go."""
    numbers = {}
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"metric name {name!r}; wanted the form room/thing_unit")
        array = np.asarray(value, np.float64)
        if array.size:
            numbers[name] = float(array.mean())
    return numbers


def spread(name: str, values: Any) -> dict[str, float]:
    """`name/mean`, `name/p95` and `name/max` of some values; nothing of none."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return {}
    return {
        f"{name}/mean": float(array.mean()),
        f"{name}/p95": float(np.quantile(array, 0.95)),
        f"{name}/max": float(array.max()),
    }


def ks(one: Iterable[float], other: Iterable[float]) -> list[float]:
    """Kolmogorov-Smirnov distance of two samples, [] if either is empty.

    Example: (1, 1, 2, 30) and (1, 1, 2, 2) -> [0.25], one of four is missing.
    """
    a, b = (np.sort(np.fromiter(values, np.float64)) for values in (one, other))
    if not a.size or not b.size:
        return []
    at = np.concatenate([a, b])
    shares = (np.searchsorted(x, at, side="right") / x.size for x in (a, b))
    return [float(np.abs(next(shares) - next(shares)).max())]


def slope(records: Sequence[Mapping[str, Any]], name: str) -> float:
    """By how much a metric grows with each step (least squares); NaN below two."""
    told = [(record["step"], record[name]) for record in records if name in record]
    if len(told) < 2:
        return math.nan
    steps, values = np.array(told, np.float64).T
    return float(np.polyfit(steps, values, 1)[0])


def memory_mb() -> float:
    """What this process holds of the machine's memory (RSS)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def share(part: float, whole: float) -> float:
    """part / whole, and 0 of nothing."""
    return part / whole if whole else 0.0


def duration(seconds: float) -> str:
    """A length of time as a person says it: 45 s, 12 min, 3 h 20 min."""
    minutes = round(max(seconds, 0.0) / 60)
    if seconds < 90:
        return f"{round(max(seconds, 0.0))} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _drop_torn_line(path: Path) -> None:
    """Cuts off what a crash left behind the last whole line."""
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)


def _to_json(value: float) -> float | int | str:
    """JSON knows no NaN and no infinity: they are written as words."""
    if not math.isfinite(value):
        return str(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _from_json(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
