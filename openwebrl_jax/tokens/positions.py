"""Where tokens and patches stand: three-axis rope positions and the vision plan.

In: token ids and grids of patches. Out: int32 and float32 arrays for the model, made
on the host, so that the jitted program sees fixed shapes and only gathers.
"""

import functools
from collections.abc import Sequence

import numpy as np


def rope_positions(
    ids: Sequence[int] | np.ndarray,
    grids: Sequence[tuple[int, int]],
    *,
    image_id: int,
    merge: int,
) -> np.ndarray:
    """Time, height and width position of each token, [3, L].

    Text advances all three by one. The tokens of an image share the time at which it
    begins, stand by row and column from there, and the text behind it goes on at the
    image's longer side. Example: one token, an image of 4 x 2 patches with merge 2,
    one token: time 0 1 1 3, height 0 1 2 3, width 0 1 1 3.
    """
    ids = np.asarray(ids)
    runs = _image_runs(ids, image_id)
    if len(runs) != len(grids):
        raise ValueError(f"got {len(grids)} grids for {len(runs)} images in the ids")
    positions = np.empty((3, len(ids)), np.int32)
    end, now = 0, 0
    for (start, stop), (patch_rows, patch_cols) in zip(runs, grids, strict=True):
        rows, cols = patch_rows // merge, patch_cols // merge
        if stop - start != rows * cols:
            raise ValueError(
                f"an image of {rows} x {cols} tokens has {stop - start} pads in the ids"
            )
        positions[:, end:start] = np.arange(now, now + start - end)
        now += start - end
        positions[0, start:stop] = now
        positions[1, start:stop] = now + np.repeat(np.arange(rows), cols)
        positions[2, start:stop] = now + np.tile(np.arange(cols), rows)
        end, now = stop, now + max(rows, cols)
    positions[:, end:] = np.arange(now, now + len(ids) - end)
    return positions


def image_count(ids: np.ndarray, image_id: int) -> int:
    """How many images stand in the ids."""
    return len(_image_runs(ids, image_id))


def image_index(
    ids: Sequence[int] | np.ndarray, image_id: int, offsets: Sequence[int]
) -> np.ndarray:
    """For each token its row in the merged image features, -1 = text, [L].

    `offsets` are the first rows of the images, in the order in which they stand.
    """
    ids = np.asarray(ids)
    runs = _image_runs(ids, image_id)
    if len(runs) != len(offsets):
        raise ValueError(f"got {len(offsets)} offsets for {len(runs)} images")
    index = np.full(len(ids), -1, np.int32)
    for (start, stop), offset in zip(runs, offsets, strict=True):
        index[start:stop] = np.arange(offset, offset + stop - start)
    return index


@functools.lru_cache(maxsize=256)
def vision_plan(
    rows: int, cols: int, merge: int, table_side: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How the vision tower places a grid of patches, in merge-block-major order.

    Returns row and column [2, P] int32 for its rotary embedding; and, for the learned
    table of table_side x table_side positions stretched over the image corner to
    corner, the four table entries around each patch [4, P] int32 and their bilinear
    weights [4, P] float32. The arrays are shared: they cannot be written to.
    """
    blocks = np.indices((rows, cols), np.int32).reshape(
        2, rows // merge, merge, cols // merge, merge
    )
    position_2P = blocks.transpose(0, 1, 3, 2, 4).reshape(2, -1)
    low_row, high_row, row_weight = _corners(position_2P[0], rows, table_side)
    low_col, high_col, col_weight = _corners(position_2P[1], cols, table_side)
    index_4P = np.stack(
        [
            row * table_side + col
            for row in (low_row, high_row)
            for col in (low_col, high_col)
        ]
    )
    weight_4P = np.stack(
        [
            row * col
            for row in (1 - row_weight, row_weight)
            for col in (1 - col_weight, col_weight)
        ]
    )
    plan = position_2P, index_4P, weight_4P
    for array in plan:
        array.flags.writeable = False
    return plan


def _corners(
    index: np.ndarray, size: int, side: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table entries below and above each place on one axis, and the upper's weight."""
    place = (
        index.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    )
    low = np.floor(place).astype(np.int32)
    return low, np.minimum(low + 1, side - 1), place - low.astype(np.float32)


def _image_runs(ids: np.ndarray, image_id: int) -> np.ndarray:
    """Half-open ranges of equal image pads, [images, 2]; markers keep them apart."""
    is_pad = np.concatenate([[False], ids == image_id, [False]])
    return np.flatnonzero(is_pad[1:] != is_pad[:-1]).reshape(-1, 2)
