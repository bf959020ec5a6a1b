"""Sites and tasks that keep failing are left alone for a while.

In: how attempts and groups ended, and when. Out: events that say that a site or a task
failed, or a site answered, and which task the next group gets: those at rest are passed
over, and those that the curriculum has no use for. Local sites are never blamed. Tasks
on the blocklist, which is kept by hand, come never.
"""

import fnmatch
import itertools
import urllib.parse
from collections.abc import Callable, Sequence

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Owner
from openwebrl_jax.rollout import books, records
from openwebrl_jax.rollout.books import State
from openwebrl_jax.rollout.events import Event
from openwebrl_jax.tasks import curriculum

# Endings at reset that say that the site is not to be had: a crash may be the page's.
BLAMED = tuple(
    cause
    for cause in Cause
    if cause.owner is Owner.SITE and cause is not Cause.PAGE_CRASH
)
# Endings that a page can bring about by itself, whichever browser opens it.
_POISON = (Cause.PAGE_CRASH, Cause.BROWSER_CRASH, Cause.WORKER_LOST, Cause.ENV_TIMEOUT)
_AHEAD = 1000  # tasks that are looked through for one on a site that answers
_LOOKED_AT = 100_000  # tasks that are looked through for one that a pattern matches


def site_of(task: types.Task) -> str:
    """The host that a task stands or falls with; "" = a local one.

    Example: "https://www.Example.com/a" -> "example.com".
    """
    host = (urllib.parse.urlsplit(task.start_url).hostname or "").rstrip(".")
    return "" if host in task.sites else host.removeprefix("www.")


def watch(
    state: State, now_s: float, ordinal: int, slot: int, record: types.Slot
) -> list[Event]:
    """What the end of an attempt says of its site.

    Attempts at one slot are one episode that is tried again. A site that answers is
    cleared of what it failed before that attempt began, not of what came since.
    """
    entry = state.groups[ordinal]
    host, place = site_of(entry.task), entry.places[slot]
    if host and record.cause in BLAMED:
        told = {"host": host, "episode": f"{ordinal}/{slot}", "at_s": now_s}
        return [{"kind": "site_failed", **told}]
    if host in state.hosts and record.turns and place.status is books.Status.RUNNING:
        begun_s = place.deadline_s - state.limits.lease_timeout_s
        return [{"kind": "site_answered", "host": host, "begun_s": begun_s}]
    return []


def poisoned(state: State, now_s: float, found: list[Event]) -> list[Event]:
    """What a group's end says of its task, where every attempt at it crashed.

    As with sites, so many such groups within a while and the task rests.
    """
    closed = found[-1] if found else {}
    if closed.get("kind") != "closed" or not closed["is_void"]:
        return []
    entry = state.groups[closed["ordinal"]]
    ended = [event.get("cause") for event in found]
    ended += [place.record.cause for place in entry.places if place.record]
    if not set(ended) - {None} <= set(_POISON):
        return []
    told = {"host": _task_name(entry.task), "episode": str(entry.ordinal)}
    return [{"kind": "site_failed", **told, "at_s": now_s}]


def open_group(
    state: State, now_s: float, task_at: Callable[[int], types.Task]
) -> list[Event]:
    """Opens a group on the next task that is wanted.

    If none within reach is, the next one that is not blocked is taken as it comes: if
    its site is down its groups fail and are counted, and so the run stops by a typed
    error and not by silence.
    """
    first = state.drawn

    def is_blocked(number: int) -> bool:
        return _is_blocked(state.limits.blocklist, task_at(number).id)

    nearest = next(n for n in itertools.count(first) if not is_blocked(n))
    is_choosy = state.hosts or state.limits.floor < 1.0
    reach = range(nearest, nearest + _AHEAD) if is_choosy else ()
    wanted = (
        n
        for n in reach
        if not is_blocked(n) and _is_wanted(state, now_s, n, task_at(n))
    )
    drawn = next(wanted, nearest)
    task = records.to_json(task_at(drawn))
    opened: Event = {"kind": "opened", "ordinal": state.opened, "task": task}
    passed: Event = {"kind": "passed_over", "count": drawn - first}
    passed["blocked"] = sum(map(is_blocked, range(first, drawn)))
    return [passed, opened] if drawn > first else [opened]


def check_blocklist(
    blocklist: Sequence[str], length: int, task_at: Callable[[int], types.Task]
) -> None:
    """Refuses patterns that match none of `length` tasks, or leave none of them."""
    if not blocklist:
        return
    names = [task_at(n).id for n in range(min(length, _LOOKED_AT))]
    asked = f"config.tasks.blocklist={tuple(blocklist)!r}"
    for pattern in blocklist:
        if not fnmatch.filter(names, pattern):
            raise ValueError(
                f"{asked}: {pattern!r} matches no task; wanted patterns of ids such as "
                f"{', '.join(names[:3])}"
            )
    if all(_is_blocked(blocklist, name) for name in names):
        raise ValueError(f"{asked} leaves no task; wanted one that can be trained on")


def _is_blocked(blocklist: Sequence[str], name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in blocklist)


def _is_wanted(state: State, now_s: float, number: int, task: types.Task) -> bool:
    limits, known = state.limits, (site_of(task), _task_name(task))
    if any(state.hosts.get(each, books.Host()).until_s > now_s for each in known):
        return False
    skill = state.skills.get(curriculum.name_of(task), curriculum.Skill())
    chance = curriculum.chance(skill, state.learnt, limits.floor, limits.decay)
    return curriculum.is_taken(chance, limits.seed, number)


def _task_name(task: types.Task) -> str:
    """What a task is called among sites; no host has a blank in its name."""
    return f"task {task.id}"
