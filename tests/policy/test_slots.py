"""Rows are found by what they hold; nothing else is remembered."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.policy import slots


def ids(*numbers):
    return np.array(numbers, np.int64)


def seat(one, episode, *numbers):
    """Takes a row, fills it and leaves it with the same tokens."""
    row, *_ = one.take(episode, ids(*numbers))
    one.leave(row, ids(*numbers))
    return row


def test_an_episode_finds_its_row_and_what_it_holds():
    one = slots.Slots(3, worth=1)
    row = seat(one, "a", 1, 2, 3, 4)
    seat(one, "b", 9, 9)
    assert one.take("a", ids(1, 2, 5, 6, 7)) == (row, row, 0)
    assert one.filled(row) == 2


def test_the_last_token_is_never_known():
    one = slots.Slots(1, worth=1)
    row = seat(one, "a", 1, 2, 3)
    one.take("a", ids(1, 2, 3))
    assert one.filled(row) == 2


def test_a_longer_beginning_in_another_row_is_copied_if_it_is_worth_it():
    one = slots.Slots(4, worth=3)
    donor = seat(one, "a", 1, 2, 3, 4, 5)
    row, *_ = one.take("b", ids(1, 2, 3, 8))
    assert one.filled(row) == 0 and row != donor
    assert one.take("c", ids(1, 2, 8, 8)).shared == 0
    assert one.take("d", ids(1, 2, 3, 4, 9))[1:] == (donor, 4)


def test_who_comes_with_another_waits_for_it():
    one = slots.Slots(2, worth=2)
    leader = one.take("a", ids(1, 2, 3, 4))
    follower = one.take("b", ids(1, 2, 3, 4))
    assert follower == (1 - leader.row, leader.row, 3)
    assert one.filled(leader.row) == 0 and one.filled(follower.row) == 0
    one.fill(leader.row, 3)
    assert one.filled(leader.row) == follower.shared


def test_who_waits_wants_no_more_than_is_there_when_the_reply_begins():
    one = slots.Slots(2, worth=1)
    leader = one.take("a", ids(1, 2, 3))
    assert one.take("b", ids(1, 2, 3, 4, 5)) == (1 - leader.row, leader.row, 2)


def test_a_row_of_no_one_goes_first_then_the_one_used_longest_ago():
    one = slots.Slots(3, worth=9)
    rows = {name: seat(one, name, n) for n, name in enumerate("abc")}
    assert len(set(rows.values())) == 3
    one.release("b")
    assert seat(one, "d", 7, 7) == rows["b"]
    assert seat(one, "a", 7, 7) == rows["a"]
    assert seat(one, "e", 7, 7) == rows["c"]


def test_of_the_rows_of_no_one_that_with_the_longest_beginning_is_taken():
    one = slots.Slots(3, worth=9)
    rows = [seat(one, name, n, n, n) for n, name in enumerate("abc")]
    for name in "abc":
        one.release(name)
    assert one.take("d", ids(1, 1, 1, 1)) == (rows[1], rows[1], 0)
    assert one.filled(rows[1]) == 3


def test_new_weights_forget_what_rows_hold_but_not_whose_they_are():
    one = slots.Slots(2, worth=1)
    rows = [seat(one, name, 1, 2, 3) for name in "ab"]
    one.forget()
    assert one.take("b", ids(1, 2, 3)) == (rows[1], rows[1], 0)
    assert one.filled(rows[1]) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.lists(st.integers(0, 1), min_size=1)),
        max_size=40,
    )
)
def test_what_a_row_is_said_to_hold_is_there(requests):
    """A cache is played beside the slots: every claim is checked against it."""
    one, cache = slots.Slots(3, worth=2), [ids()] * 3
    for episode, tokens in requests:
        wanted = ids(*tokens)
        row, donor, shared = one.take(episode, wanted)
        kept = one.filled(row)
        assert kept < len(wanted) and cache[row][:kept].tolist() == tokens[:kept]
        if shared:
            assert shared >= kept + 2
            assert cache[donor][:shared].tolist() == tokens[:shared]
        cache[row] = wanted
        one.leave(row, wanted)
