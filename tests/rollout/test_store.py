"""A trajectory on disk is the trajectory, whole or not there."""

import dataclasses
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import store

TEXT = st.text(st.characters(), max_size=12)  # lone surrogates too: pages have them
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(tuple)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
PNG = st.sampled_from([b"\x89PNG one", b"\x89PNG two", b""])
TASKS = st.builds(
    types.Task,
    id=TEXT,
    intent=TEXT,
    start_url=TEXT,
    max_turns=st.integers(0, 30),
    checks=st.lists(OBJECT, max_size=2).map(tuple),
    is_resettable=st.booleans(),
    sites=st.lists(TEXT, max_size=2).map(tuple),
    split=st.sampled_from(["train", "heldout", ""]),
    oracle=OBJECT,
)
OBSERVATIONS = st.builds(
    types.Observation,
    screenshot=PNG,
    width_px=st.integers(1, 2000),
    height_px=st.integers(1, 2000),
    tabs=st.lists(st.builds(types.Tab, url=TEXT, title=TEXT), max_size=2).map(tuple),
    active_tab=st.integers(0, 1),
    is_stale=st.booleans(),
)
SEGMENTS = st.builds(
    types.Segment,
    role=st.sampled_from(["system", "user", "assistant"]),
    text=TEXT,
    image=st.none() | TEXT,
    remembered_text=TEXT,
    ids=IDS,
)
TURNS = st.builds(
    types.Turn,
    observation=OBSERVATIONS,
    segments=st.lists(SEGMENTS, max_size=2).map(tuple),
    reply_text=TEXT,
    thought=TEXT,
    calls=st.lists(st.builds(types.ToolCall, name=TEXT, arguments=OBJECT)).map(tuple),
    feedback=st.lists(
        st.builds(
            types.Feedback,
            tool=TEXT,
            state=st.sampled_from(["effect", "no_effect", "failed"]),
            text=TEXT,
        ),
        max_size=2,
    ).map(tuple),
    parse_error=TEXT,
    seen_ids=IDS,
    remembered_ids=IDS,
    response_ids=IDS,
    closing_ids=IDS,
    logprobs=st.lists(NUMBERS, max_size=6).map(tuple),
    version=st.integers(-1, 99),
)
TRAJECTORIES = st.builds(
    types.Trajectory,
    task=TASKS,
    system_segment=SEGMENTS,
    system_ids=IDS,
    turns=st.lists(TURNS, max_size=3).map(tuple),
    final=st.none() | OBSERVATIONS,
    answer=TEXT,
    facts=OBJECT,
    cause=st.sampled_from(list(Cause)),
    detail=TEXT,
    waits=st.builds(types.Waits, env_s=NUMBERS, sampler_s=NUMBERS),
    rule=st.none()
    | st.builds(types.SamplingRule, temperature=NUMBERS, forbidden_ids=IDS),
)
REWARDS = st.builds(
    types.Reward,
    value=NUMBERS,
    parts=st.dictionaries(TEXT, NUMBERS, max_size=2),
    is_valid=st.booleans(),
    cause=st.none() | st.sampled_from(list(Cause)),
)


def observation(png: bytes) -> types.Observation:
    return types.Observation(
        screenshot=png, width_px=2, height_px=2, tabs=(), active_tab=0
    )


def trajectory(turns: int = 2) -> types.Trajectory:
    system = types.Segment(role="system", text="Do the task.")
    turn = types.Turn(
        observation=observation(b"\x89PNG same"),
        segments=(types.Segment(role="user", text="click", image="00"),),
        reply_text="hm</think>",
        thought="hm",
        calls=(types.ToolCall(name="click", arguments={"point_2d": [1, 2]}),),
        seen_ids=(1, 2),
        response_ids=(3, 4, 5),
        logprobs=(-0.1, -0.2, -1e-17),
        version=3,
    )
    return types.Trajectory(
        task=types.Task(id="t/1", intent="", start_url="http://x/", max_turns=2),
        system_segment=system,
        system_ids=(9,),
        turns=(turn,) * turns,
        final=observation(b"\x89PNG last"),
        answer="",
        facts={"raw_reward": 1.0},
        cause=Cause.PAGE_DONE,
    )


REWARD = types.Reward(value=1.0, parts={"outcome": 1.0}, is_valid=True)


@hypothesis.given(TRAJECTORIES, REWARDS)
def test_what_is_saved_comes_back_exactly(tmp_path_factory, played, reward):
    folder = tmp_path_factory.mktemp("store", numbered=True)
    name = store.save(folder, played, reward)
    assert store.load(folder, name) == (played, reward)
    assert store.save(folder, *store.load(folder, name)) == name


def test_a_file_is_named_by_its_content_and_holds_each_screenshot_once(tmp_path):
    name = store.save(tmp_path, trajectory(), REWARD)
    assert store.save(tmp_path, trajectory(), REWARD) == name
    other = store.save(tmp_path, trajectory(turns=1), REWARD)
    assert store.listing(tmp_path) == sorted([name, other])
    with zipfile.ZipFile(tmp_path / f"{name}.zip") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        told = json.loads(archive.read("trajectory.json"))
    assert sorted(it.rpartition(".")[2] for it in names) == [
        "json",
        "npz",
        "png",
        "png",
    ]
    assert told["trajectory"]["turns"][0]["reply_text"] == "hm</think>"
    assert f"{told['trajectory']['final']['screenshot']}.png" in names


def test_an_episode_without_turns_is_stored_like_any_other(tmp_path):
    # R51.
    empty = dataclasses.replace(
        trajectory(turns=0), final=None, cause=Cause.BROWSER_CRASH
    )
    void = types.Reward(value=0.0, parts={}, is_valid=False)
    name = store.save(tmp_path, empty, void)
    assert store.load(tmp_path, name) == (empty, void)


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_truncated_file_is_a_clear_error(tmp_path, kept):
    name = store.save(tmp_path, trajectory(), REWARD)
    path = tmp_path / f"{name}.zip"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=f"{name}.zip is damaged"):
        store.load(tmp_path, name)


def test_nothing_of_a_failed_write_stays(tmp_path, monkeypatch):
    def full(handle):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        store.save(tmp_path, trajectory(), REWARD)
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_is_never_read(tmp_path):
    name = store.save(tmp_path, trajectory(), REWARD)
    poison = io.BytesIO()
    np.savez(poison, seen_ids=np.array([print], object))
    with zipfile.ZipFile(tmp_path / f"{name}.zip") as archive:
        told = archive.read("trajectory.json")
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr("trajectory.json", told)
        archive.writestr("ids.npz", poison.getvalue())
    name = hashlib.sha256(forged.getvalue()).hexdigest()
    (tmp_path / f"{name}.zip").write_bytes(forged.getvalue())
    with pytest.raises(ValueError, match="allow_pickle"):
        store.load(tmp_path, name)


def test_a_file_that_was_named_outlives_a_kill(tmp_path):
    # The parent reads what the child had named before it was killed at once.
    script = (
        "import os, signal, sys\n"
        "sys.path[:0] = [os.getcwd(), 'tests/rollout']\n"
        "import test_store as t\n"
        "name = t.store.save(sys.argv[1], t.trajectory(), t.REWARD)\n"
        "print(name, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True
    )
    name = child.stdout.strip()
    assert store.load(tmp_path, name) == (trajectory(), REWARD), child.stderr
