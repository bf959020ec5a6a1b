"""Task files -> Tasks: JSONL of ours, and the parquet rows of OpenWebRL.

    JSONL    {"id", "start_url", "intent"} and, where one likes, the other fields of
             READ; further ones are left alone
    parquet  {"metadata": {"task_id", "start_url", "task"}} in each row

A file is read whole before anything starts. Each faulty line is named by file, line
number and field; all of them are told at once.
"""

import json
import pathlib
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet

from openwebrl_jax.core.types import Task
from openwebrl_jax.tasks import sites

SHOWN_FAULTS = 10


class _Fault(ValueError):
    """One fault of one line, without the line's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one kind of file is read. Example: FORMATS[".jsonl"]."""

    unit: str  # what its lines are called
    read: Callable[[pathlib.Path], Iterator[tuple[int, Any]]]  # numbered lines
    required: Mapping[str, str]  # our field -> its name in the file
    optional: Collection[str] = ()


def load(path: str | pathlib.Path, *, max_turns: int) -> tuple[Task, ...]:
    """All tasks of a file in its order; `max_turns` where a line says nothing."""
    path = pathlib.Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: wanted a file that ends in {' or '.join(FORMATS)}")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such task file; set config.tasks.path")
    form = FORMATS[path.suffix]
    defaults = {"suite": path.stem, "max_turns": max_turns}
    tasks, faults, places = [], [], {}
    for number, value in form.read(path):
        place = f"{form.unit} {number}"
        try:
            task = Task(**{**defaults, **_fields(value, form)})
            if task.id in places:
                name = form.required["id"]
                raise _Fault(f"field {name!r}: {task.id!r} stands in {places[task.id]}")
        except _Fault as fault:
            faults.append(f"{path}, {place}: {fault}")
            continue
        places[task.id] = place
        tasks.append(task)
    if faults:
        more = len(faults) - SHOWN_FAULTS
        shown = faults[:SHOWN_FAULTS] + [f"and {more} more"] * (more > 0)
        raise ValueError("; ".join(shown))
    if not tasks:
        raise ValueError(f"{path}: there is no task in it")
    return tuple(tasks)


def _jsonl(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _parquet(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as fault:
        raise ValueError(f"{path}: no parquet file: {fault}") from fault
    if "metadata" not in table.column_names:
        raise ValueError(f"{path}: no column 'metadata', got {table.column_names}")
    return enumerate(table.column("metadata").to_pylist(), 1)


def _fields(value: Any, form: Format) -> dict[str, Any]:
    """The fields of a Task that a line gives."""
    if isinstance(value, bytes | str):
        value = _decoded(value)
    if not isinstance(value, Mapping):
        raise _Fault(f"got {type(value).__name__}, wanted an object")
    given = {name: name for name in form.optional if value.get(name) is not None}
    return {
        field: _read(value, name, READ[field])
        for field, name in {**form.required, **given}.items()
    }


def _decoded(line: bytes | str) -> Any:
    try:
        return json.loads(line)
    except ValueError as fault:
        raise _Fault(f"no JSON: {fault}") from fault


def _read(value: Mapping[str, Any], name: str, read: Callable[[Any], Any]) -> Any:
    if name not in value:
        raise _Fault(f"field {name!r} is missing")
    try:
        return read(value[name])
    except _Fault as fault:
        raise _Fault(f"field {name!r}: got {value[name]!r:.80}, {fault}") from fault


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Fault("wanted a text that is not empty")
    return value


def _id(value: Any) -> str:
    return str(value) if type(value) is int else _text(value)


def _url(value: Any) -> str:
    try:
        parts = urllib.parse.urlsplit(_text(value))
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_web = False
    if not is_web:
        raise _Fault("wanted a whole address, http:// or https://")
    return value


def _turns(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise _Fault("wanted a number of replies, 1 or more")
    return value


def _split(value: Any) -> str:
    if value not in ("train", "heldout", ""):
        raise _Fault("wanted 'train', 'heldout' or ''")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Fault("wanted a list of texts")
    return tuple(map(_text, value))


def _sites(value: Any) -> tuple[str, ...]:
    hosts = _texts(value)
    if not set(hosts) <= set(sites.SITES):
        raise _Fault(f"wanted some of {sorted(sites.SITES)}")
    return hosts


def _checks(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(map(_is_check, value)):
        wanted = [{"kind": kind, **dict.fromkeys(n, "...")} for kind, n in CHECKS]
        raise _Fault(f"wanted a list of objects like {wanted}")
    return tuple(value)


def _is_check(value: Any) -> bool:
    return isinstance(value, dict) and any(
        value.get("kind") == kind and all(name in value for name in names)
        for kind, names in CHECKS
    )


# Kinds of checks and what each needs; rewards.outcome runs them.
CHECKS = (
    ("fact", ("name", "equals")),
    ("url", ("matches",)),
    ("answer", ("equals",)),
    ("answer", ("contains",)),
    ("webarena", ("eval",)),
    ("webarena", ("task_id",)),
)
READ = {
    "id": _id,
    "start_url": _url,
    "intent": _text,
    "max_turns": _turns,
    "checks": _checks,
    "setup": _text,
    "end_script": _text,
    "sites": _sites,
    "hints": _text,
    "suite": _text,
    "split": _split,
    "tags": _texts,
}
_OURS = ("id", "start_url", "intent")
FORMATS = {
    ".jsonl": Format(
        unit="line",
        read=_jsonl,
        required={name: name for name in _OURS},
        optional=[name for name in READ if name not in _OURS],
    ),
    ".parquet": Format(
        unit="row",
        read=_parquet,
        required={"id": "task_id", "start_url": "start_url", "intent": "task"},
    ),
}
