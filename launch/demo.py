"""The whole pipeline on two CPU cores: model, demonstrations, SFT, RL, evaluation.

python -m launch.demo --workdir=runs/demo
"""

from absl import flags

from configs import grpo_short, mt_sft
from launch import cli
from openwebrl_jax.runtime import demo

_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of this run.")
_SHUFFLE = flags.DEFINE_bool("shuffle_rewards", False, "Control run of the RL stage.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of everything.")

if __name__ == "__main__":
    cli.run(
        lambda: demo.run(
            mt_sft.get_config("tiny"),
            grpo_short.get_config("tiny"),
            _WORKDIR.value,
            seed=_SEED.value,
            shuffle_rewards=_SHUFFLE.value,
        )
    )
