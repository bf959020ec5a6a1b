"""MT-SFT: the weighted multi-task warm start (arXiv 2606.02031, 7; 2602.13559, 1).

    python -m launch.train --config=configs/mt_sft.py --workdir=runs/sft \\
        --config.sft.data=data/teacher

Full size: 412 teacher trajectories, 3 epochs, one node of 8 GPUs, under 2 hours.
`:tiny` (two CPU cores, 3 minutes) wants demonstrations first:

    python -m launch.make_tiny --out=runs/tiny
    python -m launch.demonstrate --config=configs/mt_sft.py:tiny --workdir=runs/demos
"""

from configs import common, tiny


def get_config(variant: str = ""):
    """The full experiment, or with variant "tiny" the same on two CPU cores."""
    config = common.get_config()
    config.stage = "sft"
    config.algo.loss = "mt_sft"
    config.model.train_vision = False
    config.optim.lr_peak = 1e-5
    config.optim.schedule = "cosine"
    config.optim.warmup_steps = 7
    config.checkpoint.every = 24
    if variant:
        tiny.shrink(config, variant)
        config.tasks.train_seeds = (0, 500_000)
        config.model.train_vision = True  # it begins from random weights
        config.sft.data = ("runs/demos",)
        config.sft.shares = (0.8, 0.15, 0.05)
        config.sft.steps = 350
        config.sft.rows = 32
        config.batch.lengths = (176,)  # two of them
        config.optim.name = "muon"
        config.optim.lr_peak = 5e-3
        config.optim.lr_rest = 2.5e-3
        config.optim.schedule = "trapezoid"
        config.optim.warmup_steps = 50
        config.optim.b2 = 0.95
        config.checkpoint.every = 100
    return config
