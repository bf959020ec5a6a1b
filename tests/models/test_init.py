"""Fresh models: drawn as declared, and smooth where that helps."""

import jax
import numpy as np
import pytest
from flax import nnx

from openwebrl_jax.models import init, sizes
from tests.models import small

SIZES = sizes.read_sizes(small.config(is_tied=False).to_dict())


def test_a_fresh_model_is_its_seed_s():
    one, same, other = (init.init_model(SIZES, seed) for seed in (1, 1, 2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    kernel = np.asarray(one.decoder.layers.gate[...])
    assert kernel.std() == pytest.approx(64**-0.5, rel=0.05)
    assert not np.array_equal(kernel, other.decoder.layers.gate[...])
    assert (np.asarray(one.decoder.norm[...]) == 1).all()
    assert (np.asarray(one.vision.blocks.qkv_bias[...]) == 0).all()
    assert not np.array_equal(one.head[...], one.decoder.embed[...])


def test_smooth_makes_near_places_alike():
    model = init.init_model(SIZES, 0)
    before = np.asarray(model.decoder.embed[...])
    init.smooth(model, {10 + i: i / 10 for i in range(11)}, 0)
    table_SSW = np.asarray(model.vision.table[...]).reshape(8, 8, 32)
    assert table_SSW.std() == pytest.approx(0.7, abs=0.1)

    def alike(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    for line_SW in (table_SSW[3], table_SSW[:, 3]):
        assert alike(line_SW[2], line_SW[3]) > alike(line_SW[0], line_SW[7])
    after = np.asarray(model.decoder.embed[...])
    row = after[10:21]
    near = [alike(row[i], row[i + 1]) for i in range(10)]
    far = [alike(row[i], row[i + 5]) for i in range(6)]
    assert np.mean(near) > np.mean(far) + 0.3
    assert row.std() == pytest.approx(before.std(), rel=0.1)
    others = np.delete(np.arange(small.VOCAB), np.arange(10, 21))
    np.testing.assert_array_equal(after[others], before[others])
    assert nnx.split(model, nnx.Param)[1]["decoder"]["embed"].axes == ("vocab", "embed")
