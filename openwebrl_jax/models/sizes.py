"""The sizes of a Qwen3-VL, read from the `config.json` of a checkpoint folder.

Both spellings of the rope settings are understood: `rope_parameters` (transformers 5)
and `rope_scaling` beside `rope_theta` (before it).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionSizes:
    """The vision tower: patches in, merged tokens of the decoder's width out."""

    depth: int
    width: int
    mlp: int
    heads: int
    patch_shape: tuple[int, int, int, int]  # channels, frames, height, width
    merge: int  # patches on a side that become one token
    table_side: int  # the learned position table is square
    taps: tuple[int, ...]  # blocks whose output DeepStack feeds to the decoder
    rope_theta: float

    @property
    def patch_values(self) -> int:
        """C, the values of one patch."""
        return math.prod(self.patch_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """The language decoder."""

    vocab: int
    width: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    rope_theta: float
    rope_section: tuple[int, int, int]  # rotation pairs for time, height, width
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Everything that fixes the shapes of a model; hashable."""

    vision: VisionSizes
    decoder: DecoderSizes
    is_tied: bool  # True = the head is the embedding table

    @property
    def merged_patches(self) -> int:
        """Patches that become one token."""
        return self.vision.merge**2


def load_sizes(folder: str | Path) -> Sizes:
    """Reads `config.json`; a setting that this model cannot do is a ValueError."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{path} is missing; wanted a Qwen3-VL checkpoint folder")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    try:
        _refuse(config)
        return read_sizes(config)
    except KeyError as error:
        raise ValueError(f"{path} has no key {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_sizes(config: Mapping[str, Any]) -> Sizes:
    """The sizes in a parsed `config.json`."""
    return Sizes(
        vision=_vision(config["vision_config"]),
        decoder=_decoder(config["text_config"]),
        is_tied=bool(config.get("tie_word_embeddings", False)),
    )


def _vision(config: Mapping[str, Any]) -> VisionSizes:
    side = round(config["num_position_embeddings"] ** 0.5)
    rope = config.get("rope_parameters") or {}
    patch = config["patch_size"]
    return VisionSizes(
        depth=config["depth"],
        width=config["hidden_size"],
        mlp=config["intermediate_size"],
        heads=config["num_heads"],
        patch_shape=(
            config["in_channels"],
            config["temporal_patch_size"],
            patch,
            patch,
        ),
        merge=config["spatial_merge_size"],
        table_side=side,
        taps=tuple(config["deepstack_visual_indexes"]),
        rope_theta=float(rope.get("rope_theta", 10_000.0)),
    )


def _decoder(config: Mapping[str, Any]) -> DecoderSizes:
    rope = _rope(config)
    theta = rope["rope_theta"] if "rope_theta" in rope else config["rope_theta"]
    return DecoderSizes(
        vocab=config["vocab_size"],
        width=config["hidden_size"],
        mlp=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_width=config["head_dim"],
        rope_theta=float(theta),
        rope_section=tuple(rope.get("mrope_section", (24, 20, 20))),
        norm_eps=float(config["rms_norm_eps"]),
    )


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse(config: Mapping[str, Any]) -> None:
    """Raises on what would be computed wrongly."""
    vision, text = config["vision_config"], config["text_config"]
    rope = _rope(text)
    taps = vision["deepstack_visual_indexes"]
    wanted = (
        ("model_type", config.get("model_type"), "qwen3_vl"),
        ("text hidden_act", text.get("hidden_act", "silu"), "silu"),
        ("text attention_bias", text.get("attention_bias", False), False),
        ("rope_type", rope.get("rope_type", "default"), "default"),
        ("mrope_interleaved", rope.get("mrope_interleaved", True), True),
        ("vision hidden_act", vision["hidden_act"], "gelu_pytorch_tanh"),
        ("out_hidden_size", vision["out_hidden_size"], text["hidden_size"]),
        ("deepstack_visual_indexes", list(taps), sorted(set(taps))),
    )
    for name, got, want in wanted:
        if got != want:
            raise ValueError(f"{name} is {got!r}; this model can only do {want!r}")
    if len(taps) > text["num_hidden_layers"]:
        raise ValueError(
            f"deepstack_visual_indexes has {len(taps)} entries for "
            f"{text['num_hidden_layers']} decoder layers; wanted at most one a layer"
        )
