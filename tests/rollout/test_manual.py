"""Sessions and replays on scripted pages without a browser."""

import dataclasses

import pytest

from configs import common
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.evals import album, transcript
from openwebrl_jax.rollout import manual
from openwebrl_jax.web import fake

TASK = fake.make_task(3, squares=2, max_turns=9)


@pytest.fixture
def config():
    config = common.get_config()
    config.web.width_px, config.web.height_px = 64, 64
    return config


@pytest.fixture
def drive(config, tmp_path):
    """`await drive("wait 0", "quit")`: the trajectory and what was told."""

    async def run(*lines: str) -> tuple[types.Trajectory, list[str]]:
        told = []
        audience = transcript.Transcript(told.append, album.Album(tmp_path / "drive"))
        return await manual.drive(config, TASK, lines, audience), told

    return run


async def test_a_session_ends_with_its_lines_or_with_the_episode(drive):
    left, told = await drive("wait 0", "", "quit", "wait 0")
    assert (left.cause, len(left.turns)) == (Cause.CANCELLED, 1)
    assert told[-1] == "ended   left"
    done, told = await drive("done  42 EUR", "wait 0")
    assert (done.cause, done.answer, len(done.turns)) == (Cause.DONE, " 42 EUR", 1)
    assert told[-1] == 'ended   done " 42 EUR"'


async def test_a_wrong_line_takes_no_step(drive):
    left, told = await drive("hop", "click", "{", "wait 0")
    assert len(left.turns) == 1
    assert sum(line.startswith("refused ") for line in told) == 3


async def test_a_replay_marks_what_is_not_as_it_was(config, drive, tmp_path):
    played, _ = await drive("wait 0", "click 1 1")
    other = types.Feedback(tool="wait", state="effect", text="the page changed " * 9)
    first = dataclasses.replace(played.turns[0], feedback=(other,))
    changed = dataclasses.replace(played, turns=(first, *played.turns[1:]))
    for trajectory, differ in ((played, 0), (changed, 1)):
        path = manual.save(tmp_path, trajectory)
        told, shown = [], album.Album(tmp_path / f"replay{differ}")
        audience = transcript.Transcript(told.append, shown)
        assert await manual.replay(config, str(path), audience) == differ
        assert (tmp_path / f"replay{differ}" / "0002.png").exists()
        assert sum(line.startswith("  ≠") for line in told) == differ
        assert told[-1] == f"{differ} lines of feedback differ"


def test_what_cannot_be_opened_is_refused():
    with pytest.raises(ValueError, match="miniwob/click-tab/7"):
        manual.task_of("7", "", ())
    with pytest.raises(ValueError, match="app.test:8080"):
        manual.ports(["app.test"])
    assert manual.ports(["app.test:80"]) == {"app.test": 80}
    assert manual.task_of("", "http://app.test/", ["app.test"]).sites == ("app.test",)
