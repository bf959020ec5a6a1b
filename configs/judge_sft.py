"""Distils a judge from labelled trajectories (arXiv 2606.02031, 5; its Judge-8B).

    python -m launch.judge --config=configs/judge_sft.py --workdir=runs/judge_data \\
        --trajectories=runs/short --demonstrate
    python -m launch.train --config=configs/judge_sft.py --workdir=runs/judge
    python -m launch.judge --config=configs/judge_sft.py --workdir=runs/judged \\
        --trajectories=runs/heldout --judge=runs/judge

Full size: 12.5K trajectories that another judge or checkers have labelled, rationale
and verdict as target; the reference reports 89.8 % agreement and F1 92.1 on 500.
`:tiny` (two CPU cores, 5 minutes) goes on from `configs/mt_sft.py:tiny`.
"""

from configs import common, tiny


def get_config(variant: str = ""):
    """The full experiment, or with variant "tiny" the same on two CPU cores."""
    config = common.get_config()
    config.stage = "sft"
    config.algo.loss = "mt_sft"
    config.model.path = "Qwen/Qwen3-VL-8B-Thinking"
    config.model.train_vision = False
    config.agent.context_screenshots = 4  # those shown and the final page
    config.sft.data = ("runs/judge_data",)
    config.sft.shares = (1.0, 0.0, 0.0)
    config.sft.steps = 300
    config.optim.lr_peak = 1e-5
    config.optim.schedule = "cosine"
    config.optim.warmup_steps = 10
    config.checkpoint.every = 50
    if variant:
        tiny.shrink(config, variant)
        config.init_from = "runs/sft"
        config.init_command = (
            "python -m launch.train --config=configs/mt_sft.py:tiny --workdir=runs/sft"
        )
        config.model.train_vision = True
        config.agent.context_screenshots = 1
        config.reward.judge.prompt = "short"
        config.reward.judge.screenshots = 0  # the final page alone
        config.sample.response_tokens = 96
        config.sample.context_tokens = 352
        config.sample.prompt_buckets = (256,)
        config.sft.steps = 450
        config.sft.rows = 16
        config.batch.rows = 8
        config.batch.lengths = (288,)  # two rows
        config.batch.loss_tokens = 160
        config.optim.name = "muon"
        config.optim.lr_peak = 5e-3
        config.optim.lr_rest = 2.5e-3
        config.optim.schedule = "trapezoid"
        config.optim.warmup_steps = 20
        config.optim.b2 = 0.95
        config.checkpoint.every = 100
    return config
