"""How a run that goes nowhere ends: one line, and an exit code of its own."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# What the driver raises when an actor's error has come to it.
STOPPED = """
import sys
import ray.exceptions
from launch import cli
from openwebrl_jax.rollout.ledger import StarvationError
from openwebrl_jax.rollout.score import JudgeDriftError

def main():
    error = ray.exceptions.RayTaskError("take", "a traceback", errors.pop())
    raise error.as_instanceof_cause()

sys.argv[1:] = []
voids = {"judge_unparseable": 96}
errors = [JudgeDriftError("kappa 0.1"), StarvationError({"too_few_valid": 20}, voids)]
for _ in range(2):
    try:
        cli.run(main)
    except SystemExit as exit:
        print(exit.code)
"""


RELATIVE = """
import sys
from absl import flags
from launch import cli

workdir = flags.DEFINE_string("workdir", None, "x")
cli.run(lambda: print(workdir.value))
"""


@pytest.mark.parametrize(
    ("given", "told"), [("runs/a", "/runs/a"), ("gs:/b/x", "is an object store")]
)
def test_a_workdir_is_made_whole_or_refused_for_every_command(given, told, tmp_path):
    """Actors on a cluster that was joined have another working directory."""
    done = subprocess.run(
        [sys.executable, "-c", RELATIVE, f"--workdir={given}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        assert done.returncode == 2 and told in done.stderr
    else:
        assert done.stdout.strip() == f"{tmp_path}{told}"


def test_a_run_that_goes_nowhere_exits_with_three():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["3", "3"], done.stderr
    starved, drifted = done.stderr.splitlines()
    assert starved.startswith(
        "stopped: 20 groups in a row were dropped (too_few_valid 20): start from a "
        "policy that sometimes succeeds, mend what made slots void (judge_unparseable "
        "96)"
    )
    assert drifted == "stopped: kappa 0.1"
