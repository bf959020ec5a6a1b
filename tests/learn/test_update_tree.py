"""A trajectory as one tree against its turns as rows: the same numbers."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwebrl_jax.batch import collate, rows
from openwebrl_jax.core import causes, types
from openwebrl_jax.models import sight
from tests.learn import toys

SHAPE = collate.Lattice(
    rows=8, lengths=(512,), loss_tokens=128, images=(64,), patches=(16,)
)
BLOCK = 32


def make_turn(draw, t, text):
    """Seen: text, an image, text; remembered: any text, as each history mode has."""

    def tokens(count):
        return tuple(int(token) for token in draw.integers(6, toys.VOCAB, count))

    page = toys.png(int(draw.integers(0, 6)))
    reply = int(draw.integers(1, 4))
    return types.Turn(
        observation=types.Observation(
            screenshot=page, width_px=16, height_px=16, tabs=(), active_tab=0
        ),
        segments=(types.Segment(role="user", text="", image="page"),),
        reply_text="",
        thought="",
        calls=(),
        seen_ids=(*tokens(1 + t % 2), *[toys.PAD] * 4, *tokens(1)),
        remembered_ids=tokens(text),
        response_ids=tokens(reply),
        closing_ids=tokens(2),
        logprobs=tuple(float(x) for x in draw.uniform(-5, -3, reply)),
        version=0,
    )


def make_trajectory(seed, turns, newest, text):
    draw = np.random.default_rng(seed)
    return types.Trajectory(
        task=types.Task(id="task", intent="", start_url="", max_turns=99),
        system_segment=types.Segment(role="system", text=""),
        system_ids=tuple(int(x) for x in draw.integers(6, toys.VOCAB, 3)),
        turns=tuple(make_turn(draw, t, text) for t in range(turns)),
        final=None,
        answer="",
        facts={},
        cause=causes.Cause.DONE,
        rule=toys.RULE,
        context_screenshots=newest,
    )


def make_rows(make, trajectories):
    """All rows that `make` gives, weighted, with advantages of both signs."""
    made = [
        dataclasses.replace(row, advantage=1.0 - i)
        for i, (name, trajectory) in enumerate(trajectories.items())
        for row in make(trajectory, name)
    ]
    return rows.weigh(made, "traj_mean", rows.turn_counts(made), 0.0)


def lay_out(made):
    """(lines, batch) of each micro-batch."""
    return [
        (
            part,
            collate.collate(
                part,
                SHAPE,
                toys.SPEC,
                image_id=toys.PAD,
                table_side=toys.SIZES.vision.table_side,
            ),
        )
        for part in collate.split(made, SHAPE)
    ]


@pytest.fixture(scope="module", params=["one product", "blocks"])
def learner(request):
    """(params, update), with rows of 512 tokens attended to in either way."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blocks":
            patch.setattr(sight, "DENSE", 0)
            patch.setattr(sight, "BLOCK", BLOCK)
        params, update, _ = toys.make_programs()
        yield params, update


def add_up(params, update, made):
    with jax.set_mesh(update.mesh):
        sums = update.start(params)
        for _, batch in lay_out(made):
            sums = update.accumulate(params, sums, update.place(batch))
    return jax.device_get(sums)


def logps(params, update, made):
    """Log-probs by trajectory, in the order of its turns."""
    found = {}
    for part, batch in lay_out(made):
        for line, logp_N in zip(part, update.logps(params, batch), strict=False):
            for row, used in zip(line, collate.loss_slices(line), strict=True):
                found[row.source] = logp_N[used]
    told = {}
    for row in made:
        told.setdefault(rows.trajectory_of(row), []).append(found[row.source])
    return {name: np.concatenate(parts) for name, parts in told.items()}


def assert_equal(got, want):
    assert got["metrics"].keys() == want["metrics"].keys()
    for name, value in want["metrics"].items():
        np.testing.assert_allclose(got["metrics"][name], value, rtol=1e-5, atol=1e-6)
    paths = jax.tree.leaves_with_path(want["grads"])
    for (path, wanted), grad in zip(paths, jax.tree.leaves(got["grads"]), strict=True):
        close = 2e-5 * np.abs(wanted).max() + 1e-9
        np.testing.assert_allclose(grad, wanted, atol=close, rtol=0, err_msg=str(path))


def compare(learner, trajectories):
    trees, turns = (
        make_rows(make, trajectories) for make in (rows.tree_rows, rows.turn_rows)
    )
    want, got = logps(*learner, turns), logps(*learner, trees)
    assert want.keys() == got.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, atol=1e-5)
    assert_equal(add_up(*learner, trees), add_up(*learner, turns))


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 6),
)
@settings(max_examples=8)
def test_a_tree_gives_the_numbers_of_its_turns(learner, seed, sizes, newest, text):
    trajectories = {
        f"t{i}": make_trajectory(seed + i, size, newest, text)
        for i, size in enumerate(sizes)
    }
    compare(learner, trajectories)


def test_eight_devices_give_the_same():
    trajectories = {f"t{i}": make_trajectory(i, 4 + i, 1, 5) for i in range(3)}
    made = make_rows(rows.tree_rows, trajectories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sight, "DENSE", 0)
        patch.setattr(sight, "BLOCK", BLOCK)
        one = toys.make_programs()[:2]
        want = add_up(*one, made)
        eight = toys.make_programs(toys.make_mesh(2, 2, 2))[:2]
        assert_equal(add_up(*eight, made), want)


def test_a_wrong_border_is_seen(learner):
    """One token more of the trunk, or a position beside it, is not let pass."""
    params, update = learner
    trajectories = {"t": make_trajectory(5, 6, 1, 4)}
    made = make_rows(rows.tree_rows, trajectories)
    (row,) = made
    moved = tuple(
        run if not run.limit else types.Run(first=run.first, limit=run.limit - 1)
        for run in row.runs
    )
    want = logps(params, update, made)["t"]
    got = logps(params, update, [dataclasses.replace(row, runs=moved)])["t"]
    assert np.abs(got - want).max() > 1e-3
