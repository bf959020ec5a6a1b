"""Rows go out of the cache, come back and are copied; what they touch is all."""

import jax
import numpy as np

from openwebrl_jax.models import cache

R, G, K, S = 4, 2, 3, 8


def make_cache(seed):
    draw = np.random.default_rng(seed)
    return cache.Cache(
        k=tuple(draw.normal(size=(R, G, K, S)).astype(np.float32) for _ in range(2)),
        v=tuple(draw.normal(size=(R, G, S, K)).astype(np.float32) for _ in range(2)),
    )


def by_place(one):
    """Arrays as [rows, places, ...] so that both kinds index alike."""
    arrays = [np.moveaxis(np.array(x), 3, 1) for x in one.k]
    return arrays + [np.moveaxis(np.array(x), 2, 1) for x in one.v]


def test_rows_are_taken_up_to_their_ends_and_the_rest_is_empty():
    whole = make_cache(0)
    whole.v[0][2, :, 4:] = np.nan  # behind the end: it must not come along
    row_B, end_B = np.array([2, 0, 1]), np.array([4, 6, 9])
    some = jax.jit(cache.take, static_argnums=4)(whole, row_B, end_B, 2, 6)
    for old, new in zip(by_place(whole), by_place(some), strict=True):
        assert new.shape[:2] == (3, 6)
        np.testing.assert_array_equal(new[0, :4], old[2, :4])
        np.testing.assert_array_equal(new[1], old[0, :6])
        assert not new[0, 4:].any() and not new[2].any()


def test_what_was_added_is_put_back_and_nothing_else():
    whole, some = make_cache(0), make_cache(1)
    row_B, start_B = np.array([3, 1, 0, 0]), np.array([2, 0, 0, 0])
    new = jax.jit(cache.put, static_argnums=5)(whole, some, row_B, start_B, 2, 3)
    for old, part, got in zip(*map(by_place, (whole, some, new)), strict=True):
        old[3, 2:5], old[1, :3] = part[0, 2:5], part[1, :3]
        np.testing.assert_array_equal(got, old)


def test_copies_are_made_one_after_the_other():
    whole = make_cache(0)
    from_J, to_J = np.array([0, 1, 0]), np.array([1, 2, 3])
    new = jax.jit(cache.copy, static_argnums=4)(whole, from_J, to_J, 2, 5)
    for old, got in zip(by_place(whole), by_place(new), strict=True):
        old[1, :5] = old[0, :5]
        old[2, :5] = old[0, :5]
        np.testing.assert_array_equal(got, old)
