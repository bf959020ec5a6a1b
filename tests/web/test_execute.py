"""Arguments of calls become sound plans or refusals, never anything else."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import execute, keys, plans

NAMES = "click write press_keys scroll wait done goto_url go_back new_tab".split()
NAMES += "switch_tab close_tab fly".split()
ARGUMENTS = "point_2d clicks button message keys is_hotkey presses direction amount"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def place(config):
    return plans.Place(config=config, sites=(), hosts=())


@pytest.mark.parametrize(
    "point_2d, pixel",
    [
        ([0, 0], (0, 0)),
        ([500, 500], (80, 112)),
        ([1000, 1000], (159, 223)),
        ([-5, 1e9], (0, 223)),
        ((250.5, 1), (40.08, 0.224)),
    ],
)
def test_pixels(point_2d, pixel):
    before = copy.deepcopy(point_2d)
    assert plans.to_pixels(point_2d, 160, 224) == pytest.approx(pixel)
    assert point_2d == before


@pytest.mark.parametrize(
    "point_2d",
    [None, [], [1], [1, 2, 3], "1,2", ["1", "2"], {"x": 1, "y": 2}, [[1, 2]]]
    + [[math.nan, 1], [1, math.inf], [True, 1], [10**400, 1]],
)
def test_points_that_are_none(point_2d):
    with pytest.raises(plans.Refusal, match="two numbers"):
        plans.to_pixels(point_2d, 160, 224)


@given(
    st.sampled_from(NAMES),
    st.dictionaries(
        st.sampled_from(
            [*ARGUMENTS.split(), "seconds", "response", "url", "tab_index"]
        ),
        json_values,
    ),
)
def test_any_arguments_are_planned_or_refused(place, name, arguments):
    try:
        plan = execute.plan(ToolCall(name=name, arguments=arguments), place)
    except plans.Refusal as refusal:
        assert str(refusal)
        return
    if plan.point is not None:
        assert 0 <= plan.point[0] <= 159 and 0 <= plan.point[1] <= 223
    assert math.isfinite(plan.arguments.get("seconds", 0))
    assert plan.arguments.get("seconds", 0) <= place.config.wait_cap_s


@pytest.mark.parametrize(
    "name, combo",
    [
        ("ctrl+a", "Control+a"),
        ("CTRL+A", "Control+a"),
        ("Ctrl+Shift+k", "Control+Shift+K"),
        ("Return", "Enter"),
        ("enter", "Enter"),
        ("Enter\n", "Enter"),
        ("space", "Space"),
        (" ", "Space"),
        ("Down", "ArrowDown"),
        ("page_down", "PageDown"),
        ("+", "+"),
        ("Control++", "Control++"),
        ("cmd+-", "Meta+-"),
        ("é", "é"),
        ("F12", "F12"),
    ],
)
def test_keys(name, combo):
    assert keys.combo(name) == combo


@pytest.mark.parametrize(
    "name", ["", "🚀🚀", "hyper", "ctrl+w", "Alt+F4", "a+b", "F13", None, 3, "ctrl-a"]
)
def test_keys_that_are_none(name):
    with pytest.raises(ValueError):
        keys.combo(name)
