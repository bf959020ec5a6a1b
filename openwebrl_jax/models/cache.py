"""Keys and values of tokens that were decoded already.

N layers, R rows, B rows of a call, J copies, S places a row, G key-value heads, K head
width, X other axes of one array. Place s of a row holds the token at index s of that
row; a query sees the places up to its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models.sizes import Sizes


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


def take(cache: Cache, row_B, end_B, count, length: int) -> Cache:
    """The first `length` places of the first `count` rows of a call.

    What stands from a row's end on is empty: attention multiplies by nothing what it
    does not see, and that is no number if this is none.
    """

    def one(b, some):
        def move(old_RX, new_BX, axis):
            piece_1X = _cut(old_RX, row_B[b], 0, length, axis)
            place_1X = jax.lax.broadcasted_iota(jnp.int32, piece_1X.shape, axis)
            piece_1X = jnp.where(place_1X < end_B[b], piece_1X, 0)
            return _paste(new_BX, piece_1X, b, 0, axis)

        return _map(move, cache, some)

    empty = _map(
        lambda x_RX, axis: jnp.zeros(
            _shape(x_RX.shape, len(row_B), length, axis), x_RX.dtype
        ),
        cache,
    )
    return jax.lax.fori_loop(0, count, one, empty)


def put(cache: Cache, some: Cache, row_B, start_B, count, length: int) -> Cache:
    """Writes `length` places of each of `count` rows back, from their starts on."""

    def one(b, cache):
        def move(new_BX, old_RX, axis):
            piece_1X = _cut(new_BX, b, start_B[b], length, axis)
            return _paste(old_RX, piece_1X, row_B[b], start_B[b], axis)

        return _map(move, some, cache)

    return jax.lax.fori_loop(0, count, one, cache)


def copy(cache: Cache, from_J, to_J, count, length: int) -> Cache:
    """The first `length` places from row to row, `count` times in this order."""

    def one(j, cache):
        def move(x_RX, axis):
            piece_1X = _cut(x_RX, from_J[j], 0, length, axis)
            return _paste(x_RX, piece_1X, to_J[j], 0, axis)

        return _map(move, cache)

    return jax.lax.fori_loop(0, count, one, cache)


# Rows move as slices, one after the other: to gather them takes a CPU much longer.


def _map(function, *caches: Cache) -> Cache:
    """function(*arrays, axis of the places) for the arrays of each layer."""
    return Cache(
        k=tuple(function(*x, 3) for x in zip(*(c.k for c in caches), strict=True)),
        v=tuple(function(*x, 2) for x in zip(*(c.v for c in caches), strict=True)),
    )


def _cut(x_RX, row, start, length: int, axis: int):
    at = _shape((0, 0, 0, 0), row, start, axis)
    return jax.lax.dynamic_slice(x_RX, at, _shape(x_RX.shape, 1, length, axis))


def _paste(x_RX, piece_1X, row, start, axis: int):
    at = _shape((0, 0, 0, 0), row, start, axis)
    return jax.lax.dynamic_update_slice(x_RX, piece_1X, at)


def _shape(shape, rows, places, axis: int):
    """The shape with other rows and places; or an index."""
    changed = [rows, *shape[1:]]
    changed[axis] = places
    return tuple(changed)
