"""Trajectories on disk, one zip each, named by its content.

`<sha256 of the file>.zip` holds `trajectory.json` (everything that reads as text; a
screenshot is named by the sha256 of its PNG), `ids.npz` (token ids and log-probs of
all turns end to end, with their lengths) and each different screenshot once. Any tool
opens it, nothing is pickled, and equal trajectories are one file. A file is either
whole under its name or not there: what `save` has named outlives a kill.
"""

import dataclasses
import hashlib
import io
import itertools
import json
import os
import pathlib
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from openwebrl_jax.core import types
from openwebrl_jax.rollout import records

FOLDER = "trajectories"  # of a workdir

_SUFFIX = ".zip"
_JSON, _IDS = "trajectory.json", "ids.npz"
_ARRAYS = {
    "seen_ids": np.int32,
    "remembered_ids": np.int32,
    "response_ids": np.int32,
    "closing_ids": np.int32,
    "logprobs": np.float64,  # exactly the numbers that the sampler gave
}
_NO_ARRAYS: dict[str, Any] = dict.fromkeys(_ARRAYS, ())
_EPOCH = (1980, 1, 1, 0, 0, 0)  # one time stamp for all: equal content, equal bytes


def save(
    folder: str | os.PathLike[str],
    trajectory: types.Trajectory,
    reward: types.Reward,
) -> str:
    """Writes both and returns their name; they are durable when it returns."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = _pack(trajectory, reward)
    name = hashlib.sha256(data).hexdigest()
    path = _path(folder, name)
    if not path.exists():
        _write(path, data)
    return name


def load(
    folder: str | os.PathLike[str], name: str
) -> tuple[types.Trajectory, types.Reward]:
    """What `save` wrote under the name; a damaged file is a ValueError."""
    path = _path(pathlib.Path(folder), name)
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != name:
        raise ValueError(
            f"{path} is damaged: its {len(data)} bytes hash to {found[:12]}..., which "
            "is not its name; bring it back from a copy or start from a checkpoint "
            "that does not need it"
        )
    return _unpack(data)


def listing(folder: str | os.PathLike[str]) -> list[str]:
    """Names of all trajectories in the folder, sorted."""
    return sorted(path.stem for path in pathlib.Path(folder).glob(f"*{_SUFFIX}"))


def _path(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / f"{name}{_SUFFIX}"


def _write(path: pathlib.Path, data: bytes) -> None:
    """All or nothing: the name appears after the bytes have reached the disk."""
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.stem}-{writer}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _pack(trajectory: types.Trajectory, reward: types.Reward) -> bytes:
    bare = dataclasses.replace(
        trajectory,
        turns=tuple(dataclasses.replace(it, **_NO_ARRAYS) for it in trajectory.turns),
    )
    blobs: records.Blobs = {}
    value = {
        "trajectory": records.to_json(bare, blobs),
        "reward": records.to_json(reward),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _add(archive, _JSON, json.dumps(value).encode(), zipfile.ZIP_DEFLATED)
        _add(archive, _IDS, _pack_ids(trajectory.turns), zipfile.ZIP_DEFLATED)
        for name, png in blobs.items():
            _add(archive, f"{name}.png", png, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes, how: int) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    archive.writestr(entry, data, compress_type=how, compresslevel=zlib.Z_BEST_SPEED)


def _pack_ids(turns: Iterable[types.Turn]) -> bytes:
    arrays = {}
    for name, dtype in _ARRAYS.items():
        parts = [getattr(turn, name) for turn in turns]
        arrays[name] = np.fromiter(itertools.chain.from_iterable(parts), dtype)
        arrays[f"{name}_length"] = np.array([len(part) for part in parts], np.int32)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpack(data: bytes) -> tuple[types.Trajectory, types.Reward]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        blobs = {
            name.removesuffix(".png"): archive.read(name)
            for name in archive.namelist()
            if name.endswith(".png")
        }
        value = json.loads(archive.read(_JSON))
        ids = list(_unpack_ids(archive.read(_IDS)))
    trajectory = records.from_json(types.Trajectory, value["trajectory"], blobs)
    turns = (
        dataclasses.replace(turn, **own)
        for turn, own in zip(trajectory.turns, ids, strict=True)
    )
    reward = records.from_json(types.Reward, value["reward"])
    return dataclasses.replace(trajectory, turns=tuple(turns)), reward


def _unpack_ids(data: bytes) -> Iterator[dict[str, tuple]]:
    """Of each turn, its arrays by name."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        columns = {
            name: _cut(arrays[name], arrays[f"{name}_length"]) for name in _ARRAYS
        }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _cut(values: np.ndarray, lengths: np.ndarray) -> list[tuple]:
    ends = np.cumsum(lengths)
    return [
        tuple(values[end - length : end].tolist())
        for end, length in zip(ends, lengths, strict=True)
    ]
