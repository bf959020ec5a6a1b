"""Batches that are refused before they reach a device."""

from dataclasses import replace

import numpy as np
import pytest

from openwebrl_jax.core import checks, types

IMAGE_ID = 7


def make_batch(images=1, **changes):
    """Two rows of six tokens; the first shows an image of two tokens, then a reply."""
    batch = types.Batch(
        ids_BL=np.array([[1, 7, 7, 2, 3, 4], [1, 2, 3, 4, 0, 0]], np.int32),
        positions_3BL=np.zeros((3, 2, 6), np.int32),
        segment_BL=np.array([[0] * 6, [0, 0, 0, 0, -1, -1]], np.int32),
        sight_3BL=np.zeros((3, 2, 6), np.int32),
        image_index_BL=np.array([[-1, 0, 1, -1, -1, -1], [-1] * 6], np.int32),
        patches_IPC=np.ones((images, 16, 12), np.float32),
        patch_count_I=np.full(images, 8, np.int32),
        patch_position_2IP=np.zeros((2, images, 16), np.int32),
        table_index_4IP=np.zeros((4, images, 16), np.int32),
        table_weight_4IP=np.zeros((4, images, 16), np.float32),
        loss_index_BN=np.array([[4, 5, 0], [3, 0, 0]], np.int32),
        loss_weight_BN=np.array([[0.5, 0.5, 0], [1, 0, 0]], np.float32),
        old_logp_BN=np.array([[-1, -2, 0], [-1, 0, 0]], np.float32),
        advantage_BN=np.zeros((2, 3), np.float32),
    )
    return replace(batch, **changes)


def test_a_sound_batch_passes():
    checks.check_batch(make_batch(), image_id=IMAGE_ID, vocab_size=8)


def test_a_batch_without_images_passes():
    batch = make_batch(
        images=0,
        ids_BL=np.ones((2, 6), np.int32),
        image_index_BL=np.full((2, 6), -1, np.int32),
    )
    checks.check_batch(batch, image_id=IMAGE_ID)


def changed(name, where, value):
    """The field of a sound batch with one entry changed."""
    array = getattr(make_batch(), name).copy()
    array[where] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ids_BL": np.zeros((2, 6), np.int64)}, "batch.ids_BL is int64; wanted int32"),
        ({"advantage_BN": np.zeros((2, 3))}, "is float64; wanted float32"),
        ({"ids_BL": np.zeros(6, np.int32)}, "batch.ids_BL has shape (6,)"),
        ({"segment_BL": np.zeros((2, 5), np.int32)}, "(2, 5); wanted [2, 6]"),
        ({"positions_3BL": np.zeros((2, 2, 6), np.int32)}, "wanted [3, 2, 6]"),
        (changed("old_logp_BN", (0, 0), np.nan), "batch.old_logp_BN holds numbers"),
        (changed("patches_IPC", (0, 0, 0), np.inf), "batch.patches_IPC holds numbers"),
        (changed("old_logp_BN", (0, 0), 0.1), "batch.old_logp_BN runs from"),
        (changed("ids_BL", (0, 0), 8), "batch.ids_BL runs from 0 to 8; wanted 0 to 7"),
        (changed("image_index_BL", (0, 1), 4), "wanted -1 to 3"),
        (changed("loss_index_BN", (0, 0), 6), "wanted 0 to 5"),
        (changed("patch_count_I", 0, 17), "wanted 0 to 16"),
        (changed("image_index_BL", (0, 1), -1), "1 image tokens have no pixels"),
        (changed("patch_count_I", 0, 4), "1 image tokens point at padding"),
        (changed("image_index_BL", (0, 3), 1), "1 tokens with pixels are no images"),
        (changed("loss_index_BN", (0, 0), 0), "a row's first token"),
        (changed("loss_index_BN", (1, 0), 4), "1 loss positions are on padding"),
        (changed("loss_index_BN", (0, 0), 2), "are on an image token"),
    ],
)
def test_a_fault_is_named(changes, said):
    with pytest.raises(ValueError) as caught:
        checks.check_batch(make_batch(**changes), image_id=IMAGE_ID, vocab_size=8)
    assert said in str(caught.value)


def test_image_tokens_without_any_pixels_are_refused():
    """R20."""
    batch = make_batch(images=0, image_index_BL=np.full((2, 6), -1, np.int32))
    with pytest.raises(ValueError, match="2 image tokens have no pixels"):
        checks.check_batch(batch, image_id=IMAGE_ID)


def test_all_faults_come_in_one_message():
    batch = make_batch(
        ids_BL=np.zeros((2, 6), np.int64), advantage_BN=np.zeros(1, np.float32)
    )
    with pytest.raises(ValueError, match="2 faults in the batch"):
        checks.check_batch(batch)
