"""Measures a policy's success on held-out tasks, sampled and greedy.

python -m launch.evaluate --config=configs/grpo_short.py:tiny --workdir=runs/short
"""

from absl import flags
from ml_collections import config_flags

from launch import cli

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where evaluation.json goes.", required=True
)
_MODEL = flags.DEFINE_string(
    "model", "", "Checkpoint folder or workdir; empty = the export in --workdir."
)
flags.mark_flag_as_required("config")


def main() -> None:
    """The evaluation; wrong flags are refused before so much is imported."""
    from openwebrl_jax.runtime import evaluate

    evaluate.run(_CONFIG.value, _WORKDIR.value, _MODEL.value)


if __name__ == "__main__":
    cli.run(main)
