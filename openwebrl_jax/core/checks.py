"""Refusals before anything starts: what was got, what was wanted, how to mend it.

In: a config, a workdir, a machine, a batch. Out: nothing, or one ValueError that
names every fault. `derive` is the one place where numbers follow from other numbers.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from openwebrl_jax.core import faults, limits
from openwebrl_jax.core.types import Batch

_MERGED = 4  # patches that become one image token
_FLOATS = ("patches_IPC", "table_weight_4IP", "loss_weight_BN", "old_logp_BN")
_FLOATS += ("advantage_BN",)


def check_config(
    config: Any, *, devices: int | None = None, look_at_disk: bool = True
) -> None:
    """Raises one ValueError with all faults.

    Args:
      config: the tree of configs/common.py.
      devices: of the learner; None = not known yet.
      look_at_disk: False = files and folders that the config names may come later.
    """
    found = [
        *faults.of_values(config),
        *faults.of_lengths(config),
        *faults.of_stage(config),
        *faults.of_sft(config),
        *faults.of_tasks(config),
        *faults.of_web(config),
        *faults.of_judge(config),
        *faults.of_mesh(config, devices),
        *faults.of_cluster(config),
    ]
    if look_at_disk:
        found += faults.on_disk(config)
    _refuse(found, "the config")


def check_platform(wanted: str, available: str) -> None:
    """Refuses a config that wants an accelerator where there are only CPUs.

    Args:
      wanted: config.cluster.platform; "" = an accelerator, "cpu" = none.
      available: "cpu", or the kind of accelerator that is there.
    """
    if wanted != "cpu" and available == "cpu":
        raise ValueError(
            "this config wants an accelerator and there is none here; put :tiny "
            "behind its name (--config=configs/NAME.py:tiny) for the same experiment "
            "on CPUs, or run it where a GPU or TPU is"
        )


def check_workdir(workdir: str | os.PathLike[str], config: Any) -> None:
    """Refuses a workdir that holds another config; writes nothing."""
    _refuse_store(workdir)
    path = Path(workdir) / "config.json"
    if Path(workdir).is_file():
        raise ValueError(f"{workdir} is a file; wanted a folder for this run")
    here = json.loads(json.dumps(limits.leaves(config)))  # tuples as JSON keeps them
    there = _written_config(path) if path.exists() else here
    differing = [
        f"{key}: {there.get(key, 'nothing')!r} there, {here.get(key, 'nothing')!r} here"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key) and not limits.is_free(key)
    ]
    if differing:
        raise ValueError(
            f"{workdir} holds a run of another config; take another --workdir or "
            f"mend: {'; '.join(differing)}"
        )


def keep_config(workdir: str | os.PathLike[str], config: Any) -> None:
    """Writes the config into a workdir, which knows from now on what it is of."""
    kept = {"digest": digest(config), "config": limits.leaves(config)}
    keep_text(Path(workdir) / "config.json", json.dumps(kept, indent=1) + "\n")


def keep_text(path: Path, text: str) -> None:
    """Writes a small file whole or, on a full disk or by a kill, not at all.

    One that says so already is left alone.
    """
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def home(workdir: str | os.PathLike[str]) -> str:
    """The whole path of a workdir: actors may have another working directory."""
    _refuse_store(workdir)
    return str(Path(workdir).absolute())


@contextlib.contextmanager
def held(workdir: str | os.PathLike[str]) -> Iterator[None]:
    """Keeps a workdir for this process: two runs in one would spoil both.

    The system lets go of it when the process ends, however it does.
    """
    _refuse_store(workdir)
    Path(workdir).mkdir(parents=True, exist_ok=True)
    with open(Path(workdir) / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another process runs in {workdir}; wait for its end, or take "
                "another --workdir"
            ) from None
        yield


def _refuse_store(workdir: str | os.PathLike[str]) -> None:
    """Object stores can neither append to a journal nor sync it."""
    if re.match(r"\w+:/", str(workdir)):
        raise ValueError(
            f"--workdir={workdir} is an object store; wanted a folder on a disk, for "
            "the ledger's journal grows there line by line: take one, and copy it to "
            "the store when the run has ended"
        )


def _written_config(path: Path) -> dict[str, Any]:
    """What an earlier run wrote; a checkpoint folder's config.json is none of ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = {}
    if content.keys() != {"digest", "config"}:
        raise ValueError(f"{path} was not written by a run; take another --workdir")
    return content["config"]


def digest(config: Any) -> str:
    """sha256 of all that may not change in a workdir."""
    fixed = {
        key: value
        for key, value in limits.leaves(config).items()
        if not limits.is_free(key)
    }
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def derive(config: Any) -> dict[str, float]:
    """Numbers that follow from the config; a user sets each fact once."""
    algo, sample, optim = config.algo, config.sample, config.optim
    episodes = algo.group * algo.groups
    turns = episodes * config.tasks.max_turns
    steps = algo.ppo_epochs * math.ceil(turns / algo.minibatch_turns)
    is_sft = config.stage == "sft"
    return {
        "episodes_per_iteration": episodes,
        "turns_per_iteration_max": turns,
        "steps_per_iteration_max": steps,
        "optimizer_steps_max": config.sft.steps if is_sft else algo.iterations * steps,
        "groups_at_once_max": (algo.eta + 1) * algo.groups,
        "episodes_at_once": config.rollout.workers * config.rollout.contexts,
        "prompt_tokens_max": sample.context_tokens - sample.response_tokens,
        "constant_k": algo.constant_k
        or sample.response_tokens * config.tasks.max_turns,
        "lr_rest": optim.lr_rest or optim.lr_peak / 2,
    }


def check_batch(
    batch: Batch, *, image_id: int | None = None, vocab_size: int | None = None
) -> None:
    """Raises one ValueError with all that is wrong with a batch.

    Args:
      batch: as `batch.collate` makes it, in numpy.
      image_id: the id of an image pad; None = image tokens are not looked for.
      vocab_size: ids lie below it; None = not known.
    """
    found = _array_faults(batch)
    if not found:  # contents are compared by shapes that must be sound
        found = _range_faults(batch, vocab_size)
    if not found:
        found = [*_image_faults(batch, image_id), *_loss_faults(batch, image_id)]
    _refuse(found, "the batch")


def _refuse(found: Sequence[str], of: str) -> None:
    """Raises what was found, if anything was: one fault is one line."""
    if len(found) == 1:
        raise ValueError(found[0])
    if found:
        raise ValueError("\n  - ".join((f"{len(found)} faults in {of}:", *found)))


def _array_faults(batch: Batch) -> list[str]:
    """Ranks, shapes, dtypes and finiteness; a field's suffix says its shape."""
    found: list[str] = []
    sizes: dict[str, int] = {}  # letter -> what the fields before made of it
    for name, array in _arrays(batch):
        letters = name.rsplit("_", 1)[1]
        wanted = [int(x) if x.isdigit() else sizes.get(x) for x in letters]
        dtype = np.dtype(np.float32 if name in _FLOATS else np.int32)
        if array.dtype != dtype:
            found.append(f"batch.{name} is {array.dtype}; wanted {dtype}")
        elif not np.isfinite(array).all():
            found.append(f"batch.{name} holds numbers that are not finite")
        if array.ndim != len(wanted) or any(
            size not in (None, dim)
            for dim, size in zip(array.shape, wanted, strict=True)
        ):
            found.append(f"batch.{name} has shape {array.shape}; wanted {wanted}")
        else:
            sizes |= dict(zip(letters, array.shape, strict=True))
    return found


def _range_faults(batch: Batch, vocab_size: int | None) -> list[str]:
    """Numbers that point outside of what they point into."""
    images, patches = batch.patches_IPC.shape[:2]
    ranges = {
        "ids_BL": (0, vocab_size - 1 if vocab_size else math.inf),
        "positions_3BL": (0, math.inf),
        "segment_BL": (-1, math.inf),
        "sight_3BL": (0, batch.ids_BL.shape[1]),
        "image_index_BL": (-1, images * patches // _MERGED - 1),
        "patch_count_I": (0, patches),
        "patch_position_2IP": (0, math.inf),
        "table_index_4IP": (0, math.inf),
        "loss_index_BN": (0, batch.ids_BL.shape[1] - 1),
        "old_logp_BN": (-math.inf, 0),
    }
    return [
        f"batch.{name} runs from {array.min()} to {array.max()}; wanted {low} to {high}"
        for name, array in _arrays(batch)
        for low, high in [ranges.get(name, (-math.inf, math.inf))]
        if array.size and (array.min() < low or array.max() > high)
    ]


def _image_faults(batch: Batch, image_id: int | None) -> Iterator[str]:
    """Image tokens without pixels, and pixels at tokens that are none."""
    has_pixels_BL = batch.image_index_BL >= 0
    if image_id is not None:
        is_image_BL = (batch.ids_BL == image_id) & (batch.segment_BL >= 0)
        for count, what in (
            ((is_image_BL & ~has_pixels_BL).sum(), "image tokens have no pixels"),
            ((has_pixels_BL & ~is_image_BL).sum(), "tokens with pixels are no images"),
        ):
            if count:
                yield f"{count} {what}; wanted an image_index_BL at image tokens alone"
    per_image = max(batch.patches_IPC.shape[1] // _MERGED, 1)
    image, place = np.divmod(batch.image_index_BL[has_pixels_BL], per_image)
    beyond = (place >= batch.patch_count_I[image] // _MERGED).sum()
    if beyond:
        yield f"{beyond} image tokens point at padding; wanted less than patch_count_I"


def _loss_faults(batch: Batch, image_id: int | None) -> Iterator[str]:
    """Loss at a row's first token, at padding or at an image."""
    row, column = np.nonzero(batch.loss_weight_BN)
    index = batch.loss_index_BN[row, column]
    for count, what in (
        ((index < 1).sum(), "a row's first token, which nothing predicts"),
        ((batch.segment_BL[row, index] < 0).sum(), "padding"),
        ((batch.ids_BL[row, index] == image_id).sum(), "an image token"),
    ):
        if count:
            yield f"{count} loss positions are on {what}; wanted tokens of replies"


def _arrays(batch: Batch) -> Iterator[tuple[str, np.ndarray]]:
    return ((field.name, getattr(batch, field.name)) for field in fields(batch))
