"""Where tasks come from, as config says: a pure map from an ordinal to a Task.

The ledger asks for ordinals 0, 1, 2, ...; what it gets depends on the config's data
and seed alone, so a run that is taken up again sees the same tasks.
"""

import functools
import hashlib
import json
import pathlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from openwebrl_jax.core.types import Task
from openwebrl_jax.tasks import formats, miniwob, sites

Split = Literal["train", "heldout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Tasks by ordinal. Made by `make_source`, eaten by `rollout.ledger`.

    Ordinals may go past `length`: then tasks come again, files in another order.
    """

    task_at: Callable[[int], Task]
    digest: str  # of the data itself: another file or page set has another
    length: int  # different tasks
    sites: tuple[str, ...]  # local sites that the tasks need


def make_source(config: Any, seed: int, split: Split) -> Source:
    """The tasks of one split of `config.tasks`."""
    if config.suite not in SUITES:
        raise ValueError(
            f"config.tasks.suite={config.suite!r}; wanted one of {sorted(SUITES)}"
        )
    return SUITES[config.suite](config, seed, split)


def _miniwob_source(config: Any, seed: int, split: Split) -> Source:
    """Pages take turns; each goes through its seeds, a held-out one from the first."""
    names = tuple(config.names)
    if not names:
        raise ValueError("config.tasks.names is empty; name some MiniWoB pages")
    for name in names:
        miniwob.check_name(name)
    ranges = {"train": config.train_seeds, "heldout": config.heldout_seeds}
    _check_ranges(ranges)
    first, end = ranges[split]
    span = end - first
    start = random.Random(f"{seed}/miniwob").randrange(span) if split == "train" else 0

    def task_at(ordinal: int) -> Task:
        turn, place = divmod(ordinal, len(names))
        return miniwob.make_task(
            names[place],
            first + (start + turn) % span,
            max_turns=config.max_turns,
            split=split,
        )

    pages = [(miniwob.FOLDER / f"{name}.html").read_bytes() for name in names]
    facts = json.dumps([names, first, end, config.max_turns]).encode()
    return Source(
        task_at=task_at,
        digest=_digest(facts, *pages),
        length=span * len(names),
        sites=(sites.MINIWOB,),
    )


def _file_source(config: Any, seed: int, split: Split) -> Source:
    """The file's tasks of the split; training shuffles them each epoch.

    A file that knows no splits is used for both; in one that does, a line without one
    is for training.
    """
    path = pathlib.Path(config.path)
    every = formats.load(path, max_turns=config.max_turns)
    has_splits = any(task.split for task in every)
    tasks = tuple(
        task for task in every if not has_splits or (task.split or "train") == split
    )
    if not tasks:
        raise ValueError(f"{path}: no task of the split {split!r} is in it")

    def task_at(ordinal: int) -> Task:
        epoch, place = divmod(ordinal, len(tasks))
        order = _order(seed, epoch, len(tasks)) if split == "train" else None
        return tasks[order[place] if order else place]

    return Source(
        task_at=task_at,
        digest=_digest(path.read_bytes(), str(config.max_turns).encode()),
        length=len(tasks),
        sites=tuple(sorted({site for task in tasks for site in task.sites})),
    )


SUITES = {"miniwob": _miniwob_source, "file": _file_source}


def _check_ranges(ranges: dict[str, tuple[int, int]]) -> None:
    """Both hold a seed, and no held-out seed can be trained on."""
    for split, (first, end) in ranges.items():
        if not first < end:
            raise ValueError(
                f"config.tasks.{split}_seeds=({first}, {end}) holds no seed; wanted a "
                "half-open range"
            )
    if max(first for first, _ in ranges.values()) < min(
        end for _, end in ranges.values()
    ):
        raise ValueError(
            f"config.tasks.heldout_seeds={ranges['heldout']} overlaps "
            f"train_seeds={ranges['train']}; held-out tasks may not be trained on"
        )


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)


def _digest(*parts: bytes) -> str:
    joined = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(joined).hexdigest()
