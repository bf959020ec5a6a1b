"""Keys and values of tokens that were decoded already.

N layers, B rows, S places a row, G key-value heads, K head width. Place s of a row
holds the token at index s of that row; a query sees the places up to its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models.sizes import Sizes


class Cache(NamedTuple):
    """One array [B, S, G, K] a layer, so that decoding never copies the whole."""

    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]


def init_cache(sizes: Sizes, rows: int, length: int, dtype=jnp.float32) -> Cache:
    """An empty cache; `length` holds the prompt's bucket and the whole reply."""
    decoder = sizes.decoder
    shape = (rows, length, decoder.kv_heads, decoder.head_width)
    empty = [jnp.zeros(shape, dtype) for _ in range(2 * decoder.layers)]
    return Cache(tuple(empty[: decoder.layers]), tuple(empty[decoder.layers :]))


def write(place_BSGK, new_BLGK, start_B):
    """Puts each row's L new entries at its own start."""
    return jax.vmap(
        lambda place_SGK, new_LGK, start: jax.lax.dynamic_update_slice_in_dim(
            place_SGK, new_LGK, start, axis=0
        )
    )(place_BSGK, new_BLGK.astype(place_BSGK.dtype), start_B)
