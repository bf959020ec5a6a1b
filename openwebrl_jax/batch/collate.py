"""Rows -> a Batch of static shape: padding, positions, each different image once.

The shapes come from a small lattice of buckets, so that a second epoch meets no shape
that the first one did not compile.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from openwebrl_jax.core import types
from openwebrl_jax.tokens import images, positions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """The sizes that a batch may have; buckets ascend, the smallest that fits is taken.

    Example: Lattice(rows=8, lengths=(2048, 4096), loss_tokens=1024, images=(2, 4, 8),
    patches=(4960,)).
    """

    rows: int  # B
    lengths: tuple[int, ...]  # L
    loss_tokens: int  # N
    images: tuple[int, ...]  # I
    patches: tuple[int, ...]  # P


def make_lattice(
    config_batch, context_screenshots: int, grid: tuple[int, int]
) -> Lattice:
    """The lattice of `config.batch` for pages of one grid (rows, columns) of patches.

    Rows that show the same page share its image: hence the smaller image buckets.
    """
    most = config_batch.rows * context_screenshots
    return Lattice(
        rows=config_batch.rows,
        lengths=tuple(sorted(config_batch.lengths)),
        loss_tokens=config_batch.loss_tokens,
        images=tuple(sorted({max(1, most // 4), max(1, most // 2), most})),
        patches=(grid[0] * grid[1],),
    )


def split(rows: Sequence[types.Row], shape: Lattice) -> list[list[types.Row]]:
    """The rows of one optimizer step in parts of at most `shape.rows`.

    Rows of like length and with the same images come together; their order is of no
    other consequence, because the loss is a sum.
    """

    def likeness(row: types.Row):
        bucket = _bucket(len(row.ids), shape.lengths, *_LENGTH)
        return bucket, row.images, row.source

    ordered = sorted(rows, key=likeness)
    return [
        ordered[start : start + shape.rows]
        for start in range(0, len(ordered), shape.rows)
    ]


def collate(
    rows: Sequence[types.Row],
    shape: Lattice,
    spec: images.ImageSpec,
    *,
    image_id: int,
    table_side: int,
) -> types.Batch:
    """Lays the rows out as arrays; what fits no bucket is refused.

    Args:
      image_id: the id of an image pad.
      table_side: the vision tower's learned position table is so large on a side.
    """
    if len(rows) > shape.rows:
        raise ValueError(f"{len(rows)} rows for a batch of {shape.rows}")
    pngs = list(dict.fromkeys(png for row in rows for png in row.images))
    tower, grids = _tower_arrays(pngs, shape, spec, table_side)
    tokens_a_slot = tower["patches_IPC"].shape[1] // spec.merge**2
    places = {
        png: (slot * tokens_a_slot, grid)
        for slot, (png, grid) in enumerate(zip(pngs, grids, strict=True))
    }
    tokens = _token_arrays(rows, shape, places, image_id, spec.merge)
    return types.Batch(**tokens, **tower, **_loss_arrays(rows, shape))


def _token_arrays(
    rows: Sequence[types.Row],
    shape: Lattice,
    places: Mapping[bytes, tuple[int, tuple[int, int]]],
    image_id: int,
    merge: int,
) -> dict[str, np.ndarray]:
    """Ids and where they stand; `places` has each image's first feature and grid."""
    B = shape.rows
    L = _bucket(max((len(row.ids) for row in rows), default=0), shape.lengths, *_LENGTH)
    arrays = {
        "ids_BL": np.zeros((B, L), np.int32),
        "positions_3BL": np.zeros((3, B, L), np.int32),
        "segment_BL": np.full((B, L), -1, np.int32),
        "image_index_BL": np.full((B, L), -1, np.int32),
    }
    for b, row in enumerate(rows):
        used = slice(0, len(row.ids))
        offsets = [places[png][0] for png in row.images]
        grids = [places[png][1] for png in row.images]
        arrays["ids_BL"][b, used] = row.ids
        arrays["segment_BL"][b, used] = 0
        arrays["positions_3BL"][:, b, used] = positions.rope_positions(
            row.ids, grids, image_id=image_id, merge=merge
        )
        arrays["image_index_BL"][b, used] = positions.image_index(
            row.ids, image_id, offsets
        )
    return arrays


def _loss_arrays(rows: Sequence[types.Row], shape: Lattice) -> dict[str, np.ndarray]:
    """The positions that carry weight, and what belongs to them."""
    B, N = shape.rows, shape.loss_tokens
    arrays = {
        "loss_index_BN": np.zeros((B, N), np.int32),
        "loss_weight_BN": np.zeros((B, N), np.float32),
        "old_logp_BN": np.zeros((B, N), np.float32),
        "advantage_BN": np.zeros((B, N), np.float32),
    }
    for b, row in enumerate(rows):
        index_N = np.flatnonzero(row.loss_weight)
        if len(index_N) > N:
            raise ValueError(
                f"{row.source} has {len(index_N)} loss tokens, a batch holds {N}; "
                "raise config.batch.loss_tokens"
            )
        if len(index_N) and index_N[0] == 0:
            raise ValueError(f"{row.source}: nothing predicts a row's first token")
        used = slice(0, len(index_N))
        arrays["loss_index_BN"][b, used] = index_N
        arrays["loss_weight_BN"][b, used] = row.loss_weight[index_N]
        arrays["old_logp_BN"][b, used] = row.old_logp[index_N]
        arrays["advantage_BN"][b, used] = row.advantage
    return arrays


def _tower_arrays(
    pngs: Sequence[bytes], shape: Lattice, spec: images.ImageSpec, table_side: int
) -> tuple[dict[str, np.ndarray], list[tuple[int, int]]]:
    """The vision tower's part of a Batch, and the grid of each image."""
    cut = [images.patches(spec, png) for png in pngs]
    largest = max((len(patches_PC) for patches_PC, _ in cut), default=0)
    I = _bucket(len(pngs), shape.images, "images", "config.batch.rows")  # noqa: E741
    P = _bucket(largest, shape.patches, "patches", "config.web.width_px and height_px")
    arrays = {
        "patches_IPC": np.zeros((I, P, spec.values), np.float32),
        "patch_count_I": np.zeros(I, np.int32),
        "patch_position_2IP": np.zeros((2, I, P), np.int32),
        "table_index_4IP": np.zeros((4, I, P), np.int32),
        "table_weight_4IP": np.zeros((4, I, P), np.float32),
    }
    for i, (patches_PC, (rows, cols)) in enumerate(cut):
        used = slice(0, len(patches_PC))
        plan = positions.vision_plan(rows, cols, spec.merge, table_side)
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
