import json
import subprocess
import sys


def command(workdir):
    return subprocess.run(
        [sys.executable, "-m", "launch.curves", f"--workdir={workdir}"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_any_run_has_its_picture_and_what_is_none_is_told(tmp_path):
    refused = command(tmp_path)
    assert refused.returncode == 2 and "no metrics.jsonl" in refused.stderr
    record = {
        "step": 1,
        "rollout/success": 0.5,
        "rollout/episodes": 9,
        "judge/gap": 0.1,
    }
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    done = command(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curves.png").stat().st_size > 10_000
