"""A PNG becomes patches, exactly as the checkpoint's own image processor makes them.

In: PNG bytes and the folder's `preprocessor_config.json`. Out: patches in
merge-block-major order and their grid, as float32 values or still as bytes, an eighth
of the size. Only pillow and numpy; a page at its native size is decoded and cut in
about a millisecond, because values are looked up, not computed.
"""

import functools
import io
import json
import math
import pathlib
import struct
from dataclasses import dataclass

import numpy as np
from PIL import Image

_ASPECT_MAX = 200  # beyond it the processor of Qwen's models refuses an image


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """How a checkpoint wants its images. Made by `load_spec`.

    Example: ImageSpec(patch_px=16, merge=2, temporal=2, pixels_min=65_536,
    pixels_max=16_777_216, mean=(.5, .5, .5), std=(.5, .5, .5), rescale=1 / 255,
    resample=3).
    """

    patch_px: int
    merge: int  # merge x merge patches become one token
    temporal: int  # an image stands so often along time
    pixels_min: int
    pixels_max: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    rescale: float
    resample: int  # pillow's number of the filter, 3 = bicubic

    @property
    def values(self) -> int:
        """Numbers in one patch, C."""
        return 3 * self.temporal * self.patch_px**2


def load_spec(folder: str | pathlib.Path) -> ImageSpec:
    """The folder's `preprocessor_config.json`, in either of its two spellings."""
    path = pathlib.Path(folder) / "preprocessor_config.json"
    if not path.is_file():
        raise ValueError(f"{path} is missing: a checkpoint folder needs it for images")
    raw = json.loads(path.read_text())
    switched_off = [
        name
        for name in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb")
        if not raw.get(name, True)
    ]
    if switched_off:
        raise ValueError(f"{path}: {switched_off[0]} is false, it must be true")
    size = raw.get("size", {})
    try:
        return ImageSpec(
            patch_px=raw["patch_size"],
            merge=raw["merge_size"],
            temporal=raw["temporal_patch_size"],
            pixels_min=raw.get("min_pixels") or size["shortest_edge"],
            pixels_max=raw.get("max_pixels") or size["longest_edge"],
            mean=tuple(raw["image_mean"]),
            std=tuple(raw["image_std"]),
            rescale=raw.get("rescale_factor", 1 / 255),
            resample=raw.get("resample", int(Image.Resampling.BICUBIC)),
        )
    except KeyError as error:
        raise ValueError(f"{path} lacks the key {error}") from error


@functools.lru_cache(maxsize=1024)
def grid(spec: ImageSpec, width_px: int, height_px: int) -> tuple[int, int]:
    """Rows and columns of patches of an image of that size, both multiples of merge."""
    if max(width_px, height_px) > _ASPECT_MAX * min(width_px, height_px):
        raise ValueError(
            f"an image of {width_px} x {height_px} is too narrow: the longer side may "
            f"be {_ASPECT_MAX} times the shorter one"
        )
    unit = spec.patch_px * spec.merge
    rows, cols = round(height_px / unit), round(width_px / unit)
    area = rows * cols * unit**2
    if area > spec.pixels_max:
        shrink = math.sqrt(height_px * width_px / spec.pixels_max)
        rows = max(1, math.floor(height_px / shrink / unit))
        cols = max(1, math.floor(width_px / shrink / unit))
    elif area < spec.pixels_min:
        stretch = math.sqrt(spec.pixels_min / (height_px * width_px))
        rows = math.ceil(height_px * stretch / unit)
        cols = math.ceil(width_px * stretch / unit)
    return rows * spec.merge, cols * spec.merge


def token_count(spec: ImageSpec, width_px: int, height_px: int) -> int:
    """How many image pads stand for an image of that size."""
    rows, cols = grid(spec, width_px, height_px)
    return rows * cols // spec.merge**2


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height, read from the header alone."""
    if png[:8] != b"\x89PNG\r\n\x1a\n" or png[12:16] != b"IHDR":
        raise ValueError(f"not a PNG: it begins with {png[:8]!r}")
    return struct.unpack(">II", png[16:24])


def patches(spec: ImageSpec, png: bytes) -> tuple[np.ndarray, tuple[int, int]]:
    """The patches [P, C] of a PNG, merge-block-major, and their (rows, cols).

    C runs over channel, time, y, x; the copies along time are equal.
    """
    bytes_PN, (rows, cols) = cut(spec, png)
    side = spec.patch_px
    cut_PC1YX = bytes_PN.reshape(-1, 3, 1, side, side)
    values = np.empty((rows * cols, 3, spec.temporal, side, side), np.float32)
    for channel, table in enumerate(_tables(spec)):
        values[:, channel] = table[cut_PC1YX[:, channel]]
    return values.reshape(rows * cols, spec.values), (rows, cols)


def cut(spec: ImageSpec, png: bytes) -> tuple[np.ndarray, tuple[int, int]]:
    """The same as bytes [P, N], once along time: N runs over channel, y, x."""
    image = _decode(png)
    rows, cols = grid(spec, *image.size)
    size = (cols * spec.patch_px, rows * spec.patch_px)
    if image.size != size:
        image = image.resize(size, resample=spec.resample)
    merge, side = spec.merge, spec.patch_px
    blocks = np.asarray(image).reshape(
        rows // merge, merge, side, cols // merge, merge, side, 3
    )
    cut_PN = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * cols, 3 * side**2)
    return cut_PN, (rows, cols)


def _decode(png: bytes) -> Image.Image:
    """An RGB image; what is transparent shows white."""
    image = Image.open(io.BytesIO(png))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image)
    return image.convert("RGB")


@functools.lru_cache(maxsize=8)
def _tables(spec: ImageSpec) -> np.ndarray:
    """[3, 256]: the normalised value of each byte, rounded as the processor rounds."""
    scaled = (np.arange(256, dtype=np.float64) * spec.rescale).astype(np.float32)
    mean, std = (np.asarray(part, np.float32) for part in (spec.mean, spec.std))
    return ((scaled[:, None] - mean) / std).T.copy()
