"""Whether anything was lost, by the journal and the disk alone.

In: the events of a whole run and the names of what is stored. Out: counts, of which
those of faults are 0 when all is well. The ledger's own counters are not believed:
groups and slots are counted again.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from openwebrl_jax.rollout import books, events, ledger


def audit(
    limits: books.Limits, told: Sequence[events.Event], stored: Collection[str]
) -> dict[str, Any]:
    """`lost` is a group or a scored slot that nothing accounts for, or a broken law.

    An empty journal is one that was lost: what was run has opened a group.
    """
    state, broken = ledger.new_state(limits), 0
    for event in told:
        state = events.apply(state, event)
        broken += _is_broken(state)
    scored = [event for event in told if event["kind"] == "scored"]
    places = Counter((event["ordinal"], event["slot"]) for event in scored)
    names = {event["record"]["trajectory"] for event in scored}
    counts = books.counts(state)
    return {
        "lost": broken
        + (not told)
        + len(_unaccounted(state, told))
        + len(names - set(stored)),
        "trained_twice": events.trained_twice(told),
        "scored_twice": len(scored) - len(places),
        "void": counts["void"],
        "slots": counts["slots"],
        "groups": counts["groups"],
    }


def _is_broken(state: books.State) -> bool:
    try:
        books.check(state)
    except RuntimeError:
        return True
    return False


def _unaccounted(state: books.State, told: Sequence[events.Event]) -> set[int]:
    """Groups that were opened and are neither trained, nor dropped, nor still known."""
    trained: dict[int, list[int]] = {}
    dropped = set()
    for event in told:
        if event["kind"] == "trained":
            trained[event["iteration"]] = event["ordinals"]
        elif event["kind"] == "rolled_back":
            trained = {n: it for n, it in trained.items() if n <= event["iteration"]}
        elif event["kind"] == "closed" and event["reason"]:
            dropped.add(event["ordinal"])
    seen = {ordinal for ordinals in trained.values() for ordinal in ordinals}
    opened = {event["ordinal"] for event in told if event["kind"] == "opened"}
    return opened - seen - dropped - set(state.groups)
