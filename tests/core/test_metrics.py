"""Metrics survive empty arrays, crashes and runs that go back."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto import event_pb2

from openwebrl_jax.core import metrics


def make_writer(folder, **changes):
    return metrics.Writer(folder, **{"stream": io.StringIO(), **changes})


def board_events(folder):
    """Events of all TensorBoard files, in order: length, its CRC, event, its CRC."""
    events = []
    for file in sorted((folder / "tensorboard" / "metrics").iterdir()):
        data = file.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            events.append(event_pb2.Event.FromString(data[12 : 12 + size]))
            data = data[16 + size :]
    return events


def test_a_step_goes_to_file_board_and_terminal(tmp_path):
    stream, times = io.StringIO(), iter([0.0, 2.0, 4.0])
    writer = metrics.Writer(
        tmp_path,
        stage="rl",
        total=50,
        show=("reward/mean", "not/there"),
        stream=stream,
        clock=lambda: next(times),
    )
    value = np.float32(0.1)
    writer.write(1, {"reward/mean": value, "learner/loss": np.array([1.0, 2.0])})
    writer.write(2, {"reward/mean": 0.25})
    writer.close()
    first, second = metrics.read(tmp_path / "metrics.jsonl")
    assert first == {"step": 1, "reward/mean": float(value), "learner/loss": 1.5}
    assert second["reward/mean"] == 0.25
    assert stream.getvalue().splitlines() == [
        "rl 1/50  reward/mean 0.1  2.0 s/step  2 min left",
        "rl 2/50  reward/mean 0.25  2.0 s/step  2 min left",
    ]
    values = [
        value for event in board_events(tmp_path) for value in event.summary.value
    ]
    assert [(v.tag, v.simple_value) for v in values] == [
        ("reward/mean", value),
        ("learner/loss", 1.5),
        ("reward/mean", 0.25),
    ]


def test_each_line_is_on_disk_at_once_and_plain_json(tmp_path):
    writer = make_writer(tmp_path)
    writer.write(3, {"learner/loss": math.nan, "learner/grad_norm": math.inf})
    line = (tmp_path / "metrics.jsonl").read_text()
    writer.close()

    def refuse(word):
        raise AssertionError(word)

    assert json.loads(line, parse_constant=refuse)["learner/loss"] == "nan"
    (record,) = metrics.read(tmp_path / "metrics.jsonl")
    assert math.isnan(record["learner/loss"])
    assert record["learner/grad_norm"] == math.inf


def test_empty_arrays_are_absent_and_never_raise(tmp_path):
    writer = make_writer(tmp_path)
    empty = {"staleness/mean": np.zeros(0), "algo/ratio": [], "groups/kept": 0}
    assert writer.write(1, empty) == {"groups/kept": 0.0}
    writer.close()
    assert metrics.spread("staleness", []) == {}
    assert metrics.share(0, 0) == 0.0


def test_spread_of_some_values():
    found = metrics.spread("staleness", np.arange(101))
    assert found == {
        "staleness/mean": 50.0,
        "staleness/p95": 95.0,
        "staleness/max": 100.0,
    }


def test_distance_of_two_samples():
    assert metrics.ks((1, 1, 2, 30), (1, 1, 2, 2)) == [0.25]
    assert metrics.ks((1, 2), (2, 1, 1, 2)) == [0.0]
    assert metrics.ks((1,), (2,)) == [1.0]
    assert metrics.ks((), (1,)) == metrics.ks((1,), ()) == []


def test_slope_of_a_metric():
    told = [{"step": n, "host_rss/driver_mb": 300.0 + 0.25 * n} for n in range(5)]
    told.append({"step": 9})
    assert metrics.slope(told, "host_rss/driver_mb") == pytest.approx(0.25)
    assert math.isnan(metrics.slope(told[:1], "host_rss/driver_mb"))


def test_memory_of_this_process():
    before = metrics.memory_mb()
    kept = bytearray(64 * 2**20)
    assert 50 < metrics.memory_mb() - before < 90 and kept


def test_a_torn_last_line_is_left_out_and_written_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "reward/mean": 0.5}\n{"step": 2, "rew')
    assert [record["step"] for record in metrics.read(path)] == [1]
    writer = make_writer(tmp_path)
    writer.write(2, {"reward/mean": 0.75})
    writer.close()
    assert [record["step"] for record in metrics.read(path)] == [1, 2]


def test_a_run_that_went_back_leaves_one_lineage(tmp_path):
    for first, last, value in ((1, 8, 0.0), (5, 6, 1.0)):
        writer = make_writer(tmp_path)
        for step in range(first, last + 1):
            writer.write(step, {"reward/mean": value})
        writer.close()
    records = metrics.read(tmp_path / "metrics.jsonl")
    assert [(r["step"], r["reward/mean"]) for r in records] == [
        *((step, 0.0) for step in range(1, 5)),
        *((step, 1.0) for step in range(5, 7)),
    ]
    starts = [e.step for e in board_events(tmp_path) if e.HasField("session_log")]
    assert starts[-1] == 5


def test_a_stopwatch_tells_each_lap():
    times = iter([1.0, 4.0, 4.5])
    watch = metrics.Stopwatch(lambda: next(times))
    assert (watch.lap(), watch.lap()) == (3.0, 0.5)


def test_no_file_has_no_records(tmp_path):
    assert metrics.read(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("name", ["Reward", "reward mean", "", "reward//mean"])
def test_a_name_of_another_form_is_refused(tmp_path, name):
    writer = make_writer(tmp_path)
    with pytest.raises(ValueError, match="room/thing_unit"):
        writer.write(1, {name: 1.0})
    writer.close()


@given(value=st.floats())
def test_values_come_back_to_the_bit(value):
    back = metrics._from_json(json.loads(json.dumps(metrics._to_json(value))))
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (45, "45 s"), (700, "12 min"), (12_000, "3 h 20 min")],
)
def test_duration(seconds, text):
    assert metrics.duration(seconds) == text
