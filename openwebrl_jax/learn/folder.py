"""The policy's checkpoint folder, as the learner reads and writes it.

In: a folder in the Hugging Face format, a Hub id, or a workdir that exported one.
Out: graph and parameters; at the end another such folder.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from flax import nnx

from openwebrl_jax.learn import hosts
from openwebrl_jax.models import load
from openwebrl_jax.models.sizes import Sizes, load_sizes

_END_BYTES = 1 << 20
EXPORT = "export"  # the folder that a run leaves in its workdir


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A loaded checkpoint. `params` are float32 whatever the files hold."""

    folder: Path
    sizes: Sizes
    graphdef: nnx.GraphDef
    params: nnx.State


def find(path: str, *, command: str = "") -> Path:
    """The checkpoint folder that a path, a workdir or a Hub id means.

    Raises ValueError where there is none; `command` is named as what makes it.
    """
    for folder in (Path(path) / EXPORT, Path(path)):
        if (folder / "config.json").is_file() and _has_weights(folder):
            return folder
    is_local = path.startswith((".", "/")) or os.path.isdir(path) or command
    if path.count("/") != 1 or is_local:
        made = f"; make it first: {command}" if command else ""
        raise ValueError(
            f"{path!r} is no checkpoint folder: wanted config.json and "
            f"{load.WEIGHTS} in it or in its {EXPORT}/{made}"
        )
    try:
        return Path(huggingface_hub.snapshot_download(path))
    except Exception as error:  # of many libraries; the kind says enough
        raise ValueError(
            f"{path!r} is no folder here and could not be fetched from the Hub "
            f"({type(error).__name__}); a small one is made by "
            f"python -m launch.make_tiny --out={path}"
        ) from None


def everywhere(path: str) -> str:
    """What `find` finds, by a name that other hosts can find it by.

    That is the whole path of a folder, or the Hub id, which each host fetches itself.
    """
    return str(find(path).absolute()) if Path(path).exists() else path


def check(folder: Path) -> None:
    """Refuses a folder that cannot be loaded; touches no device."""
    load.check_model(folder)


def digest(folder: Path) -> str:
    """Tells two trainings apart: of each weights file its size and both of its ends."""
    told = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        with path.open("rb") as file:
            told.update(f"{path.name} {size} ".encode() + file.read(_END_BYTES))
            file.seek(max(size - _END_BYTES, 0))
            told.update(file.read())
    return told.hexdigest()[:16]


def width(folder: Path) -> int:
    """Of the decoder's hidden states."""
    return load_sizes(folder).decoder.width


def read(folder: Path) -> Policy:
    """Loads the folder; every tensor is checked by name and shape."""
    sizes, model = load.load_model(folder)
    graphdef, params = nnx.split(model, nnx.Param)
    return Policy(folder=folder, sizes=sizes, graphdef=graphdef, params=params)


def write(policy: Policy, params: Any, folder: Path) -> None:
    """Exports parameters beside the tokenizer and preprocessor of the policy.

    All processes come here; the first one writes.
    """
    model = nnx.merge(policy.graphdef, hosts.gather(params))
    if hosts.is_first():
        load.save_model(folder, policy.sizes, model, policy.folder)


def _has_weights(folder: Path) -> bool:
    return (folder / load.WEIGHTS).is_file() or (folder / load.INDEX).is_file()
