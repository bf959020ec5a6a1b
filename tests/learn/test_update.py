import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from openwebrl_jax.batch import collate
from openwebrl_jax.batch import rows as batch_rows
from openwebrl_jax.core import types
from openwebrl_jax.models import head
from tests.learn import toys

LIVE = (1, 7, 0, 120, 3, 0, 20, 5)
LENGTH, LOSS_TOKENS = 128, 120


@pytest.fixture(scope="module")
def rows():
    return [toys.make_row(seed, live) for seed, live in enumerate(LIVE)]


@pytest.fixture(scope="module")
def learner():
    """(params, update) on one device; nothing here takes a step."""
    params, update, _ = toys.make_programs()
    return params, update


def logps(learner, *rows):
    """Log-probs [rows, N] of rows in one batch of eight."""
    params, update = learner
    (batch,) = toys.make_batches(rows, 8, LENGTH, LOSS_TOKENS)
    return update.logps(params, batch)[: len(rows)]


def add_up(params, update, rows, rows_a_batch):
    """The sums over all rows."""
    with jax.set_mesh(update.mesh):
        sums = update.start(params)
        for batch in toys.make_batches(rows, rows_a_batch, LENGTH, LOSS_TOKENS):
            sums = update.accumulate(params, sums, update.place(batch))
    return jax.device_get(sums)


@pytest.fixture(scope="module")
def whole(learner, rows):
    """The sums of all rows in one batch on one device."""
    return add_up(*learner, rows, 8)


def gap(got, want):
    """Norm of the difference of two gradients, relative."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    square = sum(np.sum((a - b) ** 2, dtype=np.float64) for a, b in pairs)
    leaves = jax.tree.leaves(want)
    return np.sqrt(square / sum(np.sum(b**2, dtype=np.float64) for b in leaves))


@pytest.mark.parametrize(
    ("mesh_shape", "rows_a_batch"),
    [((1, 1, 1), 1), ((1, 2, 1), 2), ((2, 2, 1), 4), ((2, 2, 2), 8)],
)
def test_gradients_add_up(rows, whole, mesh_shape, rows_a_batch):
    """Eight, four, two and one micro-batch on 1, 2, 4 and 8 devices, with remat."""
    params, update, _ = toys.make_programs(
        toys.make_mesh(*mesh_shape), model=toys.make_model_config(remat=True)
    )
    sums = add_up(params, update, rows, rows_a_batch)
    assert gap(sums["grads"], whole["grads"]) < 1e-6
    for name, value in whole["metrics"].items():
        assert float(sums["metrics"][name]) == pytest.approx(value, rel=1e-5), name
    assert float(sums["metrics"]["tokens"]) == sum(LIVE)


def test_a_row_left_out_would_be_seen(learner, rows, whole):
    rest = [row for n, row in enumerate(rows) if n != 7]  # it has five tokens
    sums = add_up(*learner, rest, 8)
    assert gap(sums["grads"], whole["grads"]) > 1e-2


def test_dead_micro_batch_adds_exactly_nothing(learner, rows, whole):
    params, update = learner
    dead = [toys.make_row(seed, 0, 20) for seed in range(8)]
    jax.config.update("jax_debug_nans", True)
    try:
        sums = add_up(params, update, dead, 8)
    finally:
        jax.config.update("jax_debug_nans", False)
    assert all(not leaf.any() for leaf in jax.tree.leaves(sums))
    sums = add_up(params, update, [*dead, *rows], 8)
    for got, want in zip(jax.tree.leaves(sums), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_batch_lies_on_the_mesh_by_its_letters(rows):
    mesh = toys.make_mesh(2, 2, 2)
    _, update, _ = toys.make_programs(mesh)
    (batch,) = toys.make_batches(rows, 8)
    placed = update.place(batch)
    split = ("data", "fsdp")
    assert placed.ids_BL.sharding.spec == P(split, None)
    assert placed.positions_3BL.sharding.spec == P(None, split, None)
    assert placed.patches_IPC.sharding.spec == P(split, None, None)
    odd = dataclasses.replace(batch, patch_count_I=batch.patch_count_I[:3])
    assert update.place(odd).patch_count_I.sharding.spec == P(None)


def test_a_step_with_nothing_live_is_skipped_and_counted():
    state, update = toys.make_learner()
    before = jax.device_get(state.params)
    dead = toys.make_batches([toys.make_row(0, 0, 20)], 8, LENGTH, LOSS_TOKENS)
    for batches in ([], dead):
        state, metrics = update.step(state, batches)
        assert metrics == {"learner/skipped_steps": 1.0, "learner/tokens": 0.0}
        assert int(state.step) == 0
    same = jax.tree.map(np.array_equal, before, jax.device_get(state.params))
    assert all(jax.tree.leaves(same))


def test_steps_lower_the_loss_and_spare_what_is_frozen():
    state, update = toys.make_learner(
        algo=toys.make_algo(loss="mt_sft"),
        optimizer=toys.make_optim(lr_peak=3e-3, weight_decay=0.5),
        model=toys.make_model_config(train_vision=False),
    )
    before = jax.device_get(state.params)
    rows = [toys.make_row(seed, 6, 24) for seed in range(4)]
    batches = toys.make_batches(rows, 4, 32, 8)
    losses = []
    for _ in range(30):
        state, metrics = update.step(state, batches)
        losses.append(float(metrics["learner/loss"]))
    assert losses[-1] < 0.5 * losses[0]
    assert int(state.step) == 30
    assert float(metrics["learner/tokens"]) == 24.0
    assert metrics["learner/padding_frac"] == 0.25  # 24 of 32 tokens are there
    assert metrics["learner/image_padding_frac"] == 0.0
    for name in ("grad_norm", "update_norm", "param_norm", "entropy", "nll"):
        assert float(metrics[f"learner/{name}"]) > 0.0, name
    same = jax.tree.map(np.array_equal, before, jax.device_get(state.params))
    assert all(jax.tree.leaves(same["vision"]))
    assert not any(jax.tree.leaves(same["decoder"]["layers"]["q"]))
    assert update.accumulate._cache_size() == 1
    assert update.apply._cache_size() == 1


def test_a_second_epoch_compiles_nothing(learner):
    """R48: rows of random lengths, in another order; only the lattice's programs."""
    params, update = learner
    shape = collate.Lattice(
        rows=8,
        lengths=(64, LENGTH),
        loss_tokens=LOSS_TOKENS,
        images=(8,),
        patches=(16,),
    )
    draw = np.random.default_rng(0)
    made = [toys.make_row(seed, 3, draw.integers(9, 100)) for seed in range(60)]
    made += [toys.make_row(seed, 3, 20) for seed in range(60, 80)]

    def play(epoch):
        met = set()
        for step in batch_rows.minibatches(made, 20, seed=0, iteration=1, epoch=epoch):
            parts = collate.split(step, shape)
            met |= {collate.buckets(part, shape) for part in parts}
            with jax.set_mesh(update.mesh):
                sums = update.start(params)
                for part in parts:
                    batch = collate.collate(
                        part,
                        shape,
                        toys.SPEC,
                        image_id=toys.PAD,
                        table_side=toys.SIZES.vision.table_side,
                    )
                    sums = update.accumulate(params, sums, update.place(batch))
        return met, update.accumulate._cache_size()

    met, programs = play(epoch=0)
    assert len(met) == 2 and programs <= 2  # other tests may have made one of them
    assert play(epoch=1) == (met, programs)


def test_on_policy_ratios_are_one(learner, rows):
    on_policy = []
    for row, logp_N in zip(rows, logps(learner, *rows), strict=True):
        live = np.flatnonzero(row.loss_weight)
        old_logp = np.zeros_like(row.loss_weight)
        old_logp[live] = logp_N[: len(live)]
        on_policy.append(dataclasses.replace(row, old_logp=old_logp))
    sums = add_up(*learner, on_policy, 8)["metrics"]
    assert float(sums["ratio"]) == pytest.approx(sum(LIVE), rel=1e-6)
    assert float(sums["log_ratio_max"]) < 1e-5
    assert float(sums["mismatch_kl"]) == pytest.approx(0.0, abs=1e-5)
    assert float(sums["clipped"]) == 0.0


def test_temperature_and_forbidden_ids_are_the_samplers(learner):
    """By the probabilities of every allowed last token of a row."""
    row = toys.make_row(0, 6, 24)
    allowed = [t for t in range(toys.VOCAB) if t not in toys.RULE.forbidden_ids]

    def endings(learner, tokens):
        ids = [np.append(row.ids[:-1], np.int32(token)) for token in tokens]
        rows = [dataclasses.replace(row, ids=each) for each in ids]
        parts = [rows[start : start + 8] for start in range(0, len(rows), 8)]
        return np.concatenate([logps(learner, *part)[:, 5] for part in parts])

    ruled = endings(learner, allowed)
    assert np.exp(ruled).sum() == pytest.approx(1.0, abs=1e-5)
    plain_rule = types.SamplingRule(temperature=1.0, forbidden_ids=())
    params, update, _ = toys.make_programs(rule=plain_rule)
    plain = endings((params, update), allowed[:8])
    steps = np.diff(plain) / toys.RULE.temperature
    np.testing.assert_allclose(np.diff(ruled[:8]), steps, atol=1e-4)
    assert abs(np.diff(plain) - steps).max() > 1e-2  # the temperature matters here


def test_a_reply_is_scored_by_itself_and_what_is_before_it(learner):
    row = toys.make_row(3, 4, 30)
    other = row.ids.copy()
    other[-1] = 7 if other[-1] != 7 else 8
    got, changed = logps(learner, row, dataclasses.replace(row, ids=other))
    assert (got != changed)[:4].tolist() == [False, False, False, True]


def test_the_picture_is_seen(learner):
    """R20: other pixels under the same tokens are other log-probs."""
    row = toys.make_row(3, 4, 30)
    got, changed = logps(learner, row, dataclasses.replace(row, images=(toys.png(99),)))
    assert np.abs(got - changed)[:4].min() > 1e-3


def test_rows_of_a_batch_do_not_see_one_another(learner, rows):
    together = logps(learner, *rows)
    for b, row in enumerate(rows):
        (alone,) = logps(learner, row)
        np.testing.assert_allclose(together[b], alone, atol=1e-5)


def test_wider_padding_changes_nothing(learner):
    row = toys.make_row(0, 6, 24)
    params, update = learner
    shape = collate.Lattice(
        rows=2, lengths=(40,), loss_tokens=9, images=(3,), patches=(32,)
    )
    wide = collate.collate(
        [[row]],
        shape,
        toys.SPEC,
        image_id=toys.PAD,
        table_side=toys.SIZES.vision.table_side,
    )
    np.testing.assert_allclose(
        update.logps(params, wide)[0, :6], logps(learner, row)[0, :6], atol=1e-5
    )


# Alignment: a model that puts 0.9 on (previous + 1) mod V, as hidden states and table.


def successor_logps(ids, loss_index, index_shift=0):
    """Log-probs at the loss positions of `ids` under that model."""
    V = 8
    table_VD = np.full((V, V), np.log(0.1 / (V - 1)), np.float32)
    table_VD[(np.arange(V) + 1) % V, np.arange(V)] = np.log(0.9)
    ids_BL = jnp.asarray([ids], jnp.int32)
    hidden_BLD = jax.nn.one_hot(ids_BL, V)
    index_BN = jnp.asarray([loss_index], jnp.int32) + index_shift
    (before_N,), (target_N,) = head.at_positions(ids_BL, index_BN)
    rule = types.SamplingRule(temperature=1.0, forbidden_ids=())
    hidden_ND = hidden_BLD[0, before_N]
    logp_N, _ = head.token_logps(hidden_ND, jnp.asarray(table_VD), target_N, rule)
    return np.asarray(logp_N)


def test_a_tokens_logp_comes_from_the_token_before():
    weight = np.array([0, 1, 1], np.float32)
    row = dataclasses.replace(
        toys.make_row(0, 0, 8),
        ids=np.array([3, 4, 5], np.int32),
        loss_weight=weight,
        old_logp=-weight,
        images=(),
    )
    (batch,) = toys.make_batches([row], 1, 8, 2)
    got = successor_logps(batch.ids_BL[0], batch.loss_index_BN[0])
    np.testing.assert_allclose(got, np.log(0.9), rtol=1e-5)
    shifted = successor_logps([3, 4, 5, 3], batch.loss_index_BN[0], index_shift=1)
    assert not np.allclose(shifted, np.log(0.9))


def test_programs_in_turns_end_before_the_next_ones_turn(learner, rows):
    """The numbers are the same, and what comes out is there when the turn is over."""
    params, update = learner
    turns = []

    class Turn:
        def __enter__(self):
            turns.append("begins")

        def __exit__(self, *_):
            turns.append("ends")

    (batch,) = toys.make_batches(rows, 8, LENGTH, LOSS_TOKENS)
    told = update.in_turns(Turn()).logps(params, batch)
    assert turns == ["begins", "ends"]
    np.testing.assert_array_equal(told, update.logps(params, batch))
