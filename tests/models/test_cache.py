"""Rows are read, written and copied; what they touch is all."""

import jax
import numpy as np
import pytest

from openwebrl_jax.models import cache, layers

R, G, K, S = 4, 2, 3, 8


def make_cache(seed, rows=R, length=S):
    draw = np.random.default_rng(seed)

    def arrays(*shape):
        return tuple(draw.normal(size=shape).astype(np.float32) for _ in range(2))

    return cache.Cache(arrays(rows, G, K, length), arrays(rows, G, length, K))


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


def test_what_stood_beside_is_put_into_its_rows_and_nothing_else():
    whole, own = make_cache(0), make_cache(1, length=3)
    row_B, start_B = np.array([3, 1, 0, 0]), np.array([2, 0, 0, 0])
    new = jax.jit(cache.put)(whole, own, row_B, start_B, 2)
    for old, part, got in zip(*map(by_place, (whole, own, new)), strict=True):
        old[3, 2:5], old[1, :3] = part[0], part[1]
        np.testing.assert_array_equal(got, old)


def test_copies_are_made_one_after_the_other_and_to_their_lengths(monkeypatch):
    monkeypatch.setattr(cache, "BLOCK", 3)  # the last one of a row overlaps
    whole = make_cache(0)
    from_J, to_J = np.array([0, 1, 0]), np.array([1, 2, 3])
    new = jax.jit(cache.copy)(whole, from_J, to_J, np.array([8, 3, 8]), 2)
    for old, got in zip(by_place(whole), by_place(new), strict=True):
        old[1] = old[0]
        old[2, :3] = old[0, :3]
        np.testing.assert_array_equal(got, old)


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_token_sees_its_row_and_what_stands_beside_it(monkeypatch, is_taken, at):
    """Against attention over one row that has both, with what is no number around."""
    monkeypatch.setattr(cache, "BLOCK", 3)
    B, L, H, T = 3, 2, 4, 5
    whole, own = make_cache(0), make_cache(1, rows=B, length=T)
    row_B, end_B = np.array([2, 0, 3]), np.array([7, 0, 4])
    for row, end in zip(row_B, end_B, strict=True):
        for array in (whole.v[1], whole.k[1].swapaxes(2, 3)):
            array[row, :, end:] = np.nan
    q_BLHK = np.random.default_rng(2).normal(size=(B, L, H, K)).astype(np.float32)

    @jax.jit
    def attend(whole, row_B, end_B, at):
        if is_taken:
            past = cache.of_rows(cache.take(whole, row_B, end_B, B, S), end_B)
        else:
            past = cache.in_place(whole, row_B, end_B)
        return cache.attend(q_BLHK, own.k[1], own.v[1], at, 1, past)

    got_BLX = attend(whole, row_B, end_B, at)
    for b, (row, end) in enumerate(zip(row_B, end_B, strict=True)):
        k_1GKS = np.concatenate([whole.k[1][[row], ..., :end], own.k[1][[b]]], axis=3)
        v_1GSK = np.concatenate([whole.v[1][[row], :, :end], own.v[1][[b]]], axis=2)
        seen_L1 = end + at + np.arange(L)[:, None]
        mask_1LS = (np.arange(end + T)[None] <= seen_L1)[None]
        want_1LX = layers.attend(q_BLHK[b : b + 1], k_1GKS, v_1GSK, mask_1LS)
        np.testing.assert_allclose(got_BLX[b], want_1LX[0], atol=1e-5)
