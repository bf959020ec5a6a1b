"""Rates, intervals and pass@k against numbers known by other ways."""

import dataclasses
import itertools
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import score
from tests.rewards import stories

OUTCOMES = st.lists(st.sampled_from([True, False, None]), max_size=30)


def test_wilson_against_known_values():
    assert score.wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert score.wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert score.wilson(200, 400) == pytest.approx((0.4513, 0.5487), abs=1e-4)
    assert score.wilson(0, 0) == (0.0, 1.0)


@hypothesis.given(OUTCOMES)
def test_voids_leave_the_rate_and_are_told(outcomes):
    valid = [outcome for outcome in outcomes if outcome is not None]
    told = score.success(outcomes)
    alone = score.success(valid)
    assert told["n"] == len(valid) and told["void"] == len(outcomes) - len(valid)
    assert (told["low"], told["high"]) == (alone["low"], alone["high"])
    if valid:
        assert told["rate"] == alone["rate"]
        assert 0.0 <= told["low"] <= told["rate"] <= told["high"] <= 1.0
    else:
        assert told["rate"] is None


def test_summary_counts_endings_by_cause():
    def reward(value, is_valid=True, cause=None):
        return types.Reward(value=value, parts={}, is_valid=is_valid, cause=cause)

    told = score.summarize(
        [
            (reward(1.0), Cause.PAGE_DONE),
            (reward(-1.0), Cause.FORMAT_ERROR),
            (reward(0.0, is_valid=False), Cause.DNS),
            (reward(0.0, False, Cause.JUDGE_UNPARSEABLE), Cause.DONE),
        ]
    )
    assert (told["rate"], told["n"], told["void"]) == (0.5, 2, 2)
    assert told["causes"] == {
        "page_done": 1,
        "format_error": 1,
        "dns": 1,
        "judge_unparseable": 1,
    }


def test_paired_gain_against_a_plain_bootstrap():
    rng = np.random.default_rng(1)
    before = (rng.random(400) < 0.4).tolist()
    late = rng.random(400) < 0.3
    after = (np.array(before) | late).tolist()
    told = score.paired_gain(before, after)
    differences = np.array(after, float) - np.array(before, float)
    draws = rng.choice(differences, (4000, 400)).mean(1)
    assert told["value"] == pytest.approx(differences.mean())
    low, high = np.percentile(draws, (2.5, 97.5))
    assert (told["low"], told["high"]) == pytest.approx((low, high), abs=0.01)
    assert told == score.paired_gain(before, after)


def test_pairing_is_tighter_than_two_rates_and_voids_leave_both_sides():
    before = [True, False] * 100
    told = score.paired_gain(before, before)
    assert (told["value"], told["low"], told["high"]) == (0.0, 0.0, 0.0)
    told = score.paired_gain([True, None, False, False], [True, True, None, True])
    assert (told["value"], told["n"]) == (0.5, 2)
    assert score.paired_gain([None], [True])["value"] is None
    with pytest.raises(ValueError, match="same tasks"):
        score.paired_gain([True], [])


@hypothesis.given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_mean_over_all_choices(outcomes, k):
    told = score.pass_at_k({"task": [*outcomes, None]}, k)
    if k > len(outcomes):
        assert math.isnan(told)
        return
    choices = [any(chosen) for chosen in itertools.combinations(outcomes, k)]
    assert told == pytest.approx(sum(choices) / len(choices))


def test_pass_at_k_means_over_tasks():
    told = score.pass_at_k({"a": [True, False], "b": [False, False], "c": [True]}, 2)
    assert told == 0.5


def test_departures_from_the_format_are_counted_by_turn():
    strict = {"parse_error": "no", "leniencies": ("trailing_comma", "list")}
    mended = {"leniencies": ("trailing_comma",)}
    turns = [
        dataclasses.replace(stories.turn(1), **found) for found in (strict, mended, {})
    ]
    told = score.format_counts(stories.story(turns=tuple(turns)))
    assert told == {"malformed": 1, "trailing_comma": 2, "list": 1}
