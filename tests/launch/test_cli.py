"""How a run that goes nowhere ends: one line, and an exit code of its own."""

import subprocess
import sys

import pytest

# What the driver raises when the ledger's error has passed through two actors.
STOPPED = """
import sys
import ray.exceptions
from launch import cli
from openwebrl_jax.rollout.ledger import StarvationError
from openwebrl_jax.rollout.score import JudgeDriftError

def main():
    error = {error}
    for name in ("take", "grpo"):
        error = ray.exceptions.RayTaskError(name, "a traceback", error)
    raise error.as_instanceof_cause()

sys.argv[1:] = []
cli.run(main)
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "StarvationError({'too_few_valid': 20}, {'judge_unparseable': 96})",
            "20 groups in a row were dropped (too_few_valid 20): start from a policy "
            "that sometimes succeeds, mend what made slots void (judge_unparseable 96)",
        ),
        ("JudgeDriftError('kappa 0.1')", "kappa 0.1"),
    ],
)
def test_a_run_that_goes_nowhere_exits_with_three(error, told):
    done = subprocess.run(
        [sys.executable, "-c", STOPPED.replace("{error}", error)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(f"stopped: {told}") and done.stderr.count("\n") == 1
