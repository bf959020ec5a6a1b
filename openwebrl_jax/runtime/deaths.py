"""How many actors may die before it is no accident any more."""

import sys

from openwebrl_jax.rollout import ledger

_DEATHS = 10  # and one an actor, without progress between them, are no accident


class Deaths:
    """Counts actors that died since there was progress, and tells of each."""

    def __init__(self, actors: int = 0):
        self._limit = _DEATHS + actors
        self._count = 0

    def mourn(self, what: str) -> None:
        """One more; too many are a StallError."""
        self._count += 1
        if self._count > self._limit:
            raise ledger.StallError(
                f"{self._limit} actors died and nothing came of the others: {what}; "
                "see Ray's logs, mend the cause, and give the same command again"
            )
        print(what, file=sys.stderr, flush=True)

    def forget(self) -> None:
        """There was progress."""
        self._count = 0
