"""PNG to patches against transformers' own image processor."""

import io
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl

from openwebrl_jax.tokens import images

RAW = {
    "patch_size": 16,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 64 * 64, "longest_edge": 640 * 640},
    "image_mean": [0.93, 0.5, 0.4],
    "image_std": [0.25, 0.3, 0.5],
}
SIZES = [(160, 224), (27, 100), (1280, 1000), (1, 1), (27, 1003), (4000, 300), (33, 47)]


def _spec(tmp_path, **changes) -> images.ImageSpec:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**RAW, **changes}))
    return images.load_spec(tmp_path)


def _image(width: int, height: int, mode: str = "RGB") -> Image.Image:
    values = np.random.default_rng(width * height).integers(
        0, 256, (height, width, len(mode)), np.uint8
    )
    return Image.fromarray(values)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("size", SIZES)
def test_patches_equal_the_reference(tmp_path, size, mode):
    spec = _spec(tmp_path)
    image = _image(*size, mode)
    found, (rows, cols) = images.patches(spec, _png(image))
    reference = image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil(**RAW)(
        [image], return_tensors="np"
    )
    np.testing.assert_array_equal(found, reference["pixel_values"])
    assert reference["image_grid_thw"].tolist() == [[1, rows, cols]]
    assert found.dtype == np.float32 and found.shape[1] == spec.values
    assert images.token_count(spec, *size) == len(found) // 4


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_grid_is_the_references(width, height):
    spec = images.ImageSpec(
        patch_px=16,
        merge=2,
        temporal=2,
        pixels_min=65_536,
        pixels_max=1_000_000,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        rescale=1 / 255,
        resample=3,
    )
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(ValueError, match="too narrow"):
            images.grid(spec, width, height)
        return
    rows, cols = images.grid(spec, width, height)
    assert (rows * 16, cols * 16) == image_processing_pil_qwen2_vl.smart_resize(
        height, width, 32, 65_536, 1_000_000
    )
    if 65_536 <= rows * cols * 256 <= 1_000_000:
        # A screenshot that was resized once is never resized again.
        assert images.grid(spec, cols * 16, rows * 16) == (rows, cols)


def test_size_is_read_from_the_header():
    assert images.size_of(_png(_image(31, 7))) == (31, 7)
    with pytest.raises(ValueError, match="not a PNG"):
        images.size_of(b"\xff\xd8\xff\xe0" + bytes(40))


def test_min_and_max_pixels_win_over_size(tmp_path):
    spec = _spec(tmp_path, min_pixels=1024, max_pixels=4096)
    assert (spec.pixels_min, spec.pixels_max) == (1024, 4096)


def test_a_faulty_config_is_named(tmp_path):
    with pytest.raises(ValueError, match="preprocessor_config.json is missing"):
        images.load_spec(tmp_path)
    with pytest.raises(ValueError, match="do_normalize is false"):
        _spec(tmp_path, do_normalize=False)
    with pytest.raises(ValueError, match="'shortest_edge'"):
        _spec(tmp_path, size={})


def test_a_page_is_cut_within_milliseconds(tmp_path):
    spec = _spec(tmp_path)
    page = Image.new("RGB", (160, 224), "white")
    page.paste(_image(60, 40), (20, 100))
    png = _png(page)
    images.patches(spec, png)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        images.patches(spec, png)
        times.append(time.perf_counter() - start)
    print(f"{min(times) * 1e3:.2f} ms")
    assert min(times) < 5e-3
