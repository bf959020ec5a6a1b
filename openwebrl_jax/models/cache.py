"""Keys and values of tokens that were decoded already.

N layers, B rows, S places a row, G key-value heads, K head width. Place s of a row
holds the token at index s of that row; a query sees the places up to its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models.sizes import Sizes


class Cache(NamedTuple):
    """One array [B, G, S, K] a layer, so that decoding never copies the whole."""

    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]


def init_cache(sizes: Sizes, rows: int, length: int, dtype=jnp.float32) -> Cache:
    """An empty cache; `length` holds the prompt's bucket and the whole reply."""
    decoder = sizes.decoder
    shape = (rows, decoder.kv_heads, length, decoder.head_width)
    empty = [jnp.zeros(shape, dtype) for _ in range(2 * decoder.layers)]
    return Cache(tuple(empty[: decoder.layers]), tuple(empty[decoder.layers :]))


def write(place_BGSK, new_BGLK, start_B):
    """Puts each row's L new entries at its own start."""
    return jax.vmap(
        lambda place_GSK, new_GLK, start: jax.lax.dynamic_update_slice_in_dim(
            place_GSK, new_GLK, start, axis=1
        )
    )(place_BGSK, new_BGLK.astype(place_BGSK.dtype), start_B)
