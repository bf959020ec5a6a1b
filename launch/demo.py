"""The whole pipeline on two CPU cores: model, demonstrations, SFT, RL, evaluation.

python -m launch.demo --workdir=runs/demo
"""

import json

from absl import flags
from ml_collections import config_flags

from launch import cli, make_tiny
from openwebrl_jax.evals import report
from openwebrl_jax.runtime import demo

_SFT = config_flags.DEFINE_config_file("sft", "configs/mt_sft.py:tiny", "SFT stage.")
_RL = config_flags.DEFINE_config_file("rl", "configs/grpo_short.py:tiny", "RL stage.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of this run.")
_EPISODES = flags.DEFINE_integer("episodes", 3000, "Demonstrations.")
_ERROR = flags.DEFINE_float(
    "error", 0.6, "Share of ambiguous pages on which the teacher is wrong."
)


def main() -> None:
    """All stages; what is done already is skipped."""
    sft, rl, workdir = _SFT.value, _RL.value, _WORKDIR.value
    sft.model.path = f"{workdir}/tiny"
    make_tiny.make(sft.model.path, seed=sft.seed)
    told = demo.run(sft, rl, workdir, episodes=_EPISODES.value, error_rate=_ERROR.value)
    report.write_report(workdir, told)
    print(json.dumps(told))


if __name__ == "__main__":
    cli.run(main)
