"""Rows -> a Batch of static shape: packed lines, positions, each image once.

The shapes come from a small lattice of buckets, and the steps of all epochs of an
iteration are the same: a second epoch meets no shape that the first did not compile.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from openwebrl_jax.batch import rows
from openwebrl_jax.core import types
from openwebrl_jax.tokens import images, positions

Line = Sequence[types.Row]  # rows that share one row of the arrays
# Buckets of images, as shares of the most that there can be.
_IMAGE_SHARES = [part / 2**halved for halved in range(4) for part in (1, 3 / 4)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """The sizes that a batch may have; buckets ascend, the smallest that fits is taken.

    Example: Lattice(rows=8, lengths=(2048, 4096), loss_tokens=1024, images=(2, 4, 8),
    patches=(4960,)).
    """

    rows: int  # B, lines
    lengths: tuple[int, ...]  # L
    loss_tokens: int  # N, of a line
    images: tuple[int, ...]  # I
    patches: tuple[int, ...]  # P


def make_lattice(config_batch, grid: tuple[int, int], merge: int) -> Lattice:
    """The lattice of `config.batch` for pages of one grid (rows, columns) of patches.

    Rows that show the same page share its image: hence the smaller image buckets.
    """
    patches = grid[0] * grid[1]
    a_line = max(1, config_batch.lengths[-1] // (patches // merge**2))
    most = config_batch.rows * a_line
    return Lattice(
        rows=config_batch.rows,
        lengths=tuple(config_batch.lengths),
        loss_tokens=config_batch.loss_tokens,
        images=tuple(sorted({math.ceil(most * share) for share in _IMAGE_SHARES})),
        patches=(patches,),
    )


def split(made: Sequence[types.Row], shape: Lattice) -> list[list[Line]]:
    """The rows of one optimizer step as lines, in parts of at most `shape.rows`.

    A part has lines of the bucket that its longest row needs, and since all of them
    are paid for, whatever else fits fills them up: what comes last is short. The
    order is of no other consequence, because the loss is a sum. It follows from the
    rows' own order and not from their names, which tell the time: a run that is
    repeated sums in the same order.
    """
    parts: list[list[Line]] = []
    rest = sorted(made, key=lambda row: (-len(row.ids), row.images))
    while rest:
        length = _bucket(len(rest[0].ids), shape.lengths, *_LENGTH)
        lines = [_Open(length, shape) for _ in range(shape.rows)]
        lines[0].put(rest[0])  # if it does not fit, `collate` says why
        left = []
        for row in rest[1:]:
            line = next((line for line in lines if line.has_room(row)), None)
            if line is None:
                left.append(row)
            else:
                line.put(row)
        parts.append([line.rows for line in lines if line.rows])
        rest = left
    return parts


class _Open:
    """A line that is being filled."""

    def __init__(self, length: int, shape: Lattice):
        self.rows: list[types.Row] = []
        self._tokens, self._loss = length, shape.loss_tokens
        self._images = shape.images[-1] // shape.rows

    def has_room(self, row: types.Row) -> bool:
        live = int(np.count_nonzero(row.loss_weight))
        images = len(set(row.images))
        fits = len(row.ids) <= self._tokens and live <= self._loss
        return fits and images <= self._images

    def put(self, row: types.Row) -> None:
        self.rows.append(row)
        self._tokens -= len(row.ids)
        self._loss -= int(np.count_nonzero(row.loss_weight))
        self._images -= len(set(row.images))


def collate(
    lines: Sequence[Line],
    shape: Lattice,
    spec: images.ImageSpec,
    *,
    image_id: int,
    table_side: int,
) -> types.Batch:
    """Lays the rows of each line out as arrays; what fits no bucket is refused.

    Args:
      image_id: the id of an image pad.
      table_side: the vision tower's learned position table is so large on a side.
    """
    if len(lines) > shape.rows:
        raise ValueError(f"{len(lines)} lines for a batch of {shape.rows}")
    tokens_a_line, slots = buckets(lines, shape)
    pngs = _pages(lines)
    tower, grids = _tower_arrays(pngs, slots, shape, spec, table_side)
    tokens_a_slot = tower["patches_IPC"].shape[1] // spec.merge**2
    places = {
        png: (slot * tokens_a_slot, grid)
        for slot, (png, grid) in enumerate(zip(pngs, grids, strict=True))
    }
    size = shape.rows, tokens_a_line
    tokens = _token_arrays(lines, size, places, image_id, spec.merge)
    return types.Batch(**tokens, **tower, **_loss_arrays(lines, shape))


def check(row: types.Row, shape: Lattice) -> None:
    """Refuses a row that no batch has room for."""
    try:
        _bucket(len(row.ids), shape.lengths, *_LENGTH)
    except ValueError as error:
        raise ValueError(f"{row.source}: {error}") from None
    _check_loss(row, int(np.count_nonzero(row.loss_weight)), shape.loss_tokens)


def _check_loss(row: types.Row, needed: int, room: int) -> None:
    if needed > room:
        raise ValueError(
            f"{row.source} has {np.count_nonzero(row.loss_weight)} loss tokens, a line "
            f"of a batch holds {room}; raise config.batch.loss_tokens"
        )


def buckets(lines: Sequence[Line], shape: Lattice) -> tuple[int, int]:
    """Tokens of a line, and images, of the batch that these lines make."""
    longest = max((sum(len(row.ids) for row in line) for line in lines), default=0)
    return (
        _bucket(longest, shape.lengths, *_LENGTH),
        _bucket(len(_pages(lines)), shape.images, "images", "config.batch.rows"),
    )


def _pages(lines: Sequence[Line]) -> list[bytes]:
    """The different images of the lines."""
    return list(dict.fromkeys(p for line in lines for row in line for p in row.images))


def _token_arrays(
    lines: Sequence[Line],
    size: tuple[int, int],
    places: Mapping[bytes, tuple[int, tuple[int, int]]],
    image_id: int,
    merge: int,
) -> dict[str, np.ndarray]:
    """Ids and where they stand; `places` has each image's first feature and grid."""
    B, L = size
    arrays = {
        "ids_BL": np.zeros((B, L), np.int32),
        "positions_3BL": np.zeros((3, B, L), np.int32),
        "segment_BL": np.full((B, L), -1, np.int32),
        "sight_3BL": np.zeros((3, B, L), np.int32),
        "image_index_BL": np.full((B, L), -1, np.int32),
    }
    arrays["sight_3BL"][2] = np.arange(L)  # padding sees itself alone
    for b, line in enumerate(lines):
        start = 0
        for segment, row in enumerate(line):
            used = slice(start, start + len(row.ids))
            offsets = [places[png][0] for png in row.images]
            grids = [places[png][1] for png in row.images]
            arrays["ids_BL"][b, used] = row.ids
            arrays["segment_BL"][b, used] = segment
            arrays["positions_3BL"][:, b, used] = _positions(
                row, grids, image_id, merge
            )
            arrays["sight_3BL"][:, b, used] = _sight(row) + start
            arrays["image_index_BL"][b, used] = positions.image_index(
                row.ids, image_id, offsets
            )
            start = used.stop
    return arrays


def _positions(row: types.Row, grids, image_id: int, merge: int) -> np.ndarray:
    """[3, L]: those of each run's own prompt, in which the trunk is text alone."""
    parts, first_grid = [], 0
    for run, span in zip(row.runs, rows.spans(row), strict=True):
        ids = row.ids[span]
        last_grid = first_grid + positions.image_count(ids, image_id)
        own = grids[first_grid:last_grid]
        part = positions.rope_positions(ids, own, image_id=image_id, merge=merge)
        parts.append(part + run.limit)
        first_grid = last_grid
    return np.concatenate(parts, axis=1)


def _sight(row: types.Row) -> np.ndarray:
    """[3, L]: start and limit of the trunk that a token sees, start of its run."""
    sight = np.zeros((3, len(row.ids)), np.int32)
    for run, span in zip(row.runs, rows.spans(row), strict=True):
        sight[1, span] = run.limit
        sight[2, span] = run.first
    return sight


def _loss_arrays(lines: Sequence[Line], shape: Lattice) -> dict[str, np.ndarray]:
    """The positions that carry weight, and what belongs to them."""
    B, N = shape.rows, shape.loss_tokens
    arrays = {
        "loss_index_BN": np.zeros((B, N), np.int32),
        "loss_weight_BN": np.zeros((B, N), np.float32),
        "old_logp_BN": np.zeros((B, N), np.float32),
        "advantage_BN": np.zeros((B, N), np.float32),
    }
    for b, line in enumerate(lines):
        start = 0
        for row, used in zip(line, loss_slices(line), strict=True):
            index_N = np.flatnonzero(row.loss_weight)
            _check_loss(row, used.stop, N)
            if np.isin([run.first for run in row.runs], index_N).any():
                raise ValueError(f"{row.source}: nothing predicts a run's first token")
            arrays["loss_index_BN"][b, used] = index_N + start
            arrays["loss_weight_BN"][b, used] = row.loss_weight[index_N]
            arrays["old_logp_BN"][b, used] = row.old_logp[index_N]
            arrays["advantage_BN"][b, used] = row.advantage
            start += len(row.ids)
    return arrays


def loss_slices(line: Line) -> list[slice]:
    """Which of a line's loss positions are whose, row by row."""
    counts = [np.count_nonzero(row.loss_weight) for row in line]
    ends = np.cumsum(counts)
    return [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]


def _tower_arrays(
    pngs: Sequence[bytes],
    slots: int,
    shape: Lattice,
    spec: images.ImageSpec,
    table_side: int,
) -> tuple[dict[str, np.ndarray], list[tuple[int, int]]]:
    """The vision tower's part of a Batch, and the grid of each image."""
    cut = [images.patches(spec, png) for png in pngs]
    largest = max((len(patches_PC) for patches_PC, _ in cut), default=0)
    P = _bucket(largest, shape.patches, "patches", "config.web.width_px and height_px")
    arrays = {
        "patches_IPC": np.zeros((slots, P, spec.values), np.float32),
        "patch_count_I": np.zeros(slots, np.int32),
        "patch_position_2IP": np.zeros((2, slots, P), np.int32),
        "table_index_4IP": np.zeros((4, slots, P), np.int32),
        "table_weight_4IP": np.zeros((4, slots, P), np.float32),
    }
    for i, (patches_PC, grid) in enumerate(cut):
        used = slice(0, len(patches_PC))
        plan = positions.vision_plan(*grid, spec.merge, table_side)
        position_2P, index_4P, weight_4P = plan
        arrays["patches_IPC"][i, used] = patches_PC
        arrays["patch_count_I"][i] = len(patches_PC)
        arrays["patch_position_2IP"][:, i, used] = position_2P
        arrays["table_index_4IP"][:, i, used] = index_4P
        arrays["table_weight_4IP"][:, i, used] = weight_4P
    return arrays, [grid for _, grid in cut]


_LENGTH = ("tokens in a row", "config.batch.lengths")


def _bucket(size: int, buckets: Sequence[int], what: str, key: str) -> int:
    """The smallest bucket that holds `size`."""
    for bucket in buckets:
        if size <= bucket:
            return bucket
    raise ValueError(
        f"{size} {what}, the largest bucket holds {buckets[-1]}; raise {key}"
    )
