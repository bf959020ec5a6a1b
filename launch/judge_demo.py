"""Trains a judge of our own, measures it, and trains a policy with it, on two cores.

python -m launch.judge_demo --workdir=runs/judge_demo
"""

import json
import pathlib
import subprocess
import sys

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.core import checks
from openwebrl_jax.evals import judge_report
from openwebrl_jax.runtime import judge_demo

_SFT = config_flags.DEFINE_config_file("sft", "configs/mt_sft.py:tiny", "Policy.")
_JUDGE = config_flags.DEFINE_config_file("judge", "configs/judge_sft.py:tiny", "Judge.")
_RL = config_flags.DEFINE_config_file("rl", "configs/grpo_short.py:tiny", "RL stage.")
_WORKDIR = flags.DEFINE_string("workdir", "runs/judge_demo", "Folder of this run.")
_COUNTS = {
    name: flags.DEFINE_integer(name, count, f"Episodes, {what}.")
    for name, count, what in (
        ("demonstrations", 1200, "of the policy's teacher"),
        ("train", 1600, "of the policy, to learn judging from"),
        ("seen", 560, "held out, of pages that the judge has learnt from"),
        ("unseen", 320, "of other pages"),
    )
}


def main() -> None:
    """All stages; what is done already is skipped."""
    base = pathlib.Path(_WORKDIR.value)
    policy = _SFT.value
    policy.model.path = str(base / "tiny")
    with checks.held(base):
        if not (base / "tiny" / "model.safetensors").exists():
            # A process of its own: this one starts others and must hold no backend.
            make = [sys.executable, "-m", "launch.make_tiny", f"--out={base / 'tiny'}"]
            subprocess.run([*make, f"--seed={policy.seed}"], check=True)
        judge_demo.run(
            policy,
            _JUDGE.value,
            _RL.value,
            str(base),
            counts={name: flag.value for name, flag in _COUNTS.items()},
        )
        told = judge_report.write(
            base,
            judged={
                who: {
                    on: judge_demo.judgements(base, who, on)
                    for on in ("seen", "unseen", "injected", "plain")
                }
                for who in ("trained", "untrained", "text")
            },
            learnt=judge_demo.learnt(base),
            records=judge_demo.curves(base),
            gains={
                part: judge_demo.gain(judge_demo.curves(base), part)
                for part in ("judge", "checker")
            },
        )
    print(json.dumps(told))


if __name__ == "__main__":
    cli.run(main)
