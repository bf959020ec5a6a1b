import asyncio
import dataclasses

import pytest

from openwebrl_jax.rewards import outcome
from tests.rewards import stories

RAW = {"kind": "fact", "name": "raw_reward", "equals": 1.0}


def check(trajectory):
    return asyncio.run(outcome.check(trajectory.task, trajectory))


def score(check_, **fields):
    return check(stories.story((check_,), **fields))


def test_a_task_without_checks_has_no_score():
    assert check(stories.story()) is None


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
    assert check(good) == 1.0
    assert check(bad) == 0.0


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'shop/1' has a check of kind 'magic'"):
        score({"kind": "magic"})


def test_zero_turns_can_be_checked():
    assert score(RAW, turns=(), final=None) == 0.0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "of kind None"),
        ("fact", "of kind None"),
        ({"kind": "magic"}, "of kind 'magic'"),
        ({"kind": "url", "matches": "("}, "regular expression"),
        ({"kind": "url", "matches": 5}, "regular expression"),
        ({"kind": "fact", "name": 5, "equals": 1}, "name"),
        ({"kind": "fact", "name": "x"}, "equals"),
        ({"kind": "answer"}, "equals or contains"),
        ({"kind": "answer", "equals": 42}, "a text"),
        ({"kind": "answer", "equals": "a", "contains": "b"}, "equals or contains"),
        ({"kind": "webarena", "eval": {}}, "eval_types"),
        ({"kind": "webarena", "eval": {"eval_types": ["vqa"]}}, "'vqa'"),
        ({"kind": "webarena", "mode": "strict"}, "mode='strict'"),
        ({"kind": "webarena", "mode": "verified", "task_id": "4"}, "task_id='4'"),
    ],
)
def test_wrong_checks_are_told(wrong, told):
    assert told in "".join(outcome.faults(wrong, stories.story().task))


@pytest.mark.parametrize(
    "right",
    [
        RAW,
        {"kind": "url", "matches": "/cart$"},
        {"kind": "answer", "contains": "x"},
        {"kind": "webarena", "mode": "verified", "task_id": 44},
        {
            "kind": "webarena",
            "eval": {
                "eval_types": ["string_match", "url_match"],
                "reference_answers": {"fuzzy_match": "N/A"},
                "string_note": "there is none",
                "reference_url": "",
            },
        },
    ],
)
def test_right_checks_are_not(right):
    assert list(outcome.faults(right, stories.story().task)) == []


def test_pages_that_nothing_would_read_are_told():
    target = {"required_contents": {"must_include": ["x"]}, "locator": ""}
    target["url"] = "func:order_url()"
    rules = {"eval_types": ["program_html"], "program_html": [target]}
    check_ = {"kind": "webarena", "eval": rules}
    task = stories.story().task
    assert "end_script" in "".join(outcome.faults(check_, task))
    task = dataclasses.replace(task, end_script="() => ({})")
    assert list(outcome.faults(check_, task)) == []
