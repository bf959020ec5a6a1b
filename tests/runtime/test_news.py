"""The shares of what became of episodes sum to 1."""

import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest
import ray.exceptions

from configs import grpo_short
from openwebrl_jax.core import metrics
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.runtime import crew, news
from tests.rollout import ledger_moves as moves


def test_useful_and_waste_sum_to_one():
    new = Counter({"use/useful": 5, "use/unused": 3, "kept": 2, "filtered": 1})
    new |= Counter({f"void/{cause}": 1 for cause in Cause if not cause.is_scored})
    told = metrics.scalars(news._of_use(new, seconds=2.0))
    waste = {name: share for name, share in told.items() if name.startswith("waste/")}
    names = ("filtered", "stale", "infra", "judge", "cancelled")
    assert set(waste) == {f"waste/{name}" for name in names}
    assert told["useful_frac"] + sum(waste.values()) == pytest.approx(1.0)
    assert told["effective_episodes_per_s"] == 2.5
    assert told["rollout/mixed"] == pytest.approx(2 / 3)
    assert waste["waste/judge"] == waste["waste/cancelled"] > 0.0


def test_nothing_that_happened_is_no_share_and_no_error():
    """R01: metrics of nothing are finite or absent."""
    told = metrics.scalars(news._of_use(Counter(), 0.0) | news._of_results([], 0.0))
    assert set(told) == {
        "effective_episodes_per_s",
        "env_steps_per_s",
        "episodes_per_s",
        "rollout/episodes",
        "rollout/void_frac",
    }
    assert not any(told.values())


def test_what_is_passed_over_and_kept_out_are_shares_of_the_tasks_drawn():
    new = Counter({"opened": 5, "passed_over": 3, "blocked": 2})
    told = metrics.scalars(
        news._of_draws(Counter({f"tasks/{name}": n for name, n in new.items()}))
    )
    assert told == {"tasks/passed_over_frac": 3 / 8, "tasks/blocked_frac": 2 / 8}
    assert metrics.scalars(news._of_draws(Counter())) == {}


def test_an_unread_verdict_is_the_judges():
    slots = [
        moves.result(0, 1.0),
        moves.result(1, None, Cause.DONE, Cause.JUDGE_UNPARSEABLE),
        moves.result(2, None, Cause.DNS),
    ]
    told = metrics.scalars(news._of_results(slots, 1.0))
    assert told["rollout/success"] == 1.0
    assert told["rollout/void_frac"] == pytest.approx(2 / 3)
    assert told["cause/judge_unparseable"] == told["cause/dns"] == 1


def billed(slot, usd):
    reward = dataclasses.replace(slot.reward, spent={"usd": usd})
    return dataclasses.replace(slot, reward=reward)


def test_a_success_costs_its_share_of_machines_and_judge():
    """Half an hour at 4 USD and two bills of 0.25, for two successes."""
    won = [billed(moves.result(0, 1.0), 0.25), moves.result(1, 1.0)]
    lost = [moves.result(2, 0.0), billed(moves.result(3, None, Cause.DNS), 0.25)]
    assert news._of_cost(won + lost, 1800.0, 4.0) == {"usd_per_success": 1.25}
    assert news._of_cost(won + lost, 1800.0, 0.0) == {}  # no price, no number
    assert news._of_cost(lost, 1800.0, 4.0) == {}  # no success


class Crew:
    """Serving that answers, or hangs, as it was told to."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def serving_stats(self):
        return self.answers.pop(0)


def told_by(*answers):
    """What each reading but the first says of serving."""
    queue = SimpleNamespace(before=SimpleNamespace(remote=lambda: "counts"))
    config = grpo_short.get_config("tiny")
    with pytest.MonkeyPatch.context() as patch:
        groups = dict.fromkeys(("trained", "waiting", "taken", "filtered"), 0)
        groups["opened"] = 0
        other = dict.fromkeys(("passed_over", "blocked"), 0)
        counts = {"groups": groups, "other": other, "void": {}, "use": {}}
        patch.setattr(news.cluster.ray, "get", lambda _: counts)
        one = news.News(config, queue, Crew(*answers))
    return [one._of_serving(10.0) for _ in answers[1:]]


def stats(busy_s, compilations):
    told = dict.fromkeys((*news._STEPS, "reply_tokens"), 1.0)
    return told | {"busy_s": busy_s, "compilations": compilations, "replicas": 1.0}


def test_serving_that_hangs_says_nothing_and_goes_on_where_it_was():
    first, hung, later = told_by(stats(0.0, 7.0), stats(4.0, 7.0), {}, stats(5.0, 9.0))
    assert first["sampler/idle_frac"] == pytest.approx(0.6)
    assert (first["recompiles"], hung, later["recompiles"]) == (0.0, {}, 2.0)
    (late,) = told_by({}, stats(5.0, 9.0))
    assert late["recompiles"] == 0.0


def test_serving_is_not_waited_for_without_end(monkeypatch):
    def get(_, timeout=None):
        assert timeout is not None, "it would wait for ever"
        raise ray.exceptions.GetTimeoutError

    monkeypatch.setattr(crew.ray, "get", get)
    one = object.__new__(crew.Crew)
    stats = SimpleNamespace(remote=lambda: None)
    one.serving = SimpleNamespace(stats=stats)
    assert one.serving_stats() == {}
