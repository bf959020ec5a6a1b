"""Which trajectories of a workdir are demonstrations."""

import json
from types import SimpleNamespace

import pytest

from openwebrl_jax.core.types import Reward
from openwebrl_jax.rollout import store
from openwebrl_jax.runtime import demonstrate
from tests.batch import toys


def save(workdir, turns, value, is_valid=True):
    made = toys.make_trajectory([toys.make_turn(t) for t in range(turns)])
    reward = Reward(value=value, parts={}, is_valid=is_valid)
    return store.save(workdir / store.FOLDER, made, reward)


def test_the_list_chooses_and_without_one_successes_are_taken(tmp_path):
    won, lost = save(tmp_path, 1, 1.0), save(tmp_path, 2, 0.0)
    save(tmp_path, 3, 1.0, is_valid=False)
    assert set(demonstrate.load(tmp_path)) == {won}
    (tmp_path / demonstrate.LIST).write_text(json.dumps([lost]))
    assert set(demonstrate.load(tmp_path)) == {lost}


def test_a_list_that_was_made_otherwise_is_refused(tmp_path):
    tasks = SimpleNamespace(names=("click-tab",))
    config = SimpleNamespace(tasks=tasks, seed=0)
    demonstrate.check(tmp_path, config, episodes=5, error_rate=0.5)
    (tmp_path / "asked.json").write_text(
        json.dumps({"episodes": 5, "error": 0.5, "seed": 0, "tasks": ["click-tab"]})
    )
    demonstrate.check(tmp_path, config, episodes=5, error_rate=0.5)
    with pytest.raises(ValueError, match="take another --workdir"):
        demonstrate.check(tmp_path, config, episodes=5, error_rate=0.0)
    with pytest.raises(ValueError, match="error=1.5"):
        demonstrate.check(tmp_path, config, episodes=5, error_rate=1.5)
