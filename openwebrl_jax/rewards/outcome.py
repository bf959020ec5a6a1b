"""Success without a judge: the checks that a task brings, run over its trajectory.

    {"kind": "fact", "name": "raw_reward", "equals": 1.0}  read by the end script
    {"kind": "url", "matches": "/cart$"}                   regex, final active tab
    {"kind": "answer", "equals": "42 EUR"}                 of `done`; or "contains"
    {"kind": "webarena", "eval": {...}}                    see rewards.webarena

All of them must hold. Answers are compared without case and outer or repeated space.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from openwebrl_jax.core.types import Complete, Task, Trajectory
from openwebrl_jax.rewards import webarena

Check = Mapping[str, Any]


async def check(
    task: Task, trajectory: Trajectory, complete: Complete | None = None
) -> float | None:
    """1.0 iff every check holds, else 0.0, or -1.0 where the site kept the agent out;
    None = the task brings no checks. `complete` grades what only a model can."""
    if not task.checks:
        return None
    parts = []
    for each in task.checks:
        if each["kind"] not in KINDS:
            raise ValueError(f"task {task.id!r} has {next(faults(each, task))}")
        parts.append(await KINDS[each["kind"]](each, trajectory, complete))
    return webarena.product(parts)


async def _fact(check: Check, trajectory: Trajectory, _: Complete | None) -> float:
    name, facts = check["name"], trajectory.facts
    return float(name in facts and facts[name] == check["equals"])


async def _url(check: Check, trajectory: Trajectory, _: Complete | None) -> float:
    final = trajectory.final
    if final is None or not final.tabs:
        return 0.0
    return float(bool(re.search(check["matches"], final.tabs[final.active_tab].url)))


async def _answer(check: Check, trajectory: Trajectory, _: Complete | None) -> float:
    answer = _plain(trajectory.answer)
    if "equals" in check:
        return float(answer == _plain(check["equals"]))
    return float(_plain(check["contains"]) in answer)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


Kind = Callable[[Check, Trajectory, Complete | None], Awaitable[float]]
KINDS: dict[str, Kind] = {
    "fact": _fact,
    "url": _url,
    "answer": _answer,
    "webarena": webarena.score,
}


def faults(check: Any, task: Task) -> Iterator[str]:
    """What is wrong with one check, so that it is found before anything starts."""
    kind = check.get("kind") if isinstance(check, Mapping) else None
    if kind not in KINDS:
        yield f"a check of kind {kind!r}; wanted one of {sorted(KINDS)}"
    elif kind == "webarena":
        yield from webarena.faults(check, bool(task.end_script))
    elif kind == "url":
        yield from _pattern_faults(check.get("matches"))
    elif kind == "fact":
        if not isinstance(check.get("name"), str) or "equals" not in check:
            yield f"the check {dict(check)}; wanted name (a text) and equals"
    else:
        given = [check[key] for key in ("equals", "contains") if key in check]
        if len(given) != 1 or not isinstance(given[0], str):
            yield f"the check {dict(check)}; wanted equals or contains, a text"


def _pattern_faults(pattern: Any) -> Iterator[str]:
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        yield f"matches={pattern!r}; wanted a regular expression: {error}"
