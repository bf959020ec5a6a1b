"""Keys and values of tokens that were decoded already.

N layers, B rows, S places a row, G key-value heads, K head width. Place s of a row
holds the token at index s of that row; a query sees the places up to its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models.sizes import Sizes

_K_AXIS, _V_AXIS = 3, 2  # of the places


class Cache(NamedTuple):
    """An array a layer, so that decoding never copies the whole; rows come first."""

    k: tuple[jax.Array, ...]  # [B, G, K, S]
    v: tuple[jax.Array, ...]  # [B, G, S, K]


def init_cache(sizes: Sizes, rows: int, length: int, dtype=jnp.float32) -> Cache:
    """An empty cache; `length` holds the prompt's bucket and the whole reply."""
    G, K, N = sizes.decoder.kv_heads, sizes.decoder.head_width, sizes.decoder.layers
    return Cache(
        k=tuple(jnp.zeros((rows, G, K, length), dtype) for _ in range(N)),
        v=tuple(jnp.zeros((rows, G, length, K), dtype) for _ in range(N)),
    )


def write(places_B, new_B, start_B, axis: int):
    """Puts each row's new entries at its own start; `axis` is S or L in one row."""
    return jax.vmap(
        lambda places, new, start: jax.lax.dynamic_update_slice_in_dim(
            places, new, start, axis
        )
    )(places_B, new_B.astype(places_B.dtype), start_B)


def move(source: Cache, source_row, target: Cache, row, start, count: int) -> Cache:
    """The target with `count` places, from `start` on, of a row of the source.

    It copies slices, row after row: a gather over rows takes a CPU many times longer.
    """

    def one(old_RGSK, new_BGSK, axis):
        at = [jnp.int32(0)] * 4
        at[axis] = start
        shape = [1, *old_RGSK.shape[1:]]
        shape[axis] = count
        piece_1GSK = jax.lax.dynamic_slice(old_RGSK, [source_row, *at[1:]], shape)
        return jax.lax.dynamic_update_slice(new_BGSK, piece_1GSK, [row, *at[1:]])

    return Cache(
        k=tuple(one(*pair, _K_AXIS) for pair in zip(source.k, target.k, strict=True)),
        v=tuple(one(*pair, _V_AXIS) for pair in zip(source.v, target.v, strict=True)),
    )
