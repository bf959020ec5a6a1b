"""Positions and the vision plan against torch's Qwen3-VL."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import vision_utils
from transformers.models.qwen3_vl import configuration_qwen3_vl, modeling_qwen3_vl

from openwebrl_jax.tokens import positions

IMAGE_ID = 7


def _reference_positions(ids: np.ndarray, grids: list[tuple[int, int]]) -> np.ndarray:
    config = configuration_qwen3_vl.Qwen3VLConfig()
    holder = type("Holder", (), {})()
    holder.config = config
    model = modeling_qwen3_vl.Qwen3VLModel
    holder.get_vision_position_ids = lambda *a, **k: model.get_vision_position_ids(
        holder, *a, **k
    )
    found, _ = model.get_rope_index(
        holder,
        torch.tensor(ids)[None],
        mm_token_type_ids=torch.tensor(ids == IMAGE_ID)[None].int(),
        image_grid_thw=torch.tensor([(1, *grid) for grid in grids]),
    )
    return found[:, 0].numpy()


def _ids(grids: list[tuple[int, int]], texts: list[int]) -> np.ndarray:
    ids = [1] * texts[0]
    for (rows, cols), text in zip(grids, texts[1:], strict=True):
        ids += [IMAGE_ID] * (rows * cols // 4) + [2] * text
    return np.array(ids)


def test_positions_of_the_docstring():
    found = positions.rope_positions(
        [1, IMAGE_ID, IMAGE_ID, 1], [(4, 2)], image_id=IMAGE_ID, merge=2
    )
    np.testing.assert_array_equal(found, [[0, 1, 1, 3], [0, 1, 2, 3], [0, 1, 1, 3]])
    assert found.dtype == np.int32


side = st.integers(1, 9).map(lambda n: 2 * n)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(side, side), min_size=1, max_size=3), st.data())
def test_positions_equal_the_reference(grids, data):
    count = len(grids) + 1
    texts = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    ids = _ids(grids, texts)
    found = positions.rope_positions(ids, grids, image_id=IMAGE_ID, merge=2)
    np.testing.assert_array_equal(found, _reference_positions(ids, grids))


def test_a_cut_image_is_refused():
    ids = _ids([(4, 4), (6, 4)], [3, 2, 0])
    with pytest.raises(ValueError, match="3 x 2 tokens has 5 pads"):
        positions.rope_positions(ids[:-1], [(4, 4), (6, 4)], image_id=IMAGE_ID, merge=2)
    with pytest.raises(ValueError, match="1 grids for 2 images"):
        positions.rope_positions(ids, [(4, 4)], image_id=IMAGE_ID, merge=2)


def test_image_index_points_at_each_images_own_rows():
    ids = _ids([(4, 2), (2, 2)], [1, 2, 1])
    found = positions.image_index(ids, IMAGE_ID, [40, 4])
    np.testing.assert_array_equal(found, [-1, 40, 41, -1, -1, 4, -1])
    with pytest.raises(ValueError, match="1 offsets for 2 images"):
        positions.image_index(ids, IMAGE_ID, [0])


@pytest.mark.parametrize("grid", [(14, 10), (2, 2), (44, 80), (62, 80), (2, 30)])
@pytest.mark.parametrize("table_side", [14, 48])
def test_vision_plan_equals_the_reference(grid, table_side):
    position_2P, index_4P, weight_4P = positions.vision_plan(*grid, 2, table_side)
    grid_thw = torch.tensor([(1, *grid)])
    reference = vision_utils.get_vision_position_ids(grid_thw, 2)
    np.testing.assert_array_equal(position_2P, reference.numpy().T)
    index, weight = vision_utils.get_vision_interpolation_indices_and_weights(
        grid_thw,
        num_grid_per_side=table_side,
        mode="bilinear",
        align_corners=True,
        spatial_merge_size=2,
    )
    np.testing.assert_array_equal(index_4P, index.numpy().T)
    np.testing.assert_allclose(weight_4P, weight.numpy().T, atol=1e-6)
    assert (index_4P.dtype, weight_4P.dtype) == (np.int32, np.float32)


def test_vision_plan_is_shared_and_cannot_be_written():
    plan = positions.vision_plan(4, 4, 2, 14)
    assert plan is positions.vision_plan(4, 4, 2, 14)
    with pytest.raises(ValueError, match="read-only"):
        plan[0][0, 0] = 1
