"""MM-GRPO, first stage: 90 iterations with a horizon of 15 turns (2606.02031, 6).

    python -m launch.train --config=configs/grpo_short.py --workdir=runs/short \\
        --config.tasks.path=data/tasks.parquet --config.init_from=runs/sft \\
        --config.reward.judge.base_url=https://api.openai.com/v1

Full size: 8 x 180 GB accelerators, 8 browser nodes, about 45 hours; 2.2K live-web
tasks with a judge (`config.reward.judge.base_url`). `:tiny` (two CPU cores, 8
minutes) wants `configs/mt_sft.py:tiny` first.
"""

from configs import common, tiny


def get_config(variant: str = ""):
    """The full experiment, or with variant "tiny" the same on two CPU cores."""
    config = common.get_config()
    config.init_from = "runs/sft"
    config.init_command = (
        "python -m launch.train --config=configs/mt_sft.py --workdir=runs/sft"
    )
    if variant:
        tiny.shrink(config, variant)
        config.init_command = config.init_command.replace(".py", ".py:tiny")
        config.tasks.train_seeds = (500_000, 1_000_000)  # none that SFT saw
        config.algo.group = 8
        config.algo.groups = 8
        config.algo.ppo_epochs = 1
        config.algo.minibatch_turns = 256  # all of an iteration: one step
        config.algo.iterations = 48
        config.optim.lr_peak = 5e-4
        config.optim.warmup_steps = 5
        config.optim.schedule = "trapezoid"  # at a constant rate greedy success falls
        config.optim.decay_share = 0.5
    return config
