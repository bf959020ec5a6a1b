"""Checkpoints of a run: the state by Orbax, bytes of others beside it, manifest last.

    checkpoints/00000010/state/...           arrays
    checkpoints/00000010/extras/ledger.json  what the runtime hands over
    checkpoints/00000010/manifest.json       size and sha256 of every file above

A folder without a manifest that fits its files does not count, so that a process
killed at any moment leaves the checkpoint before it usable. Arrays are written in the
background; they are restored onto whatever mesh the wanted state lies on. Several
processes share the folder; the first one writes all but the arrays.
"""

import concurrent.futures
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from openwebrl_jax.learn import hosts

MANIFEST = "manifest.json"


class Checkpointer:
    """Owns the folder and the writer in the background; one save runs at a time."""

    def __init__(self, folder: str | os.PathLike[str], keep: int):
        if keep < 1:
            raise ValueError(f"config.checkpoint.keep={keep}; keep at least 1")
        self._folder = Path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._arrays = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._saving: concurrent.futures.Future | None = None

    def save(self, step: int, state: Any, extras: Mapping[str, bytes]) -> None:
        """Begins to save; the arrays may be donated as soon as it returns."""
        self.wait()
        target = self._folder / f"{step:08d}"
        if hosts.is_first():
            _remove(target)
            (target / "extras").mkdir(parents=True)
            for name, content in extras.items():
                _write(target / "extras" / name, content)
        hosts.meet(f"checkpoint {step}")
        self._arrays.save(target / "state", args=ocp.args.StandardSave(_named(state)))
        self._saving = self._thread.submit(self._finish, step, target)

    def latest(self) -> int | None:
        """The newest complete step, None if there is none."""
        steps = self._complete()
        return steps[-1] if steps else None

    def oldest(self) -> int | None:
        """The oldest complete step, None if there is none."""
        steps = self._complete()
        return steps[0] if steps else None

    def restore(self, step: int, state_like: Any) -> tuple[Any, dict[str, bytes]]:
        """The state and the extras of a step, every file checked by its digest.

        Args:
          state_like: a state of arrays or of ShapeDtypeStructs with shardings; what
            is restored has its structure, shapes, dtypes and places.
        """
        source = self._folder / f"{step:08d}"
        for name, facts in _read_manifest(source).items():
            if _sha256(source / name) != facts["sha256"]:
                raise ValueError(
                    f"{source / name} is damaged; remove {source} to go on from the "
                    "checkpoint before it"
                )
        wanted = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=leaf.sharding
            ),
            _named(state_like),
        )
        named = self._arrays.restore(
            source / "state", args=ocp.args.StandardRestore(wanted)
        )
        state = jax.tree.unflatten(
            jax.tree.structure(state_like), [named[name] for name in _named(state_like)]
        )
        extras = (source / "extras").iterdir()
        return state, {path.name: path.read_bytes() for path in extras}

    def wait(self) -> None:
        """Returns when the last save is durable; raises what went wrong in it."""
        if self._saving is not None:
            self._saving.result()
            self._saving = None

    def close(self) -> None:
        """Waits, and ends the writer."""
        self.wait()
        self._thread.shutdown()
        self._arrays.close()

    def _finish(self, step: int, target: Path) -> None:
        self._arrays.wait_until_finished()
        if not hosts.is_first():
            return
        files = sorted(path for path in target.rglob("*") if path.is_file())
        manifest = {
            path.relative_to(target).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": _sha256(path),
            }
            for path in files
        }
        content = json.dumps({"step": step, "files": manifest}, indent=1)
        part = target / f"{MANIFEST}.part"
        _write(part, content.encode())
        os.replace(part, target / MANIFEST)
        _sync_folder(target)
        kept = self._complete()[-self._keep :]
        for folder in self._folder.iterdir():
            if folder.name.isdigit() and int(folder.name) < kept[0]:
                _remove(folder)

    def _complete(self) -> list[int]:
        """Steps whose manifest fits the files, ascending."""
        folders = (path for path in self._folder.iterdir() if path.name.isdigit())
        return sorted(int(path.name) for path in folders if _is_complete(path))


def _named(state: Any) -> dict[str, Any]:
    """Every leaf by its path, so that files do not depend on our classes."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree.leaves_with_path(state)
    }


def _is_complete(folder: Path) -> bool:
    try:
        manifest = _read_manifest(folder)
    except (OSError, ValueError, KeyError):
        return False
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == facts["bytes"]
        for name, facts in manifest.items()
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _remove(folder: Path) -> None:
    """Manifest first: a folder that is half gone does not count."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
