"""The whole pipeline on two CPU cores: model, demonstrations, SFT, RL, evaluation.

python -m launch.demo --workdir=runs/demo
"""

import json
import pathlib
import subprocess
import sys
from typing import Any

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.core import checks, metrics
from openwebrl_jax.evals import gallery, report
from openwebrl_jax.runtime import demo

_SFT = config_flags.DEFINE_config_file("sft", "configs/mt_sft.py:tiny", "SFT stage.")
_RL = config_flags.DEFINE_config_file("rl", "configs/grpo_short.py:tiny", "RL stage.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of this run.")
_EPISODES = flags.DEFINE_integer("episodes", 2400, "Demonstrations.")
_ERROR = flags.DEFINE_float(
    "error", 0.5, "Share of ambiguous pages on which the teacher is wrong."
)


def main() -> None:
    """All stages; what is done already is skipped."""
    with checks.held(_WORKDIR.value):
        run(_SFT.value, _RL.value, pathlib.Path(_WORKDIR.value))


def run(sft: Any, rl: Any, base: pathlib.Path) -> None:
    """The model, the pipeline, the report."""
    sft.model.path = str(base / "tiny")
    if not (base / "tiny" / "model.safetensors").exists():
        # A process of its own: this one starts others and must not hold a backend.
        make = [sys.executable, "-m", "launch.make_tiny", f"--out={base / 'tiny'}"]
        subprocess.run([*make, f"--seed={sft.seed}"], check=True)
    told = demo.run(
        sft, rl, str(base), episodes=_EPISODES.value, error_rate=_ERROR.value
    )
    played = json.loads((base / demo.AFTER).read_text())["sampled"]["episodes"]
    report.write_report(
        base,
        told,
        metrics.read(base / "rl" / "metrics.jsonl"),
        episodes=gallery.pick(played, base / "evaluation" / "trajectories", count=24),
        title="From SFT to RL in a real Chromium",
    )
    print(json.dumps(told))


if __name__ == "__main__":
    cli.run(main)
