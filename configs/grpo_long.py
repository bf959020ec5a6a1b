"""MM-GRPO, second stage: 50 iterations with a horizon of 30 turns (2606.02031, 6).

    python -m launch.train --config=configs/grpo_long.py --workdir=runs/long \\
        --config.tasks.path=data/tasks.parquet \\
        --config.reward.judge.base_url=https://api.openai.com/v1

Begins from the first stage's checkpoint at half its rate. Full size: 8 x 180 GB
accelerators, 8 browser nodes, about 20 hours. `:tiny` runs on two CPU cores.
"""

from configs import grpo_short


def get_config(variant: str = ""):
    """The full experiment, or with variant "tiny" the same on two CPU cores."""
    config = grpo_short.get_config(variant)
    config.init_from = "runs/short"
    suffix = f":{variant}" if variant else ""
    config.init_command = (
        f"python -m launch.train --config=configs/grpo_short.py{suffix} "
        "--workdir=runs/short"
    )
    config.tasks.max_turns = 30
    if variant == "tiny":
        config.tasks.max_turns = 4
        config.sample.context_tokens = 256
        config.sample.prompt_buckets = (128, 224)
        config.batch.lengths = (224, 448)
    config.algo.iterations = 50
    config.optim.lr_peak = config.optim.lr_peak / 2
    return config
