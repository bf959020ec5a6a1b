"""Success without a judge: the checks that a task brings, run over its trajectory.

    {"kind": "fact", "name": "raw_reward", "equals": 1.0}  read by the end script
    {"kind": "url", "matches": "/cart$"}                   regex, final active tab
    {"kind": "answer", "equals": "42 EUR"}                 of `done`; or "contains"

All of them must hold. Answers are compared without case and outer or repeated space.
"""

import re
from collections.abc import Mapping
from typing import Any

from openwebrl_jax.core.types import Task, Trajectory


def check(task: Task, trajectory: Trajectory) -> float | None:
    """1.0 iff every check holds, else 0.0; None = the task brings no checks."""
    if not task.checks:
        return None
    return float(all(_holds(check, trajectory) for check in task.checks))


def _holds(check: Mapping[str, Any], trajectory: Trajectory) -> bool:
    if check["kind"] not in KINDS:
        raise ValueError(
            f"task {trajectory.task.id!r} has a check of kind {check['kind']!r}; "
            f"wanted one of {sorted(KINDS)}"
        )
    return KINDS[check["kind"]](check, trajectory)


def _fact(check: Mapping[str, Any], trajectory: Trajectory) -> bool:
    name = check["name"]
    return name in trajectory.facts and trajectory.facts[name] == check["equals"]


def _url(check: Mapping[str, Any], trajectory: Trajectory) -> bool:
    final = trajectory.final
    if final is None or not final.tabs:
        return False
    return re.search(check["matches"], final.tabs[final.active_tab].url) is not None


def _answer(check: Mapping[str, Any], trajectory: Trajectory) -> bool:
    answer = _plain(trajectory.answer)
    if "equals" in check:
        return answer == _plain(check["equals"])
    return _plain(check["contains"]) in answer


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


KINDS = {"fact": _fact, "url": _url, "answer": _answer}
