"""What the turns of a step are trained with."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.algos import advantages
from openwebrl_jax.batch import collate, rows
from tests.batch import toys


@pytest.mark.parametrize("make", [rows.turn_rows, rows.tree_rows])
@given(st.integers(1, 9), st.integers(0, 99), st.sampled_from([1, 2, 4]))
def test_every_turn_is_trained_with_the_advantage_of_its_whole_group(
    make, size, seed, lines
):
    """R06: whatever the size of a step, its order and the lines of a batch."""
    trajectories = {
        name: toys.make_trajectory([toys.make_turn(t) for t in range(count)])
        for name, count in (("a", 3), ("b", 3), ("c", 1))
    }
    # mean 1/3, std 0.57735
    wanted = {"a": 1.1547, "b": -0.57735, "c": -0.57735}
    found = advantages.advantages((1.0, 0.0, 0.0), "mean_std")
    group = toys.make_group(0, tuple(wanted), tuple(found))
    made = rows.rows([group], trajectories, toys.RULE, make)
    shape = collate.Lattice(
        rows=lines, lengths=(256,), loss_tokens=32, images=(16,), patches=(4096,)
    )
    trained = [
        row
        for step in rows.minibatches(made, size, seed=seed, iteration=1, epoch=0)
        for part in collate.split(step, shape)
        for line in part
        for row in line
    ]
    turns = collections.Counter()
    for row in trained:
        name = rows.trajectory_of(row)
        turns[name] += len(rows.turns(row))
        assert row.advantage == pytest.approx(wanted[name], rel=1e-4)
    assert turns == {"a": 3, "b": 3, "c": 1}
