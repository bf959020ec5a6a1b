import pytest

from openwebrl_jax.rewards import outcome
from tests.rewards import stories

RAW = {"kind": "fact", "name": "raw_reward", "equals": 1.0}


def score(check, **fields):
    trajectory = stories.story((check,), **fields)
    return outcome.check(trajectory.task, trajectory)


def test_a_task_without_checks_has_no_score():
    trajectory = stories.story()
    assert outcome.check(trajectory.task, trajectory) is None


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        ({"raw_reward": 1}, 1.0),
        ({"raw_reward": 1.0}, 1.0),
        ({"raw_reward": 0.99}, 0.0),
        ({"raw_reward": -1.0}, 0.0),
        ({"raw_reward": None}, 0.0),  # the page never ended the task
        ({}, 0.0),
    ],
)
def test_facts(facts, value):
    assert score(RAW, facts=facts) == value


def test_a_fact_that_is_missing_equals_nothing():
    assert score({"kind": "fact", "name": "x", "equals": None}) == 0.0


@pytest.mark.parametrize(
    ("pattern", "value"), [("/cart$", 1.0), ("^http://shop.test/$", 0.0)]
)
def test_the_url_is_that_of_the_active_tab(pattern, value):
    assert score({"kind": "url", "matches": pattern}) == value


def test_without_a_page_no_url_matches():
    assert score({"kind": "url", "matches": ""}, final=None) == 0.0


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ({"equals": " it  costs 2 eur\n"}, 1.0),
        ({"equals": "2 EUR"}, 0.0),
        ({"contains": "2 eur"}, 1.0),
        ({"contains": "3 EUR"}, 0.0),
    ],
)
def test_answers_are_compared_without_case_and_space(check, value):
    assert score({"kind": "answer", **check}) == value


def test_all_checks_must_hold():
    checks = (RAW, {"kind": "url", "matches": "/cart$"})
    good = stories.story(checks, facts={"raw_reward": 1.0})
    bad = stories.story(checks, facts={"raw_reward": 0.0})
    assert outcome.check(good.task, good) == 1.0
    assert outcome.check(bad.task, bad) == 0.0


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'shop/1' has a check of kind 'magic'"):
        score({"kind": "magic"})


def test_zero_turns_can_be_checked():
    assert score(RAW, turns=(), final=None) == 0.0
