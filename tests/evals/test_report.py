"""The report says what the summary says, whatever there is of it."""

import json

import numpy as np

from openwebrl_jax.evals import curves, report
from openwebrl_jax.rollout import score

SUMMARY = {
    "success_after_sft": {"rate": 0.41, "low": 0.362, "high": 0.459, "n": 400},
    "success_after_rl": {"rate": 0.66, "low": 0.612, "high": 0.705, "n": 400},
    "greedy_after_sft": {"rate": 0.5, "low": 0.451, "high": 0.549, "n": 400},
    "greedy_after_rl": {"rate": 0.7, "low": 0.653, "high": 0.743, "n": 400},
    "gain": {"value": 0.25, "low": 0.19, "high": 0.31},
    "minutes": 19.51234,
    "episodes": np.int64(12480),
    "mixed_groups": np.array([0.7, 0.6]),
    "causes": {"page_done": 12_000, "max_turns": 480},
}


def make_records(count=20):
    return [
        {
            "step": step,
            "rollout/success": step / 40,
            "rollout/episodes": 64,
            "rollout/void_frac": 0.25,
            "rollout/reward": step / 40,
            "learner/entropy": float("nan") if step == 3 else 1 / step,
        }
        for step in range(1, count + 1)
    ]


def test_the_three_files(tmp_path):
    report.write_report(tmp_path / "run", SUMMARY, make_records(), title="Demo")
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["success_after_rl"] == SUMMARY["success_after_rl"]
    assert written["episodes"] == 12480 and written["mixed_groups"] == [0.7, 0.6]
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "run" / "report.md").read_text()
    assert text.startswith("# Demo\n")
    assert "| success after rl | **0.660** | 0.612 to 0.705 | 400 |" in text
    assert "**Gain: +0.250** (95 % interval 0.190 to 0.310" in text
    assert "| minutes | 19.51 |" in text
    assert "| max turns | 480 |" in text


def test_a_run_that_made_no_update_has_a_report(tmp_path):
    report.write_report(tmp_path, {"minutes": 0.1}, [])
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_number_that_there_is_not_is_null(tmp_path):
    nothing = score.success([None] * 3)
    told = {"success_after_rl": nothing, "gain": score.paired_gain([None], [True])}
    report.write_report(tmp_path, told, make_records())
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["success_after_rl"]["rate"] is None
    assert written["gain"]["value"] is None
    assert "| **not measured** | 0.000 to 1.000 | 0 |" in report.markdown(told, "")


def test_episodes_are_shown_beside_the_numbers(tmp_path, episodes):
    report.write_report(tmp_path, SUMMARY, [], episodes=episodes)
    assert "episodes.png" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "episodes.png").exists() and (
        tmp_path / "episodes.html"
    ).exists()


def test_a_series_leaves_out_what_was_not_recorded_or_not_finite():
    updates, values = curves.series(make_records(4), curves.ENTROPY)
    assert updates.tolist() == [1, 2, 4] and values.tolist() == [1, 0.5, 0.25]
    assert curves.series([], curves.REWARD)[0].shape == (0,)


def test_a_gap_between_judge_and_checker_has_its_own_panel(tmp_path):
    """Drawn where it was recorded, as are the parts of the reward."""
    records = make_records()
    curves.draw(tmp_path / "none.png", SUMMARY, records)
    for record in records:
        gap = record["step"] / 50
        record |= {"reward/judge": 0.2 + gap, "reward/checker": 0.2}
        record |= {"judge/gap": gap, "judge/second_gap": gap / 2}
    figure = curves.figure(SUMMARY, records)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[1:] == [
        "mean reward, and its parts",
        "share of groups with unequal rewards",
        "token entropy, nats",
        "success by the judge, less the checkers'",
    ]
    labels = figure.axes[1].get_legend_handles_labels()[1]
    assert labels == ["checker", "judge"]
    drawn = [line.get_ydata()[-1] for line in figure.axes[4].lines]
    assert max(drawn) == 0.4
    assert len(curves.figure(SUMMARY, make_records()).axes) == 4


def test_smooth_is_the_mean_of_the_last_values():
    smoothed = curves.smooth(np.array([1.0, 3.0, 5.0, 7.0]), 2)
    assert smoothed.tolist() == [1, 2, 4, 6]
    assert curves.smooth(np.zeros(0), 3).size == 0
