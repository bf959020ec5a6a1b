"""Sites that keep failing are left alone for a while; local ones are never blamed.

In: how attempts ended, and when. Out: events that say that a site failed or answered,
and which task the next group gets: those of a site at rest are passed over.
"""

import urllib.parse
from collections.abc import Callable

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Owner
from openwebrl_jax.rollout import books, records
from openwebrl_jax.rollout.books import State
from openwebrl_jax.rollout.events import Event

# Endings at reset that say that the site is not to be had: a crash may be the page's.
BLAMED = tuple(
    cause
    for cause in Cause
    if cause.owner is Owner.SITE and cause is not Cause.PAGE_CRASH
)
_AHEAD = 1000  # tasks that are looked through for one on a site that answers


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


def open_group(
    state: State, now_s: float, task_at: Callable[[int], types.Task]
) -> list[Event]:
    """Opens a group on the next task whose site is not at rest.

    If all sites within reach are, the next task is taken as it comes: its groups fail
    and are counted, and so the run stops by a typed error and not by silence.
    """
    first = state.drawn
    reach = range(first, first + _AHEAD) if state.hosts else ()
    drawn = next((n for n in reach if not _rests(state, now_s, task_at(n))), first)
    task = records.to_json(task_at(drawn))
    opened: Event = {"kind": "opened", "ordinal": state.opened, "task": task}
    passed: Event = {"kind": "passed_over", "count": drawn - first}
    return [passed, opened] if drawn > first else [opened]


def _rests(state: State, now_s: float, task: types.Task) -> bool:
    return state.hosts.get(site_of(task), books.Host()).until_s > now_s
