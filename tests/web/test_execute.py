"""Arguments of calls become sound plans or refusals, never anything else."""

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import execute, keys, plans

NAMES = "click hover drag write press_keys scroll wait done goto_url go_back".split()
NAMES += "new_tab switch_tab close_tab fly".split()
ARGUMENTS = "point_2d start_point_2d end_point_2d steps clicks button message keys "
ARGUMENTS += "is_hotkey presses direction amount tab_index"
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
        ((250.5, 1), (40.08, 0.224)),
        (["500", " 500.0 "], (80, 112)),
        ("500,500", (80, 112)),
        ("[500, 500]", (80, 112)),
        ("500 500", (80, 112)),
        ({"x": 500, "y": "500"}, (80, 112)),
        ([[500, 500]], (80, 112)),
        (["500,500"], (80, 112)),
    ],
)
def test_pixels(point_2d, pixel):
    before = copy.deepcopy(point_2d)
    assert plans.to_pixels(point_2d, 160, 224) == pytest.approx(pixel)
    assert point_2d == before


@pytest.mark.parametrize(
    "point_2d",
    [None, [], [1], [1, 2, 3], [1, 2, 3, 4], "1", "1,2,3", "a,b", {"x": 1}, [[1, 2, 3]]]
    + [[[1, 2], [3, 4]], {"x": 1, "y": None}, {"x": 1, "y": 2, "z": 3}, ["", "1"]]
    + [[math.nan, 1], [1, math.inf], [True, 1], [10**400, 1], 5, [[[]]], "nan,1"],
)
def test_points_that_are_none(point_2d):
    before = copy.deepcopy(point_2d)
    for _ in range(2):
        with pytest.raises(plans.Refusal, match="two numbers from 0 to 1000"):
            plans.to_pixels(point_2d, 160, 224)
    assert repr(point_2d) == repr(before) if point_2d != [10**400, 1] else True


@pytest.mark.parametrize("point_2d", [[-5, 1], [1, 1000.1], [1e9, 5], "1280,5"])
def test_points_outside_are_told_the_range(point_2d):
    with pytest.raises(plans.Refusal, match=r"outside .* 0 to 1000 .*160x224"):
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
        ("ctrl-a", "Control+a"),
        ("page-down", "PageDown"),
        ("漢", "漢"),
        ("e\u0301", "é"),
        ("🚀", "🚀"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("🇫🇷", "🇫🇷"),
    ],
)
def test_keys(name, combo):
    assert keys.combo([name]) == combo


@pytest.mark.parametrize(
    "name",
    ["", "🚀🚀", "hyper", "ctrl+w", "Alt+F4", "a+b", "F13", None, 3],
)
def test_keys_that_are_none(name):
    with pytest.raises(ValueError):
        keys.combo([name])


def test_unknown_keys_get_suggestions():
    with pytest.raises(ValueError, match="did you mean Enter"):
        keys.combo(["entre"])
    with pytest.raises(ValueError, match="did you mean F"):
        keys.combo(["F13"])


def test_modifiers_before_a_key_are_a_combination(place):
    def combos(*names, **more):
        call = ToolCall(name="press_keys", arguments={"keys": list(names), **more})
        return execute.plan(call, place).arguments["combos"]

    assert combos("ctrl", "a") == ["Control+a"]
    assert combos("ctrl", "a", is_hotkey=True) == ["Control+a"]
    assert combos("Tab", "Enter") == ["Tab", "Enter"]
    assert combos("Ctrl+Shift", "x", is_hotkey=True) == ["Control+Shift+X"]
    with pytest.raises(plans.Refusal, match="belongs to the browser"):
        combos("ctrl", "w")
