"""What is neither always nor never solved comes more often; nothing starves."""

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.tasks import curriculum

COUNTS = st.floats(0.0, 1e6)


def task(name: str, suite: str = "") -> types.Task:
    return types.Task(id=name, intent="", start_url="", max_turns=1, suite=suite)


def test_problems_of_one_page_share_what_is_known():
    assert curriculum.name_of(task("miniwob/click-tab/7", "miniwob")) == (
        "miniwob/click-tab"
    )
    assert curriculum.name_of(task("fake/7", "fake")) == "fake"
    assert curriculum.name_of(task("shop/7")) == "shop/7"
    assert curriculum.name_of(task("7", "fake")) == "7"


@pytest.mark.parametrize(
    ("wins", "losses", "want"),
    [(0, 0, 0.7), (8, 8, 0.9526), (0, 24, 0.2282), (24, 0, 0.2282)],
)
def test_chances_by_hand(wins, losses, want):
    # 0.1 + 0.9 * 4ab / ((a+b)(a+b+1)): a = b = 1 -> 4/6; 9, 9 -> 324/342; 1, 25 ...
    skill = curriculum.Skill(wins=wins, losses=losses)
    assert curriculum.chance(skill, 0, 0.1, 0.98) == pytest.approx(want, abs=1e-4)


@hypothesis.settings(max_examples=25)
@hypothesis.given(COUNTS, COUNTS, st.integers(0, 1000), st.floats(0.01, 1.0))
def test_the_floor_holds_and_one_is_certain(wins, losses, version, floor):
    skill = curriculum.Skill(wins=wins, losses=losses)
    chance = curriculum.chance(skill, version, floor, 0.98)
    assert floor <= chance <= 1.0 + 1e-12
    assert curriculum.chance(skill, version, 1.0, 0.98) == 1.0
    assert curriculum.is_taken(1.0, 0, version)


def test_what_is_known_fades():
    lost = curriculum.Skill(losses=50.0, version=3)
    assert curriculum.learnt(lost, curriculum.Skill(wins=2.0), 5, 0.5) == (
        curriculum.Skill(wins=2.0, losses=12.5, version=5)
    )
    assert not curriculum.is_forgotten(lost, 5, 0.5)
    assert curriculum.is_forgotten(lost, 13, 0.5)
    late = curriculum.chance(lost, 400, 0.1, 0.98)
    assert late == pytest.approx(
        curriculum.chance(curriculum.Skill(), 0, 0.1, 0.98), 1e-2
    )
