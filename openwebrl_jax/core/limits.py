"""What each configuration key may be, as tables: names, intervals, what may change.

A key is written with dots, as on the command line: `algo.group`.
"""

from collections.abc import Mapping
from typing import Any

CHOICES = {
    "stage": ("grpo", "sft"),
    "model.dtype": ("bfloat16", "float32"),
    "model.attention": ("xla", "pallas"),
    "tasks.suite": ("file", "miniwob", "fake"),
    "web.tape": ("", "record", "replay"),
    "agent.prompt": ("full", "short"),
    "agent.history": ("full", "hide_thinking", "action_only"),
    "reward.judge.protocol": ("single", "webjudge", "webvoyager", "opagent"),
    "reward.judge.prompt": ("full", "short"),
    "reward.judge.second_protocol": ("", "single", "webjudge", "webvoyager", "opagent"),
    "algo.loss": ("mm_grpo", "mt_sft"),
    "algo.advantage": ("mean_std", "mean", "rloo"),
    "batch.layout": ("tree", "turn"),
    "algo.weighting": ("turn_mean", "traj_mean", "constant_k", "token_mean"),
    "algo.old_logp": ("behaviour", "proximal"),
    "optim.name": ("adamw", "muon"),
    "optim.schedule": ("constant", "cosine", "trapezoid"),
    "cluster.platform": ("", "cpu"),
}

# As mathematicians write them: [ and ] with the bound, ( and ) without it.
INTERVALS = {
    "tasks.max_turns": "[1, 1000]",
    "tasks.floor": "(0, 1]",
    "tasks.decay": "(0, 1]",
    "web.width_px": "[32, 8192]",
    "web.height_px": "[32, 8192]",
    "web.settle_cap_s": "[0, 60]",
    "web.settle_quiet_s": "[0, 60]",
    "web.wait_cap_s": "[0, 600]",
    "web.recycle_episodes": "[1, inf)",
    "web.memory_limit_mb": "[0, inf)",
    "agent.context_screenshots": "[1, 100]",
    "agent.parse_failures": "[1, inf)",
    "rollout.workers": "[1, inf)",
    "rollout.contexts": "[1, inf)",
    "rollout.retries": "[0, 100]",
    "sample.temperature": "(0, 10]",
    "sample.response_tokens": "[1, inf)",
    "sample.context_tokens": "[2, inf)",
    "sample.slots": "[1, inf)",
    "reward.format_error": "(-inf, inf)",
    "reward.judge.tries": "[1, 100]",
    "reward.judge.screenshots": "[-1, 100]",
    "reward.judge.relevance": "[1, 5]",
    "reward.judge.rest_s": "[0, 86400]",
    "reward.judge.canaries_every": "[1, inf)",
    "reward.judge.second_share": "[0, 1]",
    "reward.judge.least_kappa": "[-1, 1]",
    "reward.judge.most_false_positives": "[0, 1]",
    "reward.judge.usd_per_million_in": "[0, inf)",
    "reward.judge.usd_per_million_out": "[0, inf)",
    "reward.judge.concurrency": "[1, inf)",
    "algo.group": "[2, 1024]",
    "algo.groups": "[1, inf)",
    "algo.eta": "[0, 100]",
    "algo.constant_k": "[0, inf)",
    "algo.clip_low": "(0, 1]",
    "algo.clip_high": "(0, inf)",
    "algo.kl": "[0, inf)",
    "algo.entropy": "[0, inf)",
    "algo.ppo_epochs": "[1, 100]",
    "algo.minibatch_turns": "[1, inf)",
    "algo.iterations": "[0, inf)",
    "algo.starve_batches": "[1, inf)",
    "sft.weights_k": "(0, 15]",
    "sft.steps": "[0, inf)",
    "sft.rows": "[1, inf)",
    "optim.lr_peak": "(0, 1]",
    "optim.lr_rest": "[0, 1]",
    "optim.warmup_steps": "[0, inf)",
    "optim.decay_share": "[0, 1]",
    "optim.b1": "[0, 1)",
    "optim.b2": "[0, 1)",
    "optim.weight_decay": "[0, inf)",
    "optim.clip_norm": "(0, inf)",
    "batch.rows": "[1, inf)",
    "batch.loss_tokens": "[1, inf)",
    "mesh.data": "[1, inf)",
    "mesh.tp": "[1, inf)",
    "cluster.learner_processes": "[1, 100000]",
    "cluster.learner_devices": "[0, inf)",
    "cluster.serving_devices": "[0, inf)",
    "cluster.serving_replicas": "[1, 1000]",
    "cluster.peak_tflops": "[0, inf)",
    "cluster.usd_per_hour": "[0, inf)",
    "checkpoint.every": "[1, inf)",
    "checkpoint.keep": "[1, inf)",
    "evaluate.episodes": "[1, inf)",
    "evaluate.samples": "[0, inf)",
}
# Every key that ends in timeout_s: 0 means for ever to Chromium, and what is below a
# millisecond becomes 0 on the way there.
TIMEOUT = "[0.01, 86400]"

RISING = ("sample.prompt_buckets", "batch.lengths")

ABILITIES = ("acting", "grounding", "planning")
STAGE_LOSS = {"grpo": "mm_grpo", "sft": "mt_sft"}

# Keys, or heads of keys, that a later run in the same workdir may change: they say
# how long and on what it runs, not what is learnt.
FREE = (
    "algo.starve_batches",
    "algo.iterations",
    "batch",
    "checkpoint",
    "cluster",
    "evaluate",
    "init_command",
    "mesh",
    "model.remat",
    "reward.judge.api_key_env",
    "reward.judge.base_url",
    "reward.judge.concurrency",
    "reward.judge.rest_s",
    "reward.judge.canaries",
    "reward.judge.canaries_every",
    "reward.judge.second_share",
    "reward.judge.second_model",
    "reward.judge.second_protocol",
    "reward.judge.least_kappa",
    "reward.judge.most_false_positives",
    "reward.judge.usd_per_million_in",
    "reward.judge.usd_per_million_out",
    "rollout.canary_url",
    "rollout.contexts",
    "rollout.workers",
    "sample.slots",
    "sft.steps",
    "tasks.blocklist",
    "web.chromium",
    "web.memory_limit_mb",
    "web.recycle_episodes",
    "web.tape_folder",
)


def interval(key: str) -> str | None:
    """The interval that a key's number must lie in; None = any value will do."""
    return TIMEOUT if key.endswith("timeout_s") else INTERVALS.get(key)


def leaves(config: Any) -> dict[str, Any]:
    """The tree as a flat mapping: {"algo.group": 5, ...}."""
    flat = {}
    for key, value in config.items():
        if isinstance(value, Mapping) or hasattr(value, "items"):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in leaves(value).items()}
        else:
            flat[key] = value
    return flat


def tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What `leaves` made flat, as nested dicts."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, name = key.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return nested


def is_free(key: str) -> bool:
    """True iff a later run in the same workdir may change this key."""
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def is_within(value: float, interval: str) -> bool:
    """True iff the number lies in an interval written "[0, 1)"; NaN lies in none."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below
