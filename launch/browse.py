"""Drives the environment by hand: one tool call a line, `help` lists them.

python -m launch.browse --url=https://example.com
python -m launch.browse --config=configs/grpo_short.py:tiny --task=miniwob/click-tab/7
python -m launch.browse --url=http://app.test/ --local=app.test:8080
python -m launch.browse --replay=runs/short/trajectories/HASH.zip

Feedback and tabs are told, the page is drawn to --out: `latest.png`, and a numbered
picture a turn. Lines may come from a pipe. A session is stored and can be replayed.
"""

import asyncio
import contextlib
import functools
import sys
from collections.abc import Iterator

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.evals import album, transcript
from openwebrl_jax.rollout import manual

_CONFIG = config_flags.DEFINE_config_file("config", "configs/common.py", "Settings.")
_URL = flags.DEFINE_string("url", "", "Page to open.")
_TASK = flags.DEFINE_string("task", "", "Or a task, such as miniwob/click-tab/7.")
_REPLAY = flags.DEFINE_string("replay", "", "Or a stored trajectory to do again.")
_LOCAL = flags.DEFINE_list("local", [], "NAME:PORT of sites on this machine.")
_OUT = flags.DEFINE_string("out", "runs/browse", "Folder for pictures.")

tell = functools.partial(print, flush=True)


def main() -> None:
    """One session, or one replay."""
    given = [flag for flag in (_URL.value, _TASK.value, _REPLAY.value) if flag]
    if len(given) != 1:
        raise ValueError("wanted one of --url, --task and --replay")
    audience = transcript.Transcript(tell, album.Album(_OUT.value))
    if _REPLAY.value:
        asyncio.run(manual.replay(_CONFIG.value, _REPLAY.value, audience))
        return
    ports = manual.ports(_LOCAL.value)
    task = manual.task_of(_TASK.value, _URL.value, ports)
    lines = prompted() if sys.stdin.isatty() else sys.stdin
    made = asyncio.run(manual.drive(_CONFIG.value, task, lines, audience, ports))
    tell(f"stored  {manual.save(_OUT.value, made)}")


def prompted() -> Iterator[str]:
    """Lines that a person types at a terminal, until end of file."""
    with contextlib.suppress(EOFError):
        while True:
            yield input("> ")


if __name__ == "__main__":
    cli.run(main)
