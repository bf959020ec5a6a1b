"""After an actor's death a stage goes on; after other errors it ends."""

import pytest
import ray.exceptions

from configs import grpo_short
from openwebrl_jax.rollout import ledger
from openwebrl_jax.runtime import cluster, crew, train

DEATH = ray.exceptions.ActorDiedError()


class Crew:
    def __init__(self):
        self.deaths = crew.Deaths()
        self.disbanded = 0

    def disband(self):
        self.disbanded += 1


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """(ends) -> what the RL stage returns if its lives end so, one after the other."""
    made, killed = [], []
    monkeypatch.setattr(cluster, "actor", lambda kind, *_: made.append(kind) or kind)
    monkeypatch.setattr(cluster, "kill", lambda *actors: killed.extend(actors))
    config = grpo_short.get_config("tiny")
    config.tasks.suite = "fake"

    def run(ends, some_crew):
        lives = iter(ends)

        def live(*_):
            end = next(lives)
            if isinstance(end, BaseException):
                raise end
            return end

        monkeypatch.setattr(train, "_grpo", live)
        try:
            return train.grpo(config, str(tmp_path), "origin", some_crew)
        finally:
            assert made == killed  # whatever happens, nothing is left

    return run


def passed_on(error):
    """As a driver gets it of a learner that got it of the ledger."""
    inner = ray.exceptions.RayTaskError("take", "trace", error)
    return ray.exceptions.RayTaskError("grpo", "trace", inner)


def test_all_actors_begin_again_after_a_death(stage, capsys):
    some = Crew()
    assert stage([DEATH, passed_on(DEATH), "export"], some) == "export"
    assert some.disbanded == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and "go on from the newest checkpoint" in told[0]


def test_deaths_without_progress_are_a_typed_stop(stage, capsys):
    with pytest.raises(ledger.StallError, match="give the same command again"):
        stage([DEATH] * 11, Crew())
    assert len(capsys.readouterr().err.splitlines()) == 10


def test_what_is_no_death_goes_on_its_way(stage):
    stop = passed_on(ledger.StarvationError({"zero_variance": 8}, {}))
    with pytest.raises(ray.exceptions.RayTaskError):
        stage([stop], Crew())
    some = Crew()
    with pytest.raises(FloatingPointError):
        stage([FloatingPointError("loss")], some)
    assert not some.disbanded


def test_progress_makes_deaths_forgotten(capsys):
    deaths = crew.Deaths()
    for _ in range(3):
        for _ in range(10):
            deaths.mourn("x")
        deaths.forget()
    capsys.readouterr()
