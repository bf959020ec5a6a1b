import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwebrl_jax.algos import advantages

REWARDS = st.lists(
    st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 0.3, 1.0])), max_size=8
)
MODES = sorted(advantages.MODES)


def test_mean_std_by_hand():
    got = advantages.advantages((1.0, 0.0, None), "mean_std")
    # mean 0.5, std with n - 1 = 0.70711
    assert got[:2] == pytest.approx([0.5 / 0.707108, -0.5 / 0.707108], rel=1e-5)
    assert got[2] is None


def test_mean_and_rloo_by_hand():
    rewards = (1.0, 0.0, 0.0, None, 1.0)
    assert advantages.advantages(rewards, "mean") == [0.5, -0.5, -0.5, None, 0.5]
    got = advantages.advantages(rewards, "rloo")
    # each against the mean of the three others: 1 - 1/3 and 0 - 2/3
    assert [x for x in got if x is not None] == pytest.approx(
        [2 / 3, -2 / 3, -2 / 3, 2 / 3]
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rewards", [(1.0, None, None, None), (1.0,), (-1.0, None)])
def test_a_lone_valid_member_has_advantage_zero(mode, rewards):
    """R02."""
    got = advantages.advantages(rewards, mode)
    assert got[0] == 0.0
    assert all(value is None for value in got[1:])
    assert advantages.is_kept(rewards, len(rewards)) == (False, "too_few_valid")


@pytest.mark.parametrize("mode", MODES)
def test_a_void_member_makes_no_variance(mode):
    rewards = (1.0, 1.0, None)
    assert advantages.advantages(rewards, mode) == [0.0, 0.0, None]
    assert advantages.is_kept(rewards, 3) == (False, "zero_variance")


def test_is_kept_needs_sixty_percent():
    assert advantages.is_kept((1.0, 0.0, None, None, None), 5) == (
        False,
        "too_few_valid",
    )
    assert advantages.is_kept((1.0, 0.0, 0.0, None, None), 5) == (True, "")
    assert advantages.is_kept((1.0, 0.0), 2) == (True, "")
    assert advantages.is_kept((), 5) == (False, "too_few_valid")


def test_equal_rewards_are_compared_and_not_their_std():
    # the std of equal values that floating point cannot sum exactly is not 0
    rewards = (0.1,) * 10
    assert advantages.is_kept(rewards, 10) == (False, "zero_variance")
    assert advantages.advantages(rewards, "mean_std") == [0.0] * 10


@settings(deadline=None, max_examples=60)
@given(REWARDS, st.integers(0, 4), st.sampled_from(MODES), st.randoms())
def test_void_members_change_nothing_for_the_others(rewards, voids, mode, random):
    """R04."""
    got = advantages.advantages(rewards, mode)
    order = list(range(len(rewards) + voids))
    random.shuffle(order)
    padded = [*rewards, *[None] * voids]
    shuffled = advantages.advantages([padded[i] for i in order], mode)
    back = {index: shuffled[place] for place, index in enumerate(order)}
    for index, value in enumerate(got):
        assert (value is None) == (rewards[index] is None)
        if value is not None:
            assert np.isfinite(value)
            assert back[index] == pytest.approx(value, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(REWARDS, st.sampled_from(MODES))
def test_advantages_sum_to_zero(rewards, mode):
    got = [x for x in advantages.advantages(rewards, mode) if x is not None]
    assert sum(got) == pytest.approx(0.0, abs=1e-9)


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="config.algo.advantage='std'"):
        advantages.advantages((1.0, 0.0), "std")
