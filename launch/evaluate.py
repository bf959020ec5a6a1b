"""Measures a policy's success on held-out tasks, sampled and greedy.

python -m launch.evaluate --config=configs/grpo_short.py:tiny --workdir=runs/short
"""

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.runtime import evaluate

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where evaluation.json goes.", required=True
)
_MODEL = flags.DEFINE_string(
    "model", "", "Checkpoint folder or workdir; empty = the export in --workdir."
)
flags.mark_flag_as_required("config")

if __name__ == "__main__":
    cli.run(lambda: evaluate.run(_CONFIG.value, _WORKDIR.value, _MODEL.value))
