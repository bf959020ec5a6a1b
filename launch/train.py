"""Trains, by MT-SFT or MM-GRPO as the config's `stage` says; resumes by itself.

python -m launch.train --config=configs/grpo_short.py:tiny --workdir=runs/short
"""

from absl import flags
from ml_collections import config_flags

from launch import cli

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of this run; made if missing.", required=True
)
flags.mark_flag_as_required("config")


def main() -> None:
    """The run; wrong flags are refused before so much is imported."""
    from openwebrl_jax.runtime import train

    train.run(_CONFIG.value, _WORKDIR.value)


if __name__ == "__main__":
    cli.run(main)
