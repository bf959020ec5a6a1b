"""Hugging Face checkpoint folders in and out: safetensors <-> parameters.

One table says which tensor is which parameter. It must cover the model and the files
both ways: a tensor too few or too many is refused by name before anything is read.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import nnx
from jax.sharding import Mesh

from openwebrl_jax.models import mesh as meshes
from openwebrl_jax.models import qwen3_vl
from openwebrl_jax.models.sizes import Sizes, load_sizes

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_DTYPES = ("F32", "BF16", "F16", "F64")

_TEXT = "model.language_model."
_LAYER = _TEXT + "layers.{}."
_TOWER = "model.visual."
_BLOCK = _TOWER + "blocks.{}."
_MERGER = _TOWER + "merger."
_TAP = _TOWER + "deepstack_merger_list.{}."

# Ours, theirs, and how theirs becomes ours: `same`, `flip` (torch keeps matrices as
# [out, in]) or `patch` (a convolution as wide as its step is a matrix). A name with
# {} stands for one tensor a layer; ours are stacked on the first axis.
TABLE = (
    ("decoder.embed", _TEXT + "embed_tokens.weight", "same"),
    ("decoder.norm", _TEXT + "norm.weight", "same"),
    ("decoder.layers.attn_norm", _LAYER + "input_layernorm.weight", "same"),
    ("decoder.layers.q", _LAYER + "self_attn.q_proj.weight", "flip"),
    ("decoder.layers.k", _LAYER + "self_attn.k_proj.weight", "flip"),
    ("decoder.layers.v", _LAYER + "self_attn.v_proj.weight", "flip"),
    ("decoder.layers.q_norm", _LAYER + "self_attn.q_norm.weight", "same"),
    ("decoder.layers.k_norm", _LAYER + "self_attn.k_norm.weight", "same"),
    ("decoder.layers.out", _LAYER + "self_attn.o_proj.weight", "flip"),
    ("decoder.layers.mlp_norm", _LAYER + "post_attention_layernorm.weight", "same"),
    ("decoder.layers.gate", _LAYER + "mlp.gate_proj.weight", "flip"),
    ("decoder.layers.up", _LAYER + "mlp.up_proj.weight", "flip"),
    ("decoder.layers.down", _LAYER + "mlp.down_proj.weight", "flip"),
    ("vision.patch", _TOWER + "patch_embed.proj.weight", "patch"),
    ("vision.patch_bias", _TOWER + "patch_embed.proj.bias", "same"),
    ("vision.table", _TOWER + "pos_embed.weight", "same"),
    ("vision.blocks.attn_norm_scale", _BLOCK + "norm1.weight", "same"),
    ("vision.blocks.attn_norm_bias", _BLOCK + "norm1.bias", "same"),
    ("vision.blocks.qkv", _BLOCK + "attn.qkv.weight", "flip"),
    ("vision.blocks.qkv_bias", _BLOCK + "attn.qkv.bias", "same"),
    ("vision.blocks.out", _BLOCK + "attn.proj.weight", "flip"),
    ("vision.blocks.out_bias", _BLOCK + "attn.proj.bias", "same"),
    ("vision.blocks.mlp_norm_scale", _BLOCK + "norm2.weight", "same"),
    ("vision.blocks.mlp_norm_bias", _BLOCK + "norm2.bias", "same"),
    ("vision.blocks.up", _BLOCK + "mlp.linear_fc1.weight", "flip"),
    ("vision.blocks.up_bias", _BLOCK + "mlp.linear_fc1.bias", "same"),
    ("vision.blocks.down", _BLOCK + "mlp.linear_fc2.weight", "flip"),
    ("vision.blocks.down_bias", _BLOCK + "mlp.linear_fc2.bias", "same"),
    ("vision.merger.norm_scale", _MERGER + "norm.weight", "same"),
    ("vision.merger.norm_bias", _MERGER + "norm.bias", "same"),
    ("vision.merger.up", _MERGER + "linear_fc1.weight", "flip"),
    ("vision.merger.up_bias", _MERGER + "linear_fc1.bias", "same"),
    ("vision.merger.down", _MERGER + "linear_fc2.weight", "flip"),
    ("vision.merger.down_bias", _MERGER + "linear_fc2.bias", "same"),
    ("vision.tap_mergers.norm_scale", _TAP + "norm.weight", "same"),
    ("vision.tap_mergers.norm_bias", _TAP + "norm.bias", "same"),
    ("vision.tap_mergers.up", _TAP + "linear_fc1.weight", "flip"),
    ("vision.tap_mergers.up_bias", _TAP + "linear_fc1.bias", "same"),
    ("vision.tap_mergers.down", _TAP + "linear_fc2.weight", "flip"),
    ("vision.tap_mergers.down_bias", _TAP + "linear_fc2.bias", "same"),
    ("head", "lm_head.weight", "same"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one parameter lies in the files.

    Example: decoder.layers.q [2, 64, 48] is two tensors of shape (48, 64) whose form
    is `flip`.
    """

    names: tuple[str, ...]  # one a layer, or the only one
    shape: tuple[int, ...]  # of each tensor in the file
    form: str
    is_stacked: bool


def load_model(
    folder: str | Path, dtype: Any = jnp.float32, mesh: Mesh | None = None
) -> tuple[Sizes, qwen3_vl.Model]:
    """Reads a checkpoint folder into a model of the given dtype.

    With a mesh each parameter goes straight to its shards.
    """
    sizes = load_sizes(folder)
    graphdef, params = nnx.split(qwen3_vl.Model(sizes), nnx.Param)
    places = _places(sizes, params)
    with Files(Path(folder)) as files:
        _check_names(sizes, places, files)
        _check_tensors(places, files)
        flat = []
        for path, param in nnx.to_flat_state(params):
            array = _read(places[".".join(map(str, path))], files, param.shape, dtype)
            sharding = meshes.named(param.axes, param.shape, mesh) if mesh else None
            flat.append((path, param.replace(jax.device_put(array, sharding))))
    return sizes, nnx.merge(graphdef, nnx.from_flat_state(flat))


def check_model(folder: str | Path) -> None:
    """Refuses what `load_model` would refuse, by the files' headers alone."""
    sizes = load_sizes(folder)
    places = _places(sizes, nnx.split(qwen3_vl.Model(sizes), nnx.Param)[1])
    with Files(Path(folder)) as files:
        _check_names(sizes, places, files)
        _check_tensors(places, files)


def save_model(
    folder: str | Path,
    sizes: Sizes,
    model: qwen3_vl.Model,
    source_folder: str | Path,
) -> None:
    """Writes a folder that `load_model` and transformers read.

    Config, tokenizer and preprocessor files are those of `source_folder`, which may
    be the folder itself.
    """
    folder, source = Path(folder), Path(source_folder)
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != source.resolve():
        for path in _companions(source):
            shutil.copyfile(path, folder / path.name)
    tensors = to_tensors(sizes, nnx.split(model, nnx.Param)[1])
    dtype = str(next(iter(tensors.values())).dtype)
    _write_config(folder, source, dtype)
    # Renamed when whole: a run that dies here leaves no truncated file.
    part = folder / (WEIGHTS + ".part")
    safetensors.numpy.save_file(tensors, part, metadata={"format": "pt"})
    # safetensors makes a file for its owner alone.
    part.chmod((folder / "config.json").stat().st_mode)
    os.replace(part, folder / WEIGHTS)


def to_tensors(sizes: Sizes, params: nnx.State) -> dict[str, np.ndarray]:
    """Parameters, or anything shaped like them, under the names of the files."""
    places = _places(sizes, params)
    tensors = {}
    for path, param in nnx.to_flat_state(params):
        tensors |= _tensors(places[".".join(map(str, path))], np.asarray(param[...]))
    return tensors


class Files:
    """The open safetensors files of a folder, by the names of their tensors."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.of: dict[str, Any] = {}
        self._open: list[Any] = []

    def __enter__(self) -> "Files":
        for path in self._paths():
            file = self._enter(path)
            self._open.append(file)
            self.of |= dict.fromkeys(file.keys(), file)
        return self

    def __exit__(self, *error) -> None:
        for file in self._open:
            file.__exit__(*error)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.of[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return self.of[name].get_slice(name).get_dtype()

    def read(self, name: str) -> np.ndarray:
        return self.of[name].get_tensor(name)

    def _paths(self) -> list[Path]:
        index = self.folder / INDEX
        if not index.is_file():
            return [self.folder / WEIGHTS]
        try:
            names = json.loads(index.read_text())["weight_map"].values()
        except (ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"{index} is not an index of weights: {error!r}") from None
        return [self.folder / name for name in sorted(set(names))]

    def _enter(self, path: Path) -> Any:
        if not path.is_file():
            raise ValueError(f"{path} is missing; fetch the checkpoint folder again")
        try:
            return safetensors.safe_open(path, framework="numpy").__enter__()
        except safetensors.SafetensorError as error:
            raise ValueError(
                f"{path} is truncated or damaged ({error}); fetch it again"
            ) from None


def _places(sizes: Sizes, params: nnx.State) -> dict[str, Place]:
    """The place of every parameter of a model; the table must cover it both ways."""
    shapes = {
        ".".join(map(str, path)): param.shape
        for path, param in nnx.to_flat_state(params)
    }
    table = [row for row in TABLE if row[0] != "head" or not sizes.is_tied]
    if {row[0] for row in table} != set(shapes):
        odd = sorted({row[0] for row in table} ^ set(shapes))
        raise ValueError(f"the table of names and the model differ in {odd}")
    return {
        ours: _place(sizes, shapes[ours], theirs, form) for ours, theirs, form in table
    }


def _place(sizes: Sizes, shape: tuple[int, ...], theirs: str, form: str) -> Place:
    is_stacked = "{}" in theirs
    one = shape[1:] if is_stacked else shape
    return Place(
        names=tuple(theirs.format(i) for i in range(shape[0] if is_stacked else 1)),
        shape=_file_shape(sizes, one, form),
        form=form,
        is_stacked=is_stacked,
    )


def _file_shape(sizes: Sizes, shape: tuple[int, ...], form: str) -> tuple[int, ...]:
    if form == "patch":
        return (shape[1], *sizes.vision.patch_shape)
    return shape[::-1] if form == "flip" else shape


def _check_names(sizes: Sizes, places: Mapping[str, Place], files: Files) -> None:
    wanted = {name for place in places.values() for name in place.names}
    extra = set(files.of) - wanted
    # Some tied checkpoints carry the head as well; it must be the embedding then.
    if sizes.is_tied and "lm_head.weight" in extra:
        embed = places["decoder.embed"].names[0]
        if embed in files.of and np.array_equal(
            files.read("lm_head.weight"), files.read(embed)
        ):
            extra.remove("lm_head.weight")
    missing = wanted - set(files.of)
    if missing:
        raise ValueError(f"{files.folder} lacks {_some(missing)} of its config.json")
    if extra:
        raise ValueError(
            f"{files.folder} has {_some(extra)} that its config.json does not know"
        )


def _check_tensors(places: Mapping[str, Place], files: Files) -> None:
    for place in places.values():
        for name in place.names:
            if files.shape(name) != place.shape:
                raise ValueError(
                    f"{files.folder}: {name} has shape {files.shape(name)}; "
                    f"its config.json wants {place.shape}"
                )
            if files.dtype(name) not in _DTYPES:
                raise ValueError(
                    f"{files.folder}: {name} is {files.dtype(name)}; wanted one of "
                    f"{', '.join(_DTYPES)} (quantised weights cannot be trained)"
                )


def _some(names: Iterable[str]) -> str:
    """The first names in layer order, and how many more there are."""
    natural = sorted(names, key=lambda name: re.sub(r"\d+", _padded, name))
    more = f" and {len(natural) - 3} more" if len(natural) > 3 else ""
    return f"the tensor {', '.join(natural[:3])}{more}"


def _padded(number: re.Match) -> str:
    return number[0].zfill(4)


def _read(place: Place, files: Files, shape: tuple[int, ...], dtype) -> np.ndarray:
    """One parameter: its tensors turned into our form, stacked, in our dtype."""
    array = np.empty(shape, dtype)
    ours = array if place.is_stacked else array[None]
    for i, name in enumerate(place.names):
        tensor = files.read(name)
        if not np.isfinite(tensor).all():
            raise ValueError(
                f"{files.folder}: {name} holds numbers that are not finite; fetch or "
                "export it again"
            )
        if place.form == "patch":
            tensor = tensor.reshape(tensor.shape[0], -1)
        ours[i] = tensor if place.form == "same" else tensor.T
    return array


def _tensors(place: Place, array: np.ndarray) -> dict[str, np.ndarray]:
    """The way back: one contiguous tensor for each name."""
    ours = array if place.is_stacked else array[None]
    theirs = ours if place.form == "same" else ours.swapaxes(1, 2)
    return {
        name: np.ascontiguousarray(tensor).reshape(place.shape)
        for name, tensor in zip(place.names, theirs, strict=True)
    }


def _companions(source: Path) -> Iterator[Path]:
    """Everything beside the weights: tokenizer, preprocessor, templates."""
    for path in sorted(source.iterdir()):
        is_weight_index = path.name.endswith(".index.json")
        if path.suffix in (".json", ".txt", ".jinja") and not is_weight_index:
            yield path


def _write_config(folder: Path, source: Path, dtype: str) -> None:
    """The source's config, with the dtype that the weights now have."""
    config = json.loads((source / "config.json").read_text())
    for part in (config, config["text_config"], config["vision_config"]):
        part.pop("torch_dtype", None)
        part["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
