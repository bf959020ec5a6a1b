"""Collects what is said on MiniWoB++ pages, for the tiny tokenizer to learn from.

python -m launch.make_corpus --config=configs/mt_sft.py:tiny

Oracles play training seeds; requests, thoughts and feedback become lines. Pages whose
words are random letters are left out: no two of them are alike.
"""

import asyncio
import pathlib
from collections.abc import Iterator

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.core import types
from openwebrl_jax.rollout import build
from openwebrl_jax.tasks import miniwob

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment.")
_OUT = flags.DEFINE_string("out", "configs/tiny_model/corpus.txt", "File to write.")
flags.mark_flag_as_required("config")

PAGES = "click-button click-button-sequence click-collapsible-nodelay click-color"
PAGES += " click-dialog click-dialog-2 click-link click-tab click-test click-test-2"
PAGES += " click-widget enter-text focus-text focus-text-2"
SEEDS = range(30)
MAX_TURNS = 4


def said(trajectory: types.Trajectory) -> Iterator[str]:
    """The request, then what each turn thought and was told."""
    yield trajectory.task.intent
    for turn in trajectory.turns:
        yield turn.thought
        for line in turn.feedback:
            yield f"{line.tool} {line.state}"
            yield line.text


async def collect(config) -> list[str]:
    """The lines of all episodes, by page and seed; one context loads each page once."""
    runner = build.make_runner(config)
    await runner.start()
    lines = []
    for name in PAGES.split():
        for seed in SEEDS:
            task = miniwob.make_task(name, seed, max_turns=MAX_TURNS)
            trajectory, _ = await runner.run(task, key=(0, 0, 0), error_rate=0.0)
            lines += said(trajectory)
    await runner.close()
    return lines


def main() -> None:
    """Writes the file."""
    lines = asyncio.run(collect(_CONFIG.value))
    pathlib.Path(_OUT.value).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    cli.run(main)
