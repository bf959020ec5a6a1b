import collections
import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from configs import common
from openwebrl_jax.agent import history, single
from openwebrl_jax.algos import mm_grpo
from openwebrl_jax.batch import rows
from openwebrl_jax.core import types
from tests.batch import toys

MODES = ("turn_mean", "traj_mean", "constant_k", "token_mean")
CONSTANT_K = 40.0


def test_row_with_one_screenshot_by_hand():
    trajectory = toys.make_trajectory([toys.make_turn(t) for t in range(3)])
    first, _, last = rows.turn_rows(trajectory, "abc")
    assert first.ids.tolist() == [11, 12, 1, 2, 3, 20, 21, 22]
    assert last.ids.tolist() == [
        *(11, 12),
        *(50, 51),
        *(150, 151),
        *(201, 202, 203),
        *(220, 221, 222),
    ]
    assert last.loss_weight.tolist() == [0.0] * 9 + [1.0] * 3
    np.testing.assert_allclose(last.old_logp[-3:], [-0.1, -0.2, -0.3], rtol=1e-6)
    assert not last.old_logp[:-3].any()
    assert last.images == (b"png2",)
    assert last.source == "abc:2"
    assert rows.trajectory_of(last) == "abc"


@pytest.mark.parametrize("make", [rows.turn_rows, rows.tree_rows])
def test_the_learner_gets_the_blobs_that_the_sampler_saw(make):
    """R21: byte by byte, and by the hashes that the prompts named."""
    config = common.get_config().agent
    config.prompt, config.context_screenshots = "short", 2
    task = types.Task(id="t", intent="click", start_url="", max_turns=9)
    memory, shown = single.first(task, config), []
    ids = {"system_ids": (1,), "seen_ids": (2,), "remembered_ids": (4,)}
    for t in range(4):
        page = dataclasses.replace(
            toys.make_turn(t).observation, screenshot=draw_page(t)
        )
        ask = single.prompt(memory, page, config)
        shown += ask.images.items()
        reply = types.Reply(
            text="hm", response_ids=(3,), logprobs=(-0.5,), version=0, **ids
        )
        memory = single.read(memory, page, ask, reply, config)
    trajectory = toys.make_trajectory(memory.turns, newest=2)
    learnt = [png for row in make(trajectory, "t") for png in row.images]
    assert [(history.image_hash(png), png) for png in learnt] == shown
    assert len(shown) == 7


def draw_page(seed):
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (seed, 0, 0)).save(out, format="PNG")
    return out.getvalue()


def test_row_with_two_screenshots_by_hand():
    turns = [toys.make_turn(t, response=1) for t in range(3)]
    trajectory = toys.make_trajectory(turns, newest=2)
    first, second, last = rows.turn_rows(trajectory, "abc")
    assert first.images == (b"png0",)
    assert second.ids.tolist() == [11, 12, 1, 2, 3, 20, 40, 101, 102, 103, 120]
    assert second.images == (b"png0", b"png1")
    assert last.ids.tolist() == [
        *(11, 12),
        *(50, 51),
        *(101, 102, 103, 120, 140),
        *(201, 202, 203, 220),
    ]
    assert last.loss_weight.tolist() == [0.0] * 12 + [1.0]


@given(st.integers(0, 6), st.integers(1, 3))
def test_a_row_is_the_prompt_that_was_sampled_from(count, newest):
    turns = [toys.make_turn(t) for t in range(count)]
    made = rows.turn_rows(toys.make_trajectory(turns, newest=newest), "abc")
    assert len(made) == count
    for t, row in enumerate(made):
        prompt = [11, 12]
        for s, turn in enumerate(turns[:t]):
            if s <= t - newest:
                prompt += turn.remembered_ids
            else:
                prompt += turn.seen_ids + turn.response_ids + turn.closing_ids
        prompt += turns[t].seen_ids
        assert row.ids.tolist() == [*prompt, *turns[t].response_ids]
        assert np.count_nonzero(row.loss_weight) == len(turns[t].response_ids)
        assert len(row.images) == min(newest, t + 1)


def test_tree_with_two_screenshots_by_hand():
    turns = [toys.make_turn(t, response=1) for t in range(4)]
    (row,) = rows.tree_rows(toys.make_trajectory(turns, newest=2), "abc")
    assert row.ids.tolist() == [
        *(11, 12, 50, 51, 150, 151),
        *(1, 2, 3, 20),
        *(1, 2, 3, 20, 40, 101, 102, 103, 120),
        *(101, 102, 103, 120, 140, 201, 202, 203, 220),
        *(201, 202, 203, 220, 240, 301, 302, 303, 320),
    ]
    assert row.runs == ((0, 0), (6, 2), (10, 2), (19, 4), (28, 6))
    assert np.flatnonzero(row.loss_weight).tolist() == [9, 18, 27, 36]
    np.testing.assert_allclose(row.old_logp[[9, 36]], -0.1, rtol=1e-6)
    assert row.images == tuple(b"png%d" % t for t in (0, 0, 1, 1, 2, 2, 3))
    assert row.source == "abc:0-3" and rows.trajectory_of(row) == "abc"


@given(st.integers(0, 8), st.integers(1, 3))
def test_a_tree_says_what_its_turns_say(count, newest):
    """Trunk up to its limit and then the branch: the row of that turn."""
    turns = [toys.make_turn(t, response=1 + t % 3) for t in range(count)]
    trajectory = toys.make_trajectory(turns, newest=newest)
    alone = rows.turn_rows(trajectory, "abc")
    trees = rows.tree_rows(trajectory, "abc")
    assert len(trees) == (count > 0)
    for row in trees:
        spans = rows.turns(row)
        assert len(spans) == count
        for span, run, want in zip(spans, row.runs[1:], alone, strict=True):
            seen = [*range(run.limit), *range(span.start, span.stop)]
            for field in ("ids", "loss_weight", "old_logp"):
                got = getattr(row, field)[seen]
                assert got.tolist() == getattr(want, field).tolist(), field
        assert row.images == tuple(png for want in alone for png in want.images)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 40), st.integers(0, 9))
def test_a_tree_that_is_too_large_is_cut_between_turns(count, newest, spare, reply):
    turns = [toys.make_turn(t, response=1 + t % 4) for t in range(count)]
    trajectory = toys.make_trajectory(turns, newest=newest)
    alone = rows.turn_rows(trajectory, "abc")
    longest = max(len(row.ids) for row in alone) + spare
    made = rows.tree_rows(trajectory, "abc", longest, 4 + reply)
    assert all(len(row.ids) <= longest for row in made)
    assert all(np.count_nonzero(row.loss_weight) <= 4 + reply for row in made)
    heard = [
        row.ids[[*range(run.limit), *range(span.start, span.stop)]].tolist()
        for row in made
        for run, span in zip(row.runs[1:], rows.turns(row), strict=True)
    ]
    assert heard == [row.ids.tolist() for row in alone]
    assert rows.turn_counts(made) == {"abc": count}


@pytest.mark.parametrize("mode", MODES)
def test_layouts_weigh_every_token_alike(mode):
    trajectories = {
        name: toys.make_trajectory([toys.make_turn(t, t + extra) for t in range(n)])
        for name, n, extra in (("long", 5, 1), ("short", 1, 4))
    }
    group = toys.make_group(0, ("long", "short"), (0.5, -0.5))
    weights = {}
    for layout, make in (("turn", rows.turn_rows), ("tree", rows.tree_rows)):
        made = rows.rows([group], trajectories, toys.RULE, make)
        weighed = rows.weigh(made, mode, rows.turn_counts(made), CONSTANT_K)
        live = [row.loss_weight[row.loss_weight > 0] for row in weighed]
        weights[layout] = np.concatenate(live)
    np.testing.assert_allclose(weights["tree"], weights["turn"], rtol=1e-6)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 20))
def test_a_step_is_full_with_the_tree_that_reaches_the_count(sizes, count):
    made = [
        row
        for name, size in enumerate(sizes)
        for row in rows.tree_rows(
            toys.make_trajectory([toys.make_turn(t) for t in range(size)]), f"t{name}"
        )
    ]
    steps = rows.minibatches(made, count, seed=1, iteration=2, epoch=0)
    assert sorted(row.source for step in steps for row in step) == sorted(
        row.source for row in made
    )
    for step in steps:
        *others, last = [len(rows.turns(row)) for row in step]
        assert sum(others) < count
        assert step is steps[-1] or sum(others) + last >= count


def test_void_slots_and_empty_trajectories_make_no_rows():
    trajectories = {
        "won": toys.make_trajectory([toys.make_turn(0), toys.make_turn(1)]),
        "lost": toys.make_trajectory([]),
        "lone": toys.make_trajectory([toys.make_turn(0)]),
    }
    group = toys.make_group(3, ("won", "lost", "gone"), (0.7, -0.7, None))
    other = toys.make_group(4, ("lone",), (0.5,))
    made = rows.rows([group, other], trajectories, toys.RULE, rows.turn_rows)
    assert [row.source for row in made] == ["won:0", "won:1", "lone:0"]
    assert [row.advantage for row in made] == [0.7, 0.7, 0.5]
    assert rows.rows([], {}, toys.RULE, rows.turn_rows) == []
    assert rows.turn_rows(trajectories["lost"], "lost") == []


def test_a_turn_without_ids_is_refused():
    trajectory = toys.make_trajectory([toys.make_turn(0, is_sampled=False)])
    group = toys.make_group(0, ("oracle",), (1.0,))
    with pytest.raises(ValueError, match="turn 0 of oracle"):
        rows.rows([group], {"oracle": trajectory}, toys.RULE, rows.turn_rows)
    with pytest.raises(ValueError, match="no ids"):
        rows.turn_rows(trajectory, "oracle")


@pytest.mark.parametrize("make", [rows.turn_rows, rows.tree_rows])
def test_a_turn_that_later_ones_cannot_remember_is_refused(make):
    """The newest turns are never remembered, so they need no such ids."""
    turns = [toys.make_turn(t) for t in range(3)]
    for t, newest, is_needed in ((0, 2, True), (1, 2, False), (1, 1, True)):
        some = list(turns)
        some[t] = dataclasses.replace(turns[t], remembered_ids=())
        trajectory = toys.make_trajectory(some, newest=newest)
        if is_needed:
            with pytest.raises(ValueError, match=f"turn {t} of gap has no ids"):
                make(trajectory, "gap")
        else:
            assert make(trajectory, "gap")


def test_missing_logprobs_are_refused():
    turn = dataclasses.replace(toys.make_turn(0, response=10), logprobs=(-0.1,) * 9)
    trajectory = toys.make_trajectory([turn])
    group = toys.make_group(0, ("short",), (1.0,))
    with pytest.raises(ValueError, match="9 log-probs for 10 ids"):
        rows.rows([group], {"short": trajectory}, toys.RULE, rows.turn_rows)


def test_another_sampling_rule_is_refused():
    other = dataclasses.replace(toys.RULE, temperature=0.6)
    trajectory = toys.make_trajectory([toys.make_turn(0)], rule=other)
    group = toys.make_group(0, ("cold",), (1.0,))
    with pytest.raises(ValueError, match="temperature 0.6 against 0.8"):
        rows.rows([group], {"cold": trajectory}, toys.RULE, rows.turn_rows)


def short_and_long():
    """A success in 2 turns of 3 tokens and a failure in 10 turns of 5."""
    trajectories = {
        "short": toys.make_trajectory([toys.make_turn(t) for t in range(2)]),
        "long": toys.make_trajectory(
            [toys.make_turn(t, response=5) for t in range(10)]
        ),
    }
    group = toys.make_group(0, ("short", "long"), (0.7, -0.7))
    return rows.rows([group], trajectories, toys.RULE, rows.turn_rows)


@jax.jit
def on_policy_loss(advantage_RN, weight_RN):
    zero_RN = jnp.zeros_like(weight_RN)
    args = (zero_RN, zero_RN, zero_RN, advantage_RN, weight_RN)
    return mm_grpo.loss(*args, toys.make_algo())[0]


def loss_of(weighed, scale):
    """MM-GRPO's loss of rows on policy, advantages scaled by trajectory."""
    factors = [row.advantage * scale[rows.trajectory_of(row)] for row in weighed]
    weight_RN = np.stack([row.loss_weight[-5:] for row in weighed])
    advantage_RN = np.repeat(np.float32(factors)[:, None], 5, axis=1)
    return float(on_policy_loss(advantage_RN, weight_RN))


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        # 12 turns of equal weight: 2 of one trajectory, 10 of the other
        ("turn_mean", {"short": 2 / 12, "long": 10 / 12}),
        ("traj_mean", {"short": 1 / 2, "long": 1 / 2}),
        # 6 and 50 tokens over k tokens and 2 trajectories
        ("constant_k", {"short": 6 / (2 * CONSTANT_K), "long": 50 / (2 * CONSTANT_K)}),
        ("token_mean", {"short": 6 / 56, "long": 50 / 56}),
    ],
)
def test_weight_of_a_trajectory_is_as_declared(mode, want):
    """R08."""
    made = short_and_long()
    weighed = rows.weigh(made, mode, rows.turn_counts(made), CONSTANT_K)
    advantage = {"short": 0.7, "long": -0.7}
    for name in want:
        one = {"short": 1.0, "long": 1.0}
        up, down = {**one, name: 1.1}, {**one, name: 0.9}
        slope = (loss_of(weighed, up) - loss_of(weighed, down)) / 0.2
        assert slope == pytest.approx(-advantage[name] * want[name], rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_single_trajectory_split_over_steps_counts_by_its_share(mode):
    made = short_and_long()
    counts = rows.turn_counts(made)
    part = [row for row in made if row.source.startswith("long")][:5]
    weighed = rows.weigh(part, mode, counts, CONSTANT_K)
    total = sum(float(row.loss_weight.sum()) for row in weighed)
    # half a trajectory of 25 tokens: 25 / (k / 2)
    want = 50 / CONSTANT_K if mode == "constant_k" else 1.0
    assert total == pytest.approx(want, rel=1e-5)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(1, 7),
    st.integers(0, 5),
    st.integers(0, 2),
)
def test_minibatches_keep_every_row_once(turns, size, iteration, epoch):
    made = [
        row
        for i, count in enumerate(turns)
        for row in rows.turn_rows(
            toys.make_trajectory([toys.make_turn(t) for t in range(count)]), f"t{i}"
        )
    ]
    key = {"seed": 0, "iteration": iteration, "epoch": epoch}
    got = rows.minibatches(made, size, **key)
    assert [len(part) for part in got[:-1]] == [size] * (len(got) - 1)
    assert 1 <= len(got[-1]) <= size
    sources = [row.source for part in got for row in part]
    assert collections.Counter(sources) == collections.Counter(r.source for r in made)
    again = rows.minibatches(made, size, **key)
    assert [row.source for part in again for row in part] == sources
    # each step is normalised by its own counts, the leftover too
    counts = rows.turn_counts(made)
    for part in got:
        for mode in ("turn_mean", "traj_mean", "token_mean"):
            weighed = rows.weigh(part, mode, counts, CONSTANT_K)
            total = sum(float(row.loss_weight.sum()) for row in weighed)
            assert total == pytest.approx(1.0, rel=1e-5)


def test_minibatch_order_changes_with_iteration_and_epoch():
    made = short_and_long()

    def order(**key):
        parts = rows.minibatches(
            made, 4, **{"seed": 0, "iteration": 0, "epoch": 0} | key
        )
        return [row.source for part in parts for row in part]

    assert order() != order(epoch=1)
    assert sorted(order()) == sorted(order(epoch=1))
    assert order() != order(iteration=1)
    assert order() != order(seed=1)
    assert rows.minibatches([], 4, seed=0, iteration=0, epoch=0) == []


def test_weigh_refuses_unknown_modes_and_no_k():
    made = short_and_long()
    with pytest.raises(ValueError, match="config.algo.weighting='mean'"):
        rows.weigh(made, "mean", rows.turn_counts(made), 1.0)
    with pytest.raises(ValueError, match="constant_k=0"):
        rows.weigh(made, "constant_k", rows.turn_counts(made), 0.0)
    assert rows.weigh([], "turn_mean", {}, 0.0) == []


def test_decouple_by_hand():
    (row,) = rows.turn_rows(toys.make_trajectory([toys.make_turn(0)]), "abc")
    proximal = np.full(5, -0.15, np.float32)  # two unused places at the end
    got = rows.decouple(row, proximal)
    # behaviour -0.1, -0.2, -0.3 against -0.15 now
    np.testing.assert_allclose(
        got.loss_weight[-3:], np.exp([-0.05, 0.05, 0.15]), rtol=1e-6
    )
    np.testing.assert_allclose(got.old_logp[-3:], -0.15)
    assert not got.loss_weight[:-3].any() and not got.old_logp[:-3].any()
    stale = dataclasses.replace(row, old_logp=row.old_logp * 100)
    assert rows.decouple(stale, proximal).loss_weight.max() == rows.PROXIMAL_CAP
