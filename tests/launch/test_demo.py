"""Every stage of the demo, a few steps of each, by its command."""

import json
import subprocess
import sys

import pytest

from tests.runtime.test_train import one_device

FEW = (
    "--episodes=24",
    "--sft.sft.steps=2",
    "--rl.algo.iterations=1",
    "--rl.algo.groups=1",
    "--rl.algo.group=8",
    "--rl.algo.starve_batches=1000",
    # A model of two steps only babbles: that it ends its reply or not is the reward.
    "--rl.agent.parse_failures=1",
    "--rl.evaluate.episodes=8",
    "--rl.sample.temperature=1.0",
)


@pytest.mark.slow
def test_all_stages_leave_what_they_promise(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "launch.demo", f"--workdir={tmp_path}", *FEW],
        capture_output=True,
        text=True,
        env=one_device(),
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == json.loads((tmp_path / "summary.json").read_text())
    assert told["updates"] == 1
    assert told["success_after_sft"]["n"] == told["greedy_after_rl"]["n"] == 8
    for name in ("report.md", "curves.png", "episodes.png", "episodes.html"):
        assert (tmp_path / name).stat().st_size > 0
