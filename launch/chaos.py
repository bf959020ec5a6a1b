"""Kills the processes of a real run for a while and checks that nothing was lost.

python -m launch.chaos --workdir=runs/chaos --minutes=20

The run is `grpo_short:tiny`, asynchronous, from a short SFT that is made first unless
--init_from names another start. Exit code 1 = a count does not add up.
"""

import json
import pathlib
import shutil
import subprocess
import sys

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.core import checks
from openwebrl_jax.runtime import chaos, queue

_RL = "configs/grpo_short.py:tiny"
_CONFIG = config_flags.DEFINE_config_file("config", _RL, "Leave it as it is.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/chaos", "Folder of this run.")
_MINUTES = flags.DEFINE_float("minutes", 20.0, "How long it is harmed.")
_INIT_FROM = flags.DEFINE_string("init_from", "", "Start; empty = a short SFT is made.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the kills.")

SETTINGS = {
    "algo.eta": 1,
    "algo.groups": 4,  # short iterations
    "algo.iterations": 1_000_000,  # it does not end by itself
    "algo.starve_batches": 1000,  # whether it learns is not asked here
    "checkpoint.every": 1,
}


def make_start(base: pathlib.Path) -> str:
    """The SFT workdir, made if it is not there."""
    tiny, demos, sft = (str(base / name) for name in ("tiny", "demos", "sft"))
    start = ["--config=configs/mt_sft.py:tiny", f"--config.model.path={tiny}"]
    data = [f"--config.sft.data=('{demos}',)", "--config.sft.steps=150"]
    for command in (
        ["launch.make_tiny", f"--out={tiny}"],
        ["launch.demonstrate", *start, f"--workdir={demos}", "--episodes=800"],
        ["launch.train", *start, *data, f"--workdir={sft}"],
    ):
        if not (base / "sft" / "export" / "model.safetensors").exists():
            subprocess.run([sys.executable, "-m", *command], check=True)
    return sft


def main() -> None:
    """Makes a start, harms a run, audits it."""
    config, base = _CONFIG.value, pathlib.Path(_WORKDIR.value)
    with checks.held(base):
        shutil.rmtree(base / "rl", ignore_errors=True)
        settings = SETTINGS | {"init_from": _INIT_FROM.value or make_start(base)}
        config.update_from_flattened_dict(settings)
        command = [sys.executable, "-m", "launch.train", f"--workdir={base / 'rl'}"]
        command += [f"--config={_RL}"]
        command += [f"--config.{key}={value}" for key, value in settings.items()]
        told = chaos.run(
            command,
            base / "rl",
            queue.limits(config),
            minutes=_MINUTES.value,
            seed=_SEED.value,
        )
        (base / "summary.json").write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    found = chaos.faults(told)
    for fault in found:
        print(fault, file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    cli.run(main)
