"""The twin's clock against sums by hand, and the laws that any loop keeps."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.evals import twin

ONE = twin.Sizes(browsers=1, eta=0)
EPISODE = twin.Episode(env_s=3.0, judge_s=1.0, tokens=(10, 10), is_valid=True)
FIT = twin.Fit(
    sizes=ONE,
    group=2,
    groups=1,
    slots=8,
    retries=2,
    kept=1.0,
    episodes=[EPISODE],
    updates=[twin.Update(busy_s=5.0, publish_s=1.0, keep_s=2.0)],
    step_s=0.5,
    row_s=0.25,
    steps=2.0,
    request_s=0.1,
    extra_s=0.2,
    report_s=0.05,
)


def test_one_browser_by_hand():
    """Environment 3, two turns of 0.104 + 2 x 0.75, judge 1, the rest 0.2: 7.408 s."""
    told = twin.simulate(FIT, ONE, seed=0)
    assert told.episode_s == pytest.approx(7.408)
    cycle_s = 2 * (7.408 + 0.05) + 5.0 + 1.0  # the checkpoint is no one's wait
    assert told.updates_per_min == pytest.approx(60 / cycle_s)
    assert told.steps_per_s == pytest.approx(4 / cycle_s)
    assert told.browser_idle == pytest.approx(1 - 2 * 7.408 / cycle_s)
    assert told.sampler_idle == pytest.approx(1 - 4 * 1.5 / cycle_s)
    starved_s = 2 * 7.458 - 2.0
    assert told.learner_idle == pytest.approx(starved_s / (starved_s + 5.0))
    assert told.staleness == 0.0


def test_without_eta_rollout_and_update_follow_each_other():
    """Four rows at once take steps of 0.5 + 4 x 0.25."""
    fit = dataclasses.replace(FIT, groups=2)
    told = twin.simulate(fit, dataclasses.replace(ONE, browsers=4), seed=0)
    rollout_s = 3.0 + 2 * (0.104 + 2 * 1.5) + 1.2 + 0.05
    assert told.updates_per_min == pytest.approx(60 / (rollout_s + 6.0))
    assert told.staleness == 0.0


def test_with_eta_the_slower_side_sets_the_pace():
    rich = twin.Sizes(browsers=8, eta=1)
    told = twin.simulate(FIT, rich, seed=0)  # rollouts are shorter than updates
    assert told.learner_idle < 0.1
    assert 60 / (8.0 + 7.0) < told.updates_per_min <= 60 / 8.0  # some wait for replies
    assert 0.5 < told.staleness <= 1.0
    poor = twin.simulate(FIT, twin.Sizes(browsers=1, eta=1), seed=0)
    assert poor.browser_idle < 0.05
    assert poor.updates_per_min == pytest.approx(60 / (2 * 7.458), rel=0.1)


def test_devices_divide_the_times_of_the_learner():
    sizes = dataclasses.replace(ONE, learner=5)
    cycle_s = 60 / twin.simulate(FIT, sizes, seed=0).updates_per_min
    assert cycle_s == pytest.approx(2 * 7.458 + 1.0 + 1.0)
    told = twin.simulate(FIT, sizes, seed=0, efficiency=0.5)
    assert 60 / told.updates_per_min == pytest.approx(2 * 7.458 + 5 / 3 + 1.0)


@pytest.mark.parametrize(
    ("had", "sampler", "efficiency", "rows"),
    [(1, 2, 1.0, 2), (1, 4, 1.0, 1), (1, 9, 1.0, 1), (2, 2, 1.0, 2), (1, 3, 0.5, 2)],
)
def test_devices_of_the_sampler_are_replicas(had, sampler, efficiency, rows):
    """Four rows at once are so many in each, and never less than one."""
    sizes = dataclasses.replace(ONE, sampler=had)
    fit = dataclasses.replace(FIT, groups=2, replicas=had, sizes=sizes)
    sizes = dataclasses.replace(sizes, browsers=4, sampler=sampler)
    told = twin.simulate(fit, sizes, seed=0, efficiency=efficiency)
    spoken_s = 4 * (0.5 + 0.25 * rows)
    cycle_s = 3.0 + 2 * 0.104 + spoken_s + 1.2 + 0.05 + 6.0
    assert 60 / told.updates_per_min == pytest.approx(cycle_s)
    replicas = had * (1 + efficiency * (sampler / had - 1))
    busy = min(1.0, 4 / replicas) * spoken_s / cycle_s
    assert told.sampler_idle == pytest.approx(1 - busy)


def test_more_requests_than_slots_wait_in_turn():
    fit = dataclasses.replace(FIT, groups=2, slots=1, row_s=0.0)
    told = twin.simulate(fit, dataclasses.replace(ONE, browsers=4), seed=0)
    # Eight replies of a second in a row, then all but the last episode have ended.
    assert told.episode_s > 7.408
    assert 60 / told.updates_per_min >= 8 * 1.0 + 1.0 + 6.0
    sizes = dataclasses.replace(ONE, browsers=4, sampler=4)  # each has a slot
    told = twin.simulate(fit, sizes, seed=0)
    assert told.episode_s == pytest.approx(7.408 - 4 * 0.25)


MIXED = dataclasses.replace(
    FIT,
    group=3,
    groups=2,
    kept=0.6,
    episodes=[
        EPISODE,
        twin.Episode(env_s=9.0, judge_s=0.0, tokens=(40,) * 5, is_valid=True),
        twin.Episode(env_s=1.0, judge_s=0.0, tokens=(), is_valid=False),
    ],
    updates=[
        twin.Update(busy_s=20.0, publish_s=1.0, keep_s=0.0),
        twin.Update(busy_s=30.0, publish_s=1.0, keep_s=9.0),
    ],
)


@hypothesis.settings(max_examples=10)
@hypothesis.given(
    browsers=st.integers(1, 20),
    eta=st.integers(0, 3),
    learner=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_the_laws_hold_at_any_size(browsers, eta, learner, seed):
    """Nothing is lost, admission is bounded, and Little's law: L = rate x time."""
    sizes = twin.Sizes(browsers=browsers, eta=eta, learner=learner)
    told = twin.simulate(MIXED, sizes, seed, updates=25)
    groups, slots = told.counts["groups"], told.counts["slots"]
    inside = sum(groups[name] for name in ("open", "waiting", "taken"))
    gone = groups["trained"] + groups["filtered"] + groups["void"]
    assert groups["opened"] == gone + inside
    assert inside <= (eta + 1) * MIXED.groups
    assert slots["leased"] == slots["scored"] + slots["void"] + slots["running"]
    assert slots["running"] <= browsers
    assert groups["trained"] == MIXED.groups * (25 + 2 * (1 + eta))
    assert 0.0 <= told.staleness <= eta
    little = told.episodes_per_s * told.episode_s
    assert told.in_flight == pytest.approx(little, rel=0.08, abs=0.1)
    for idle in (told.browser_idle, told.sampler_idle, told.learner_idle):
        assert 0.0 <= idle <= 1.0


def test_more_browsers_are_never_slower():
    """In expectation: a twentieth is left to chance."""
    for eta in (0, 1):
        rates = [
            twin.simulate(MIXED, twin.Sizes(browsers=n, eta=eta), 0).steps_per_s
            for n in (1, 2, 4, 8, 16)
        ]
        pairs = zip(rates, rates[1:], strict=False)
        assert all(more > 0.95 * fewer for fewer, more in pairs), rates
        assert rates[2] > 1.5 * rates[0]


def test_one_seed_is_one_prediction():
    sizes = twin.Sizes(browsers=5, eta=1)
    told = [twin.simulate(MIXED, sizes, seed, updates=4) for seed in (3, 3, 4)]
    assert told[0] == told[1] != told[2]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="browsers=0; wanted a number from 1"):
        twin.Sizes(browsers=0, eta=1)
    with pytest.raises(ValueError, match="kept=0.0; wanted"):
        dataclasses.replace(FIT, kept=0.0)


def test_cost_by_hand():
    told = twin.simulate(FIT, ONE, seed=0)
    sizes = twin.Sizes(browsers=1, eta=0, learner=8, sampler=4)
    hours = 90 / told.updates_per_min / 60
    spent = twin.cost(sizes, told, 90, 2.5)
    assert spent["device_hours"] == pytest.approx(12 * hours)
    assert spent["usd"] == pytest.approx(30 * hours)
    assert "usd" not in twin.cost(sizes, told, 90, 0.0)
