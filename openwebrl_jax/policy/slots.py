"""What each row of the cache holds, found again by comparing.

In: the identities of a prompt's tokens. Out: the row that it goes to, and how much of
it stands there, or in another row, already. A row that was taken by others, a history
that changed, a sampler that knows nothing yet: the common prefix is shorter, and
nothing else happens.

L tokens of a prompt. Two tokens with equal identities before equal prefixes have equal
keys and values.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Seat(NamedTuple):
    """Where a prompt goes. Made by `Slots.take`."""

    row: int
    donor: int  # another row to copy the beginning from, once it is there
    shared: int  # tokens of it; 0 = what the own row has is as good


@dataclass(slots=True)
class _Slot:
    # What is in the row, or of a busy one will be before its reply begins.
    known_L: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    filled: int = 0  # tokens of it that are in the cache already
    owner: str | None = None  # an episode; None = of no one
    is_busy: bool = False
    used: int = 0  # when it was taken


class Slots:
    """The host's side of the cache's rows; for one thread.

    `worth` is the least number of tokens for which a row is copied from another.
    Without `reuses` every prompt is computed anew, so that its bits do not hang on
    what came before it.
    """

    def __init__(self, rows: int, worth: int, reuses: bool = True):
        self._reuses = reuses
        self._slots = [_Slot() for _ in range(rows)]
        self._worth = worth
        self._clock = 0

    def take(self, episode_id: str, identity_L: np.ndarray) -> Seat:
        """A row for the prompt, which is busy until `leave`; one must be idle.

        The last token is never counted as known: decoding begins with it.
        """
        row = self._choose(episode_id, identity_L)
        slot = self._slots[row]
        kept = min(slot.filled, self._common(row, identity_L))
        others = [other for other in range(len(self._slots)) if other != row]
        shared = {other: self._common(other, identity_L) for other in others}
        donor = max(others, key=shared.__getitem__, default=row)
        if not self._reuses:
            kept, shared = 0, {}
        self._clock += 1
        self._slots[row] = _Slot(identity_L[:-1], kept, episode_id, True, self._clock)
        if shared.get(donor, 0) - kept < self._worth:
            return Seat(row, row, 0)
        return Seat(row, donor, shared[donor])

    def filled(self, row: int) -> int:
        """How many tokens of what it was taken for are in the row's cache."""
        return self._slots[row].filled

    def fill(self, row: int, filled: int) -> None:
        """So many are there now."""
        self._slots[row].filled = filled

    def leave(self, row: int, identity_L: np.ndarray) -> None:
        """The row is idle and holds these tokens."""
        slot = self._slots[row]
        slot.known_L, slot.filled, slot.is_busy = identity_L, len(identity_L), False

    def release(self, episode_id: str) -> None:
        """The episode has ended: its row goes before those of others."""
        for slot in self._slots:
            if slot.owner == episode_id:
                slot.owner = None

    def forget(self) -> None:
        """Nothing is known of any row, and none is busy."""
        self._slots = [_Slot(owner=slot.owner) for slot in self._slots]

    def _choose(self, episode_id: str, identity_L: np.ndarray) -> int:
        """The episode's own row, else one of no one, else the one used longest ago."""
        idle = [row for row, slot in enumerate(self._slots) if not slot.is_busy]
        for owner in (episode_id, None):
            rows = [row for row in idle if self._slots[row].owner == owner]
            if rows:
                return max(
                    rows,
                    key=lambda row: (
                        self._common(row, identity_L),
                        -self._slots[row].used,
                    ),
                )
        return min(idle, key=lambda row: self._slots[row].used)

    def _common(self, row: int, identity_L: np.ndarray) -> int:
        """The length of the common prefix, without the prompt's last token."""
        known_L = self._slots[row].known_L
        most = min(len(known_L), len(identity_L) - 1)
        is_other_L = known_L[:most] != identity_L[:most]
        return int(is_other_L.argmax()) if is_other_L.any() else most
