"""Floating-point operations, counted by hand."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from openwebrl_jax.learn import flops
from openwebrl_jax.models import sizes

SIZES = sizes.Sizes(
    vision=sizes.VisionSizes(
        depth=3,
        width=4,
        mlp=5,
        heads=2,
        patch_shape=(3, 1, 1, 2),  # C = 6 values
        merge=2,
        table_side=2,
        taps=(0,),
        rope_theta=1.0,
    ),
    decoder=sizes.DecoderSizes(
        vocab=11,
        width=7,
        mlp=9,
        layers=2,
        heads=4,
        kv_heads=2,
        head_width=3,
        rope_theta=1.0,
        rope_section=(1, 1, 1),
        norm_eps=1e-6,
    ),
    is_tied=True,
)


def batch():
    """A trunk of three tokens, a branch of two that sees the first two of them, and a
    place of padding; one loss position; an image of four patches and none."""
    return SimpleNamespace(
        ids_BL=np.zeros((1, 6), np.int32),
        segment_BL=np.array([[0, 0, 0, 0, 0, -1]], np.int32),
        sight_3BL=np.array(
            [[[0, 0, 0, 0, 0, 0]], [[0, 0, 0, 2, 2, 0]], [[0, 0, 0, 3, 3, 5]]], np.int32
        ),
        loss_weight_BN=np.array([[0.5, 0.0]], np.float32),
        patch_count_I=np.array([4, 0], np.int32),
    )


# Five tokens; pairs 1 + 2 + 3 in the trunk and (2 + 1) + (2 + 2) in the branch.
# A layer's kernels: q and out 7 x 12 each, k and v 7 x 6 each, three of 7 x 9.
KERNELS = 2 * 84 + 2 * 42 + 3 * 63  # 441
DECODER = 2 * (2 * 5 * KERNELS + 4 * 13 * 12) + 2 * 1 * 7 * 11
# Patches to 4 values; blocks with qkv 4 x 12, out 4 x 4, two of 4 x 5; all four
# patches see each other; two mergers 16 x 16 and 16 x 7 on one token.
TOWER = 2 * 4 * 6 * 4 + 3 * (2 * 4 * (48 + 16 + 40) + 4 * 16 * 4) + 2 * 2 * (256 + 112)


def test_an_update_takes_what_is_counted_by_hand():
    assert (DECODER, TOWER) == (10_222, 4_928)
    assert flops.of_update(SIZES, batch()) == 3 * (10_222 + 4_928)


def test_a_frozen_tower_has_no_backward_pass():
    told = flops.of_update(SIZES, batch(), train_vision=False)
    assert told == 3 * 10_222 + 4_928


def test_an_unknown_device_has_no_peak_unless_one_is_given():
    assert flops.peak(0.0, "bfloat16") == 0.0
    assert flops.peak(2.0, "float32") == 2e12 * jax.device_count()


@pytest.mark.parametrize(
    ("kind", "dtype", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.0),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("TPU v5 lite", "bfloat16", 197.0),
        ("TPU v5", "bfloat16", 459.0),
        ("NVIDIA H100 80GB HBM3", "float32", 0.0),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 0.0),
    ],
)
def test_the_peak_goes_by_the_kind_of_device(monkeypatch, kind, dtype, tflops):
    device = SimpleNamespace(device_kind=kind)
    monkeypatch.setattr(flops.jax, "devices", lambda: [device])
    monkeypatch.setattr(flops.jax, "device_count", lambda: 2)
    assert flops.peak(0.0, dtype) == 2 * tflops * 1e12
