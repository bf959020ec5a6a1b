"""What `:tiny` means for every experiment: the tiny model, MiniWoB++ and one CPU.

Facts of the machine and the page alone; each config file says what its own stage
changes. Numbers come from the runs in the README.
"""

from typing import Any

TASKS = ("click-tab", "click-dialog-2", "focus-text-2", "click-button")


def shrink(config: Any, variant: str) -> Any:
    """Makes `config` fit two CPU cores, in place; there is no other variant."""
    if variant != "tiny":
        raise ValueError(f"unknown variant {variant!r} of a config; there is: tiny")
    config.model.path = "runs/tiny"
    config.model.dtype = "float32"
    config.model.remat = False
    config.tasks.suite = "miniwob"
    config.tasks.names = TASKS
    config.tasks.max_turns = 2
    config.web.width_px = 160  # 5 x 7 image tokens
    config.web.height_px = 224
    config.web.recycle_episodes = 50_000  # warm pages are worth keeping
    config.agent.prompt = "short"
    config.rollout.workers = 1
    config.rollout.contexts = 12
    config.rollout.task_timeout_s = 60.0
    config.rollout.lease_timeout_s = 90.0
    config.sample.temperature = 1.0
    config.sample.response_tokens = 32
    config.sample.context_tokens = 160
    config.sample.slots = 32
    config.sample.prompt_buckets = (128,)
    config.batch.rows = 16
    config.batch.lengths = (224,)  # three episodes of one turn, or one of two
    config.batch.loss_tokens = 96
    config.cluster.platform = "cpu"
    config.optim.weight_decay = 0.0
    return config
