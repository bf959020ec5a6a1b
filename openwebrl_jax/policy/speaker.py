"""Speaks for many requests at once, a step at a time: the work in the sampler's thread.

In: prompts. Out: what the device drew for each. A request takes a row of the cache,
gets what another row has already, has the rest of its prompt prefilled chunk by chunk
beside the replies of others, and then draws. Only what was not in its row before is
computed: an episode's next turn finds the history there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from openwebrl_jax.policy import features, generate, slots, weights
from openwebrl_jax.policy import prompt as prompts

# While most wait for their prompts, so many chunks go before the replies of the others.
HELD_CHUNKS = 8
# While anyone waits for a prompt, replies get this part of a decode at a time.
SHARED_PART = 4
COUNTED: tuple[str, ...] = (
    "replies",
    "prompt_tokens",
    "reply_tokens",
    "reused_tokens",  # of prompts: they stood in the row
    "copied_tokens",  # they stood in another row
    "prefilled_tokens",
    "prefill_places",  # with padding
    "decode_places",  # reply tokens with padding, and what came after a reply's end
    "busy_s",
    # Of the steps, from which their time as a function of the rows inside is fitted.
    "steps",
    "row_steps",  # rows inside, summed over steps
    "row_steps_sq",  # their squares
    "row_s",  # rows times seconds
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What the device drew for one request."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    queued_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Line:
    """A request inside, from its row to its reply."""

    prompt: prompts.Prompt
    seat: slots.Seat
    queued_s: float
    finish: Callable[[Spoken], None]
    is_sharing: bool  # True = it waits for tokens of another row
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Speaker:
    """Owns the weights, the cache and what its rows hold; a `batcher.Work`."""

    def __init__(
        self,
        params: Any,
        version: int,
        programs: generate.Programs,
        lattice: generate.Lattice,
        store: features.FeatureStore,
        end_id: int,
    ):
        self.like = weights.abstract(params)
        self.params, self.version = weights.own(params, self.like), version
        self.totals = dict.fromkeys(COUNTED, 0.0)
        self._programs = programs
        self._lattice = lattice
        self._store = store
        self._end_id = end_id
        self._slots = slots.Slots(
            lattice.rows, worth=lattice.narrow_tokens, reuses=not lattice.is_static
        )
        self._lines: list[_Line] = []
        self._copies: list[slots.Seat] = []
        self._held = 0  # chunks since a reply could have gone on
        self._cache: Any = None  # None = nothing was computed yet by these weights

    def add(
        self, item: prompts.Prompt, came_s: float, finish: Callable[[Spoken], None]
    ) -> None:
        """Seats a prompt."""
        seat = self._slots.take(item.episode_id, item.identity_L)
        line = _Line(
            prompt=item,
            seat=seat,
            queued_s=time.monotonic() - came_s,
            finish=finish,
            is_sharing=seat.shared > 0,
        )
        self._lines.append(line)
        self._count("prompt_tokens", len(item.ids_L))
        self._count("reused_tokens", self._slots.filled(seat.row))
        # At once: an idle row may be another's before the next step.
        self._share()

    def step(self) -> None:
        """One chunk of prefill and one piece of replies, as far as they are wanted.

        While most rows wait for their prompts, these go first for some chunks: a call
        of `decode` costs nearly the same for one row as for all.
        """
        start_s, inside = time.monotonic(), len(self._lines)
        self._copy()
        if pieces := self._pieces():
            self._prefill(*pieces)
            self._share()
            self._copy()
        ready = [line for line in self._lines if self._rest(line) == 0]
        are_few = 2 * len(ready) < len(self._lines)
        if ready and are_few and self._held < HELD_CHUNKS:
            self._held += 1
        elif ready:
            self._held = 0
            self._decode(ready)
        spent_s = time.monotonic() - start_s
        self._count("busy_s", spent_s)
        self._count("steps", 1)
        self._count("row_steps", inside)
        self._count("row_steps_sq", inside**2)
        self._count("row_s", inside * spent_s)

    def drop(self) -> None:
        """Forgets all: the arrays may be gone with the program that failed."""
        self._lines, self._copies, self._held, self._cache = [], [], 0, None
        self._slots.forget()
        self._store.forget()

    def release(self, episode_id: str) -> None:
        """The episode's row may go to others first.

        From any thread: at worst the row stays the episode's until it is the one that
        was used longest ago.
        """
        self._slots.release(episode_id)

    def swap(self, version: int, params: Any) -> None:
        """Takes other weights, by which nothing was computed yet."""
        self.params = weights.own(params, self.like)
        self.version = version
        self._slots.forget()
        self._store.forget()

    def warm_up(self, values: int) -> None:
        """Compiles every program that requests can ask for; patches have values."""
        self._store.warm_up(self.params, values)
        for rows, tokens in self._lattice.prefills():
            self._run_prefill((), rows, tokens)
        for rows, places in self._lattice.decodes():
            self._run_decode((), rows, places, 1)
        self._run_copy(())

    def _count(self, name: str, count: float) -> None:
        self.totals[name] += count

    def _rest(self, line: _Line) -> int:
        """Tokens that must come into the cache before the reply may begin."""
        known = self._slots.filled(line.seat.row)
        return max(0, len(line.prompt.ids_L) - 1 - known)

    def _share(self) -> None:
        """Notes what can be copied now, in the order in which it must be."""
        for line in self._lines:
            row, donor, shared = line.seat
            if not line.is_sharing or self._slots.filled(donor) < shared:
                continue
            line.is_sharing = False
            self._copies.append(line.seat)
            self._count("copied_tokens", shared - self._slots.filled(row))
            self._slots.fill(row, shared)

    def _copy(self) -> None:
        if self._copies:
            self._run_copy(self._copies)
            self._copies = []

    def _pieces(self) -> tuple[list[prompts.Piece], int, int] | None:
        """What is prefilled next, as pieces for a chunk of rows and tokens."""
        waiting = [x for x in self._lines if self._rest(x) and not x.is_sharing]
        if not waiting:
            return None
        lattice = self._lattice
        if self._is_long(waiting[0]):
            rows, tokens = 1, lattice.wide_tokens
        else:
            waiting = [line for line in waiting if not self._is_long(line)]
            is_crowd = len(waiting) > max(1, lattice.narrow_rows // 4)
            rows = lattice.narrow_rows if is_crowd else 1
            tokens = lattice.narrow_tokens
        return [self._piece(line, tokens) for line in waiting[:rows]], rows, tokens

    def _is_long(self, line: _Line) -> bool:
        """True = a wide chunk would be nearly full, and its row holds it."""
        wide = self._lattice.wide_tokens
        is_apart = wide > self._lattice.narrow_tokens
        fits = self._slots.filled(line.seat.row) + wide <= self._lattice.places[-1]
        return is_apart and fits and 4 * self._rest(line) > 3 * wide

    def _piece(self, line: _Line, tokens: int) -> prompts.Piece:
        row = line.seat.row
        start = self._slots.filled(row)
        stop = start + min(tokens, self._rest(line))
        return prompts.Piece(prompt=line.prompt, row=row, tokens=slice(start, stop))

    def _prefill(self, pieces: Sequence[prompts.Piece], rows: int, tokens: int) -> None:
        self._run_prefill(pieces, rows, tokens)
        for piece in pieces:
            self._slots.fill(piece.row, piece.tokens.stop)
            self._count("prefilled_tokens", piece.tokens.stop - piece.tokens.start)
        self._count("prefill_places", rows * tokens)

    def _decode(self, lines: Sequence[_Line]) -> None:
        rows = next(rows for rows in self._lattice.widths if rows >= len(lines))
        most = max(len(line.prompt.ids_L) - 1 + len(line.ids) for line in lines)
        places = next(places for places in self._lattice.places if places >= most)
        is_whole = self._lattice.is_static or len(lines) == len(self._lines)
        part = 1 if is_whole else SHARED_PART
        tokens = max(1, self._lattice.decode_tokens // part)
        drawn = self._run_decode(lines, rows, places, tokens)
        for b, line in enumerate(lines):
            new = slice(drawn.length_B[b])
            line.ids += drawn.ids_BT[b, new].tolist()
            line.logprobs += drawn.logp_BT[b, new].tolist()
        self._count("reply_tokens", float(drawn.length_B.sum()))
        self._count("decode_places", float(rows * drawn.length_B.max()))
        for line in lines:
            is_full = len(line.ids) == self._lattice.response_tokens
            if is_full or line.ids[-1] == self._end_id:
                self._finish(line)

    def _finish(self, line: _Line) -> None:
        self._lines.remove(line)
        spoken_L = np.array(line.ids[:-1], np.int64)  # the last one was never fed
        identity_L = np.concatenate([line.prompt.identity_L, spoken_L])
        self._slots.leave(line.seat.row, identity_L)
        self._count("replies", 1)
        line.finish(
            Spoken(
                ids=tuple(line.ids),
                logprobs=tuple(line.logprobs),
                version=self.version,
                queued_s=line.queued_s,
            )
        )

    # Each of these runs one program.

    def _run_prefill(
        self, pieces: Sequence[prompts.Piece], rows: int, tokens: int
    ) -> None:
        shown = {
            key: picture
            for piece in pieces
            for key, picture in piece.prompt.pictures_of(piece.tokens).items()
        }
        offsets = self._store.offsets(self.params, shown)
        chunk = prompts.stack(pieces, offsets, rows=rows, tokens=tokens)
        with weights.host_inputs():
            self._cache = self._programs.prefill(
                self.params, self._store.arrays, self._rows(), chunk
            )

    def _run_copy(self, copies: Sequence[slots.Seat]) -> None:
        seat_3J = np.zeros((3, self._lattice.rows), np.int32)
        for j, seat in enumerate(copies):
            seat_3J[:, j] = seat.donor, seat.row, seat.shared
        with weights.host_inputs():
            self._cache = self._programs.copy(
                self._rows(), *seat_3J, np.int32(len(copies))
            )

    def _run_decode(
        self, lines: Sequence[_Line], rows: int, places: int, tokens: int
    ) -> generate.Drawn:
        seeds = _stack(lines, rows, tokens)
        with weights.host_inputs():
            drawn, self._cache = self._programs.decode(
                self.params, self._rows(), seeds, places
            )
        return jax.device_get(drawn)

    def _rows(self) -> Any:
        """The cache, made anew where there is none."""
        if self._cache is None:
            empty = self._programs.init_cache(self.params)
            self._cache = jax.device_put(empty, weights.beside(self.params))
        return self._cache


def _stack(lines: Sequence[_Line], rows: int, tokens: int) -> generate.Seeds:
    """Requests as one padded call."""
    seeds = generate.Seeds(
        row_B=np.zeros(rows, np.int32),
        token_B=np.zeros(rows, np.int32),
        start_B=np.zeros(rows, np.int32),
        position_B=np.zeros(rows, np.int32),
        drawn_B=np.zeros(rows, np.int32),
        key_B4=np.zeros((rows, 4), np.uint32),
        is_greedy_B=np.zeros(rows, bool),
        count=np.int32(len(lines)),
        tokens=np.int32(tokens),
    )
    for b, line in enumerate(lines):
        prompt, drawn = line.prompt, len(line.ids)
        seeds.row_B[b] = line.seat.row
        seeds.token_B[b] = line.ids[-1] if drawn else prompt.ids_L[-1]
        seeds.start_B[b] = len(prompt.ids_L) - 1 + drawn
        seeds.position_B[b] = prompt.positions_3L[0, -1] + drawn
        seeds.drawn_B[b] = drawn
        seeds.key_B4[b] = [part % 2**32 for part in prompt.key]
        seeds.is_greedy_B[b] = prompt.is_greedy
    return seeds
