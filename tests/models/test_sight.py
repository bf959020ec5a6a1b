"""Attention by blocks against one masked product, forward and backward."""

import dataclasses

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwebrl_jax.models import flash, layers, mesh, sight

LENGTH, BLOCK = 64, 8


@dataclasses.dataclass(frozen=True)
class Case:
    """Random rows of a trunk and its branches, packed; heads in groups."""

    seed: int
    rows: int = 2
    groups: int = 2
    repeats: int = 2
    width: int = 4

    def arrays(self):
        draw = np.random.default_rng(self.seed)
        heads = self.groups * self.repeats
        q = draw.normal(size=(self.rows, LENGTH, heads, self.width))
        k = draw.normal(size=(self.rows, self.groups, self.width, LENGTH))
        v = draw.normal(size=(self.rows, self.groups, LENGTH, self.width))
        return tuple(jnp.asarray(x, jnp.float32) for x in (q, k, v))

    def sight(self):
        draw = np.random.default_rng(self.seed + 1)
        lines = [make_line(draw) for _ in range(self.rows)]
        return sight.Sight(*(jnp.asarray(x) for x in np.stack(lines, 1)))


def make_line(draw):
    """[3, L]: trajectories of a trunk and branches until the line is full."""
    line = np.zeros((3, LENGTH), np.int32)
    line[2] = np.arange(LENGTH)
    at = 0
    while at + 6 < LENGTH and draw.random() < 0.9:
        trunk = int(draw.integers(1, 20))
        end = min(at + trunk, LENGTH)
        line[:, at:end] = at
        first = end
        for _ in range(draw.integers(0, 4)):
            stop = min(first + int(draw.integers(1, 15)), LENGTH)
            limit = int(draw.integers(at, end + 1))
            line[:, first:stop] = np.array([[at], [limit], [first]])
            first = stop
        at = first
    return line


def brute(case):
    """Softmax attention written out, token by token."""
    q, k, v = (np.asarray(x, np.float64) for x in case.arrays())
    start, limit, own = (np.asarray(x) for x in case.sight())
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(case.rows, LENGTH, q.shape[2]):
        seen = {*range(start[b, i], limit[b, i]), *range(own[b, i], i + 1)}
        seen = sorted(seen)
        g = h // case.repeats
        score = q[b, i, h] @ k[b, g][:, seen] / np.sqrt(case.width)
        power = np.exp(score - score.max())
        out[b, i, h] = power / power.sum() @ v[b, g][seen]
    return out.reshape(case.rows, LENGTH, -1)


def planned(fields, kernel="xla", block=BLOCK):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sight, "DENSE", 0)
        return sight.plan(fields, kernel, block)


@given(st.integers(0, 10_000))
@settings(max_examples=10)
def test_every_token_sees_what_it_should(seed):
    case = Case(seed)
    want = brute(case)
    q, k, v = case.arrays()
    np.testing.assert_allclose(
        sight.attend(q, k, v, case.sight().mask()), want, atol=2e-6
    )
    np.testing.assert_allclose(
        sight.attend(q, k, v, planned(case.sight())), want, atol=2e-6
    )


@jax.jit
def gradients(arrays, plan):
    def loss(q, k, v):
        out = sight.attend(q, k, v, plan)
        return jnp.sum(jnp.sin(3.0 * out)), out

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(*arrays)


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_blocks_and_one_product_have_equal_gradients(seed):
    case = Case(seed)
    got, out = gradients(case.arrays(), planned(case.sight()))
    want, expected = gradients(case.arrays(), case.sight().mask())
    np.testing.assert_allclose(out, expected, atol=2e-6)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def test_blocks_that_see_nothing_of_each_other_are_not_visited():
    """Two packed trajectories of four blocks each, the second one a fork."""
    line = np.zeros((3, LENGTH), np.int32)
    line[:, 32:] = 32
    line[:, 48:56] = np.array([[32], [40], [48]])
    line[:, 56:] = np.array([[32], [48], [56]])
    fields = sight.Sight(*(jnp.asarray(x[None]) for x in line))
    plan = planned(fields)
    assert plan.count[0].tolist() == [1, 2, 3, 4, 1, 2, 2, 3]
    assert plan.blocks[0, 6, :2].tolist() == [4, 6]
    assert plan.blocks[0, 7, :3].tolist() == [4, 5, 7]
    assert plan.seer_count[0].tolist() == [4, 3, 2, 1, 4, 2, 1, 1]
    assert plan.seers[0, 4, :4].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("groups", [2, 1])  # 1 = not to be split over tp
def test_eight_devices_give_the_same(groups):
    case = Case(3, rows=4, groups=groups)
    plan = planned(case.sight())
    want, expected = gradients(case.arrays(), plan)
    with jax.set_mesh(mesh.make_mesh(2, 2, 2)):
        got, out = gradients(case.arrays(), plan)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=4)
def test_the_kernels_for_tpus_give_the_same(seed):
    case = Case(seed)
    got, out = gradients(case.arrays(), planned(case.sight(), "pallas"))
    want, expected = gradients(case.arrays(), case.sight().mask())
    np.testing.assert_allclose(out, expected, atol=2e-6)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_kernels_lower_for_tpus(monkeypatch):
    """What the compiler of a TPU gets has three kernels; there is none to run it."""
    monkeypatch.setattr(flash, "_is_interpreted", lambda: False)
    fields = sight.inside(jnp.array([700, 40]), 1024)
    plan = planned(fields, "pallas", 256)
    shapes = ((2, 1024, 8, 128), (2, 2, 128, 1024), (2, 2, 1024, 128))
    arrays = tuple(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes)
    program = jax.jit(gradients.__wrapped__)
    text = jax.export.export(program, platforms=["tpu"])(arrays, plan).mlir_module()
    assert text.count("tpu_custom_call") == 3


def test_short_rows_take_the_mask():
    assert not isinstance(sight.plan(Case(0).sight()), sight.Plan)
    assert layers.attend is not sight.attend
