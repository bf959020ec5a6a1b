"""Collects demonstrations of a task suite's oracle as ordinary trajectories.

python -m launch.demonstrate --config=configs/mt_sft.py:tiny --workdir=runs/demos
"""

from absl import flags
from ml_collections import config_flags

from launch import cli

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder for the trajectories.", required=True
)
_EPISODES = flags.DEFINE_integer("episodes", 3000, "How many.")
_ERROR = flags.DEFINE_float(
    "error", 0.0, "Share of ambiguous pages on which the teacher names the wrong one."
)
flags.mark_flag_as_required("config")


def main() -> None:
    """All episodes; wrong flags are refused before so much is imported."""
    from openwebrl_jax.runtime import demonstrate

    demonstrate.run(
        _CONFIG.value,
        _WORKDIR.value,
        episodes=_EPISODES.value,
        error_rate=_ERROR.value,
    )


if __name__ == "__main__":
    cli.run(main)
