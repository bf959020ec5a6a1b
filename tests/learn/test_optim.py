import jax
import numpy as np
import pytest

from openwebrl_jax.learn import optim
from tests.learn import toys


def tails(steps=10, **changed):
    config = toys.make_optim(**changed)
    return [optim.tail(config, step / steps) for step in range(steps)]


def test_tails_by_hand():
    assert tails() == [1.0] * 10
    # the last 40 % of ten steps go down in four equal parts, 0 would be step ten
    got = tails(schedule="trapezoid", decay_share=0.4)
    assert got == pytest.approx([1.0] * 7 + [0.75, 0.5, 0.25])
    got = tails(schedule="cosine")
    assert got == pytest.approx([0.5 * (1 + np.cos(np.pi * n / 10)) for n in range(10)])


def test_the_warm_up_rises_by_steps():
    config = toys.make_optim(
        lr_peak=1.0, warmup_steps=3, b1=0.0, b2=0.0, weight_decay=0.0, clip_norm=1e9
    )
    tx = optim.make_optimizer(config)
    params = toys.few_params()
    ones = jax.tree.map(np.ones_like, params)
    state, sizes = tx.init(params), []
    for _ in range(5):
        updates, state = tx.update(ones, state, params)
        sizes.append(-float(jax.tree.leaves(updates)[0].ravel()[0]))
    assert sizes == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="config.optim.schedule='linear'"):
        tails(schedule="linear")
    with pytest.raises(ValueError, match="config.optim.name='sgd'"):
        optim.make_optimizer(toys.make_optim(name="sgd"))


def flat(tree, is_leaf=None):
    return {
        jax.tree_util.keystr(path[:-1] if len(path) > 1 else path): leaf
        for path, leaf in jax.tree.leaves_with_path(tree, is_leaf=is_leaf)
    }


def names(tree, wanted):
    """Paths of the parameters for which a tree of answers says `wanted`."""
    _, params = toys.make_params()
    chosen = jax.tree.map(
        lambda answer, param: jax.tree.map(lambda leaf: wanted(answer), param),
        tree,
        params,
        is_leaf=lambda node: not isinstance(node, (dict, type(params))),
    )
    return {path for path, answer in flat(chosen).items() if answer}


def test_muon_takes_the_matrices_and_adam_the_rest():
    _, params = toys.make_params()
    matrices = names(optim.matrix_axes(params), lambda axes: axes is not None)
    decayed = names(optim.decayed(params), bool)
    decoder = {
        f"['decoder']['layers']['{name}']"
        for name in ("q", "k", "v", "out", "gate", "up", "down")
    }
    tower = {f"['vision']['blocks']['{name}']" for name in ("qkv", "out", "up", "down")}
    mergers = {
        f"['vision']['{which}']['{name}']"
        for which in ("merger", "tap_mergers")
        for name in ("up", "down")
    }
    assert matrices == decoder | tower | mergers | {"['vision']['patch']"}
    tables = {"['decoder']['embed']", "['vision']['table']", "['head']"}
    assert decayed == matrices | tables


@pytest.fixture(scope="module")
def muon_step():
    """Gradients of very unequal size in the two layers, and Muon's first updates."""
    params = toys.few_params()
    config = toys.make_optim(
        name="muon", lr_peak=0.5, lr_rest=0.01, weight_decay=0.0, clip_norm=1e9
    )
    tx = optim.make_optimizer(config)
    draw = np.random.default_rng(0)

    def one(leaf):
        grad = draw.standard_normal(leaf.shape, np.float32)
        grad[0] *= 1e-3
        return grad

    grads = jax.tree.map(one, params)
    updates = jax.jit(lambda: tx.update(grads, tx.init(params), params)[0])()
    return grads, jax.device_get(updates)


@pytest.mark.parametrize("name", ["q", "down"])
def test_each_layers_matrix_is_orthogonal_by_itself(muon_step, name):
    grads, updates = muon_step
    stack = updates[name][...]
    scale = 0.5 * optim.CONSISTENT_RMS * np.sqrt(max(stack.shape[1:]))
    for layer, grad in zip(stack, grads[name][...], strict=True):
        u, singular, v = np.linalg.svd(layer / scale, full_matrices=False)
        assert singular.min() > 0.4 and singular.max() < 1.4
        want = np.linalg.svd(grad, full_matrices=False)
        # the polar factor of the layer's own gradient, downhill
        np.testing.assert_allclose(u @ v, -want[0] @ want[2], atol=0.05)


@pytest.mark.parametrize("name", ["embed", "table", "attn_norm", "qkv_bias"])
def test_the_rest_moves_as_adam_does(muon_step, name):
    grads, updates = muon_step
    # Adam's first step has the size of the rate, whatever the gradient's
    np.testing.assert_allclose(np.abs(updates[name][...]), 0.01, rtol=0.5)
    np.testing.assert_array_equal(
        np.sign(updates[name][...]), -np.sign(grads[name][...])
    )


def test_decay_of_adamw_spares_norms_and_biases():
    params = toys.few_params()
    tx = optim.make_optimizer(toys.make_optim(lr_peak=0.5, weight_decay=0.1))
    none = jax.tree.map(np.zeros_like, params)
    updates = jax.jit(lambda: tx.update(none, tx.init(params), params)[0])()
    for name in ("q", "down", "embed", "table"):
        got, want = np.asarray(updates[name][...]), -0.05 * params[name][...]
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert not np.asarray(updates["attn_norm"][...]).any()
    assert not np.asarray(updates["qkv_bias"][...]).any()
