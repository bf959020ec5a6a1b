"""Which tasks are worth their time: those that are solved at times and not always.

In: what is known of how a kind of task went. Out: the chance with which a task is
taken when its turn comes; one that is not waits for its next turn. The chance never
falls below a floor, so that no task starves and what was given up is tried again.
"""

import random
from dataclasses import dataclass

from openwebrl_jax.core.types import Task

_SEEDED = ("miniwob", "fake")  # suites whose tasks differ in a seed: suite/page/seed
_FORGOTTEN = 0.1  # episodes; what has faded below it says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Episodes of a kind of task of late. Made by `learnt`, kept by the ledger.

    Example: Skill(wins=3.0, losses=5.0, version=7), counted when 7 was published.
    """

    wins: float = 0.0
    losses: float = 0.0
    version: int = 0


def name_of(task: Task) -> str:
    """What shares one Skill: a page whose problems differ in a seed, else the task."""
    head, _, seed = task.id.rpartition("/")
    return head if task.suite in _SEEDED and head and seed.isdigit() else task.id


def chance(skill: Skill, version: int, floor: float, decay: float) -> float:
    """floor + (1 - floor) 4 E[p (1 - p)], p ~ Beta(1 + wins, 1 + losses).

    Both counts fade by `decay` with each version since they were made. Example: at
    floor 0.1, nothing known 0.7, 8 of 16 won 0.95, 24 of 24 lost 0.23.
    """
    fade = decay ** max(0, version - skill.version)
    a, b = 1.0 + skill.wins * fade, 1.0 + skill.losses * fade
    spread = a * b / ((a + b) * (a + b + 1.0))
    return floor + (1.0 - floor) * 4.0 * spread


def is_taken(chance: float, seed: int, number: int) -> bool:
    """Whether the source's task of that number is; equal arguments, equal answer."""
    return random.Random(f"{seed}/curriculum/{number}").random() < chance


def learnt(skill: Skill, new: Skill, version: int, decay: float) -> Skill:
    """What was known, faded to `version`, and what has come since."""
    fade = decay ** max(0, version - skill.version)
    return Skill(
        wins=skill.wins * fade + new.wins,
        losses=skill.losses * fade + new.losses,
        version=version,
    )


def is_forgotten(skill: Skill, version: int, decay: float) -> bool:
    """True = it is as good as not known."""
    faded = learnt(skill, Skill(), version, decay)
    return faded.wins + faded.losses < _FORGOTTEN
