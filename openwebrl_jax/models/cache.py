"""Keys and values of tokens that were decoded already, and attention to them.

A program reads the rows of the cache and puts the keys and values of its own tokens
beside them; these come into the rows at its end. So nothing that is large changes
while it runs. `take` alone copies rows, once a call: each step of a decode reads them.

N layers, R rows, B rows of a call, L tokens of a call, J copies, S places a row, T
places beside a row, H query heads, G key-value heads, K head width, X = H / G * L
queries, O other axes of one array. Place s of a row holds the token at index s of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models import layers
from openwebrl_jax.models.sizes import Sizes

BLOCK = 512  # places of a row that are looked at, or copied, at once


class Cache(NamedTuple):
    """An array a layer, each of its own; rows come first."""

    k: tuple[jax.Array, ...]  # [B, G, K, S]
    v: tuple[jax.Array, ...]  # [B, G, S, K]


def init_cache(sizes: Sizes, rows: int, length: int, dtype=jnp.float32) -> Cache:
    """An empty cache."""
    G, K, N = sizes.decoder.kv_heads, sizes.decoder.head_width, sizes.decoder.layers
    return Cache(
        k=tuple(jnp.zeros((rows, G, K, length), dtype) for _ in range(N)),
        v=tuple(jnp.zeros((rows, G, length, K), dtype) for _ in range(N)),
    )


class Seen(NamedTuple):
    """What queries know of the keys so far; `out / total` is their attention."""

    top: jax.Array  # [B, G, X, 1] float32, the greatest score
    total: jax.Array  # [B, G, X, 1] float32, of exp(score - top)
    out: jax.Array  # [B, G, X, K] float32


# (layer, see, seen) -> seen, after seeing what the rows hold: see(seen, k, v, mask).
Past = Callable[[int, Callable[..., Seen], Seen], Seen]


def attend(q_BLHK, k_BGKT, v_BGTK, at, layer: int, past: Past):
    """Attention [B, L, H * K] of tokens whose own keys stand from `at` on.

    A token sees what its row holds, and the places beside the row up to its own.
    """
    B, L, H, K = q_BLHK.shape
    G, T = k_BGKT.shape[1], k_BGKT.shape[3]
    q_BGXK = layers.head_major(q_BLHK * K**-0.5).reshape(B, G, H // G * L, K)

    def see(seen: Seen | None, k_BGKS, v_BGSK, mask_BLS) -> Seen:
        score_BGXS = _masked(_einsum("bgxk,bgks->bgxs", q_BGXK, k_BGKS), mask_BLS)
        top_BGX1 = jnp.max(score_BGXS, axis=-1, keepdims=True)
        top_BGX1 = top_BGX1 if seen is None else jnp.maximum(seen.top, top_BGX1)
        power_BGXS = jnp.exp(score_BGXS - top_BGX1)
        total_BGX1 = jnp.sum(power_BGXS, axis=-1, keepdims=True)
        power_BGXS = power_BGXS.astype(v_BGSK.dtype)
        out_BGXK = _einsum("bgxs,bgsk->bgxk", power_BGXS, v_BGSK)
        if seen is None:
            return Seen(top_BGX1, total_BGX1, out_BGXK)
        fade_BGX1 = jnp.exp(seen.top - top_BGX1)
        return Seen(
            top_BGX1,
            seen.total * fade_BGX1 + total_BGX1,
            seen.out * fade_BGX1 + out_BGXK,
        )

    own_1LT = jnp.arange(T)[None, None] <= at + jnp.arange(L)[None, :, None]
    seen = past(layer, see, see(None, k_BGKT, v_BGTK, own_1LT))
    out_BGXK = (seen.out / seen.total).astype(q_BLHK.dtype)
    return layers.head_major(out_BGXK.reshape(B, H, L, K)).reshape(B, L, H * K)


def of_rows(some: Cache, end_B) -> Past:
    """The past of a call whose rows were taken, see `take`: seen at once."""
    place_11S = jnp.arange(some.v[0].shape[2])[None, None]
    mask_B1S = place_11S < end_B[:, None, None]

    def past(layer, see, seen):
        return see(seen, some.k[layer], some.v[layer], mask_B1S)

    return past


def in_place(cache: Cache, row_B, end_B) -> Past:
    """The past of a call that reads rows where they are, block by block to their ends.

    What stands behind an end may be no number, and attention multiplies it by 0.
    """
    length = cache.v[0].shape[2]
    block = min(BLOCK, length)
    count = -(-jnp.max(end_B) // block)

    def past(layer, see, seen):
        def one(i, seen):
            first = jnp.minimum(i * block, length - block)  # the last one overlaps
            place_11S = first + jnp.arange(block)[None, None]
            mask_B1S = (place_11S >= i * block) & (place_11S < end_B[:, None, None])
            k_BGKS = _cut_rows(cache.k[layer], row_B, first, block, 3)
            v_BGSK = _cut_rows(cache.v[layer], row_B, first, block, 2)
            v_BGSK = jnp.where(mask_B1S[..., None], v_BGSK, 0)
            return see(seen, k_BGKS, v_BGSK, mask_B1S)

        return jax.lax.fori_loop(0, count, one, seen)

    return past


def write(own_BO, new_BO, at, axis: int):
    """What stands beside the rows with new places from `at` on."""
    return _paste(own_BO, new_BO, 0, at, axis)


def take(cache: Cache, row_B, end_B, count, length: int) -> Cache:
    """The first `length` places of the first `count` rows of a call.

    What stands from a row's end on is empty: attention multiplies by nothing what it
    does not see, and that is no number if this is none.
    """

    def one(b, some):
        def move(old_RO, new_BO, axis):
            piece_1O = _cut(old_RO, row_B[b], 0, length, axis)
            place_1O = jax.lax.broadcasted_iota(jnp.int32, piece_1O.shape, axis)
            piece_1O = jnp.where(place_1O < end_B[b], piece_1O, 0)
            return _paste(new_BO, piece_1O, b, 0, axis)

        return _map(move, cache, some)

    empty = _map(
        lambda x_RO, axis: jnp.zeros(
            _shape(x_RO.shape, len(row_B), length, axis), x_RO.dtype
        ),
        cache,
    )
    return jax.lax.fori_loop(0, count, one, empty)


def put(cache: Cache, own: Cache, row_B, start_B, count) -> Cache:
    """Writes what stands beside `count` rows into them, from their starts on."""
    length = own.v[0].shape[2]

    def one(b, cache):
        def move(new_BO, old_RO, axis):
            piece_1O = _cut(new_BO, b, 0, length, axis)
            return _paste(old_RO, piece_1O, row_B[b], start_B[b], axis)

        return _map(move, own, cache)

    return jax.lax.fori_loop(0, count, one, cache)


def copy(cache: Cache, from_J, to_J, length_J, count) -> Cache:
    """The first places from row to row, `count` times in this order.

    Whole blocks are copied, so that some places behind the length change as well.
    """
    block = min(BLOCK, cache.v[0].shape[2])

    def one(j, cache):
        def some(i, cache):
            def move(x_RO, axis):
                piece_1O = _cut(x_RO, from_J[j], i * block, block, axis)
                return _paste(x_RO, piece_1O, to_J[j], i * block, axis)

            return _map(move, cache)

        return jax.lax.fori_loop(0, -(-length_J[j] // block), some, cache)

    return jax.lax.fori_loop(0, count, one, cache)


# Rows move as slices, one after the other: to gather them takes a CPU much longer.


def _map(function, *caches: Cache) -> Cache:
    """function(*arrays, axis of the places) for the arrays of each layer."""
    return Cache(
        k=tuple(function(*x, 3) for x in zip(*(c.k for c in caches), strict=True)),
        v=tuple(function(*x, 2) for x in zip(*(c.v for c in caches), strict=True)),
    )


def _cut_rows(x_RO, row_B, start, length: int, axis: int):
    rows = [_cut(x_RO, row, start, length, axis) for row in row_B]
    return jnp.concatenate(rows)


def _cut(x_RO, row, start, length: int, axis: int):
    at = _shape((0, 0, 0, 0), row, start, axis)
    return jax.lax.dynamic_slice(x_RO, at, _shape(x_RO.shape, 1, length, axis))


def _paste(x_RO, piece_1O, row, start, axis: int):
    at = _shape((0, 0, 0, 0), row, start, axis)
    return jax.lax.dynamic_update_slice(x_RO, piece_1O.astype(x_RO.dtype), at)


def _shape(shape, rows, places, axis: int):
    """The shape with other rows and places; or an index."""
    changed = [rows, *shape[1:]]
    changed[axis] = places
    return tuple(changed)


def _masked(score_BGXS, mask_BLS):
    """As good as minus infinity where the mask, whose B and L may be 1, is False."""
    B, G, X, S = score_BGXS.shape
    L = mask_BLS.shape[1]
    score_BGRLS = score_BGXS.reshape(B, G, X // L, L, S)
    score_BGRLS = jnp.where(mask_BLS[:, None, None], score_BGRLS, -1e30)
    return score_BGRLS.reshape(score_BGXS.shape)


def _einsum(formula, a, b):
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)
