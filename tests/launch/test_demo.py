"""Every stage of the demo, a few steps of each, by its command; killed and resumed."""

import json
import subprocess
import sys

import pytest

from openwebrl_jax.core import metrics
from openwebrl_jax.rollout import books, events, store
from tests.runtime.test_train import last_state, one_device, wait_for

UPDATES = 3
FEW = (
    "--episodes=24",
    "--sft.sft.steps=2",
    f"--rl.algo.iterations={UPDATES}",
    "--rl.algo.groups=1",
    "--rl.algo.group=8",
    "--rl.algo.starve_batches=1000",
    # A model of two steps only babbles: that it ends its reply or not is the reward.
    "--rl.agent.parse_failures=1",
    "--rl.checkpoint.every=1",
    "--rl.evaluate.episodes=8",
    "--rl.sample.temperature=1.0",
)


@pytest.mark.slow
def test_all_stages_leave_what_they_promise(tmp_path):
    command = [sys.executable, "-m", "launch.demo", f"--workdir={tmp_path}", *FEW]
    rl = tmp_path / "rl"
    with open(tmp_path / "log.txt", "w") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log, env=one_device())
    try:
        wait_for(lambda: len(metrics.read(rl / "metrics.jsonl")) >= 1, first, 600)
    finally:
        first.kill()  # SIGKILL: nothing is said goodbye to
        first.wait()
    done = subprocess.run(
        command, capture_output=True, text=True, env=one_device(), timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "demonstrations 24/24" not in done.stdout  # what is done is not done again
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == json.loads((tmp_path / "summary.json").read_text())
    assert told["updates"] == UPDATES
    assert told["success_after_sft"]["n"] == told["greedy_after_rl"]["n"] == 8
    for name in ("report.md", "curves.png", "episodes.png", "episodes.html"):
        assert (tmp_path / name).stat().st_size > 0
    steps = [record["step"] for record in metrics.read(rl / "metrics.jsonl")]
    assert steps == [*range(1, UPDATES + 1)]
    state, found = last_state(rl, groups=1)
    books.check(state)
    assert books.counts(state)["groups"]["trained"] == UPDATES
    assert events.trained_twice(found) == 0
    assert {"rolled_back", "restarted"} <= {event["kind"] for event in found}
    scored = [
        event["record"]["trajectory"] for event in found if event["kind"] == "scored"
    ]
    assert set(scored) <= set(store.listing(rl / store.FOLDER))
