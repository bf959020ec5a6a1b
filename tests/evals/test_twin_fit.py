"""Made-up metrics and episodes; what the twin learns from them, by hand."""

import dataclasses
import json
import subprocess
import sys

import pytest

from configs import grpo_short
from openwebrl_jax.core import checks, types
from openwebrl_jax.evals import twin, twin_fit
from openwebrl_jax.rollout import store

STEP_S, ROW_S = 0.2, 0.03
WIDTHS = (1, 2, 2, 3)  # rows in the steps of an iteration


def sampler_sums(scale):
    times = [STEP_S + ROW_S * rows for rows in WIDTHS]
    return {
        "sampler/steps": 4 * scale,
        "sampler/row_steps": sum(WIDTHS) * scale,
        "sampler/row_steps_sq": sum(rows**2 for rows in WIDTHS) * scale,
        "sampler/busy_s": sum(times) * scale,
        "sampler/row_s": scale
        * sum(rows * s for rows, s in zip(WIDTHS, times, strict=True)),
        "sampler/replies": 2 * scale,
    }


def record(step):
    """Of a cycle of 10 s: 4 s of waiting, 5 s of learning, 1 s of publishing."""
    return {
        "step": step,
        "learner/wait_batch_s": 4.0,
        "learner/busy_s": 5.0,
        "learner/publish_s": 0.75,
        "learner/devices": 8,
        "bubble_s": 1.0,
        "staleness/mean": 0.5,
        "rollout/episodes": 6,
        "rollout/mixed": 0.5,
        "episodes_per_s": 0.6,
        "env_steps_per_s": 1.2,
        "browser/busy_frac": 0.8,
        "browser/lease_wait_s": 2.0,
        "browser/report_s": 0.01,
        "sampler/idle_frac": 0.4,
        **sampler_sums(step),
    }


@pytest.fixture
def workdir(tmp_path, episodes):
    config = grpo_short.get_config("tiny")
    config.algo.iterations = 12
    config.algo.groups = config.algo.group = 2
    config.rollout.workers, config.rollout.contexts = 2, 3
    checks.keep_config(tmp_path, config)
    write(tmp_path, [record(step) for step in range(1, 13)])
    waits = types.Waits(env_s=3.0, sampler_s=1.6, sampler_queue_s=0.2, judge_s=0.5)
    early, late = episodes[0], episodes[1]  # not of the steady part
    played = [(each, 5) for each in episodes] + [(early, 1), (late, 10)]
    for (trajectory, reward), version in played:
        turns = tuple(
            dataclasses.replace(
                turn, response_ids=(5,) * 8, logprobs=(-1.0,) * 8, version=version
            )
            for turn in trajectory.turns
        )
        trajectory = dataclasses.replace(trajectory, turns=turns, waits=waits)
        store.save(tmp_path / store.FOLDER, trajectory, reward)
    return tmp_path


def write(workdir, records):
    lines = "".join(json.dumps(each) + "\n" for each in records)
    (workdir / "metrics.jsonl").write_text(lines)


def test_a_run_is_fitted_by_hand(workdir):
    told = twin_fit.read(workdir)
    fit = told.fit
    assert fit.sizes == twin.Sizes(browsers=6, eta=1, learner=8, sampler=1, judge=0)
    assert told.updates == 8  # of 12, two at either end are not steady
    assert told.measured == twin.Figures(
        steps_per_s=pytest.approx(1.2),
        updates_per_min=pytest.approx(6.0),
        browser_idle=pytest.approx(0.2),
        sampler_idle=pytest.approx(0.4),
        learner_idle=pytest.approx(4 / 9),
        staleness=0.5,
    )
    assert told.is_row_known
    assert (fit.step_s, fit.row_s) == (pytest.approx(STEP_S), pytest.approx(ROW_S))
    assert fit.steps == pytest.approx(4.0)  # 8 rows in 4 steps, 2 replies
    assert fit.kept == pytest.approx(0.5)
    # 8 s with a lease, of which 3 + 1.6 + 0.2 + 0.5 are known.
    assert fit.extra_s == pytest.approx(2.7)
    assert fit.report_s == pytest.approx(0.02)
    assert sorted(len(episode.tokens) for episode in fit.episodes) == [0, 1, 2, 6]
    assert sum(episode.is_valid for episode in fit.episodes) == 3
    # With two rows inside and 0.6 of the time busy, two thirds of four steps to go.
    drain_s = 0.6 * 4 * (STEP_S + 2 * ROW_S) * 2 / 3
    for update in fit.updates:
        assert update.publish_s == pytest.approx(0.75 - drain_s)
        assert (update.busy_s, update.keep_s) == (5.0, 0.25)


def test_a_run_with_replicas_is_fitted_by_one_of_them(workdir):
    """Sums over all: their steps are as long, and as many replies leave them."""
    kept = json.loads((workdir / "config.json").read_text())
    alone = twin_fit.read(workdir).fit
    kept["config"] |= {"cluster.serving_replicas": 3, "cluster.serving_devices": 2}
    (workdir / "config.json").write_text(json.dumps(kept))
    fit = twin_fit.read(workdir).fit
    assert (fit.sizes.sampler, fit.replicas) == (6, 3)
    drain_s = 0.6 * 4 * (STEP_S + 2 * ROW_S) * 6 / 7
    assert fit.updates[0].publish_s == pytest.approx(0.75 - drain_s)
    updates, sizes = alone.updates, alone.sizes
    assert dataclasses.replace(fit, replicas=1, updates=updates, sizes=sizes) == alone
    del kept["config"]["cluster.serving_replicas"]  # as an older run wrote it
    (workdir / "config.json").write_text(json.dumps(kept))
    assert twin_fit.read(workdir).fit.replicas == 1


def test_an_older_run_tells_no_price_of_a_row(workdir):
    old = ("sampler/steps", "learner/publish_s", "browser/report_s", "learner/devices")
    records = [
        {k: v for k, v in record(step).items() if k not in old} for step in range(1, 13)
    ]
    write(workdir, records)
    told = twin_fit.read(workdir)
    assert not told.is_row_known
    assert told.fit.row_s == 0.0 < told.fit.step_s
    assert told.fit.report_s == 2.0
    assert told.fit.sizes.learner == 1


def test_equal_widths_tell_no_price_of_a_row(workdir):
    sums = {"sampler/row_steps": 8, "sampler/row_steps_sq": 16, "sampler/row_s": 2.0}
    sums |= {"sampler/steps": 4, "sampler/busy_s": 1.0}
    write(workdir, [record(step) | sums for step in range(1, 13)])
    told = twin_fit.read(workdir)
    assert not told.is_row_known
    assert (told.fit.step_s, told.fit.row_s) == (0.25, 0.0)


def test_what_cannot_be_fitted_is_refused(workdir):
    write(workdir, [record(step) for step in range(1, 6)])
    with pytest.raises(ValueError, match="3 iterations after the first 2.*wanted 4"):
        twin_fit.read(workdir)
    kept = json.loads((workdir / "config.json").read_text())
    kept["config"]["stage"] = "sft"
    (workdir / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="stage 'sft'; wanted grpo"):
        twin_fit.read(workdir)


def command(workdir, *flags):
    line = [sys.executable, "-m", "launch.simulate", f"--workdir={workdir}", *flags]
    return subprocess.run(line, capture_output=True, text=True)


def test_the_command_prints_a_table_and_json(workdir):
    done = command(workdir, "--browsers=48", "--eta=0", "--usd_per_device_hour=2")
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    told = json.loads(last)
    assert told["measured"]["updates_per_min"] == pytest.approx(6.0)
    assert told["twin"]["browsers"] == 6 and told["twin"]["eta"] == 1
    assert told["asked"]["browsers"] == 48 and told["asked"]["staleness"] == 0.0
    assert told["asked"]["usd"] == pytest.approx(2 * told["asked"]["device_hours"])
    (row,) = [line.split() for line in table if line.startswith("learner_idle")]
    assert row[1:] == [
        f"{told[name]['learner_idle']:.4g}" for name in ("measured", "twin", "asked")
    ]


def test_the_command_refuses_a_judge_that_was_not_there(workdir):
    done = command(workdir, "--judge=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "had 0 devices" in done.stderr
