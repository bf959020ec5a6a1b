import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openwebrl_jax.algos import mm_grpo


def algo(**changed):
    return types.SimpleNamespace(
        **{"clip_low": 0.2, "clip_high": 0.28, "kl": 0.0, "entropy": 0.0, **changed}
    )


def run_loss(part, *arrays):
    """The loss of logp, entropy, old_logp, advantage, weight as one program."""
    return jax.jit(lambda *arrays: mm_grpo.loss(*arrays, part))(*arrays)


def call(ratio, advantage, weight, entropy=None, kl=0.0, entropy_weight=0.0):
    """The loss of one row with the given ratios against a behaviour log-prob of -1."""
    ratio, weight = np.asarray([ratio], np.float32), np.asarray([weight], np.float32)
    old = np.full_like(ratio, -1.0)
    entropy = np.zeros_like(ratio) if entropy is None else np.asarray([entropy])
    advantage = np.broadcast_to(np.float32(advantage), ratio.shape)
    part = algo(kl=kl, entropy=entropy_weight)
    logp = old + np.log(ratio)
    return run_loss(part, logp, np.float32(entropy), old, advantage, weight)


def test_positive_advantage_by_hand():
    loss, sums = call([1.0, 1.2, 1.5, 0.5], 2.0, [0.25] * 4)
    # -rho A up to rho = 1.28, and unclipped below: 0.25 * 2 * (1 + 1.2 + 1.28 + .5)
    assert float(loss) == pytest.approx(-0.5 * 3.98, rel=1e-6)
    assert float(sums["clipped"]) == 1.0
    assert float(sums["tokens"]) == 4.0
    assert float(sums["ratio"]) == pytest.approx(4.2, rel=1e-6)
    assert float(sums["log_ratio_max"]) == pytest.approx(np.log(2.0), rel=1e-5)


def test_negative_advantage_by_hand():
    loss, sums = call([1.0, 1.5, 0.5], -1.0, [1.0, 1.0, 1.0])
    # max(rho, clip(rho)): 1 + 1.5 + 0.8
    assert float(loss) == pytest.approx(3.3, rel=1e-6)
    assert float(sums["clipped"]) == 1.0


def test_kl_and_entropy_terms_by_hand():
    ratio, weight, entropy = [2.0, 1.0], [1.0, 0.5], [0.3, 0.4]
    loss, sums = call(ratio, 0.0, weight, entropy, kl=0.1)
    assert float(loss) == pytest.approx(0.1 * (2.0 - 1.0 - np.log(2.0)), rel=1e-5)
    assert float(sums["entropy"]) == pytest.approx(0.7)
    loss, _ = call(ratio, 0.0, weight, entropy, entropy_weight=0.1)
    assert float(loss) == pytest.approx(-0.1 * (0.3 + 0.2), rel=1e-6)


def test_gradient_passes_through_live_tokens_alone():
    # tokens [sys, obs, act, obs, act, pad]
    live = np.array([[0, 0, 1, 0, 1, 0]], np.float32)
    logp = np.log(np.array([[0.5, 0.4, 0.3, 0.2, 0.6, 0.7]], np.float32))
    old, advantage = logp - np.float32(0.01), np.full((1, 6), 0.7, np.float32)

    @jax.jit
    @jax.grad
    def grad_of(logp, weight):
        return mm_grpo.loss(logp, logp, old, advantage, weight, algo(kl=0.1))[0]

    got = np.asarray(grad_of(logp, live))
    assert ((got != 0) == (live != 0)).all()
    other = np.where(live == 0, logp - np.float32(3.0), logp)
    np.testing.assert_array_equal(got, grad_of(other, live))
    inverted = np.asarray(grad_of(logp, 1.0 - live))
    assert ((inverted != 0) != (live != 0)).all()


@pytest.mark.parametrize("bad", [-np.inf, np.inf, np.nan])
def test_dead_positions_may_hold_anything(bad):
    old, advantage = np.float32([[-1.0, 0.0]]), np.float32([[1.0, 1.0]])
    weight, logp = np.float32([[0.5, 0.0]]), np.float32([[-0.9, bad]])

    def loss(logp):
        return mm_grpo.loss(logp, logp, old, advantage, weight, algo(kl=0.1))

    (value, sums), grad = jax.jit(jax.value_and_grad(loss, has_aux=True))(logp)
    assert np.isfinite(value)
    assert np.isfinite(grad).all() and grad[0, 1] == 0.0
    assert all(np.isfinite(number) for number in sums.values())


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_nothing_live_is_exactly_zero(shape):
    def loss(logp):
        zero = jnp.zeros(shape)
        return mm_grpo.loss(logp, logp, zero, zero, zero, algo(kl=0.1, entropy=0.1))

    logp = np.full(shape, -3.0, np.float32)
    jax.config.update("jax_debug_nans", True)
    try:
        (value, sums), grad = jax.jit(jax.value_and_grad(loss, has_aux=True))(logp)
    finally:
        jax.config.update("jax_debug_nans", False)
    assert float(value) == 0.0
    assert all(float(number) == 0.0 for number in sums.values())
    assert not np.asarray(grad).any()


def test_a_far_ratio_stays_finite():
    near, _ = call([1.0], -1.0, [1.0])
    zero, one = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    far, sums = run_loss(algo(), zero, zero, -200 * one, -one, one)
    assert np.isfinite(far) and far > near
    assert float(sums["log_ratio_max"]) == mm_grpo.LOG_RATIO_CAP


def test_shapes_are_checked():
    x = jnp.zeros((1, 2))
    with pytest.raises(ValueError, match="one shape"):
        mm_grpo.loss(x, x, x, jnp.zeros((1, 1)), x, algo())


# The KL term against exact enumeration: sequences of two tokens over three words,
# the second one conditioned on the first.


@jax.jit
def sequence_logps(first_V, second_VV):
    """Log-probs [V * V, 2] of both tokens of every sequence."""
    a, b = jax.nn.log_softmax(first_V), jax.nn.log_softmax(second_VV)
    pairs = list(itertools.product(range(3), repeat=2))
    return jnp.stack([jnp.stack([a[i], b[i, j]]) for i, j in pairs])


def random_policy(seed):
    keys = jax.random.split(jax.random.key(seed))
    return jax.random.normal(keys[0], (3,)), jax.random.normal(keys[1], (3, 3))


def exact_kl(policy, behaviour_S2):
    logp_S2 = sequence_logps(*policy)
    q_S = jnp.exp(behaviour_S2.sum(1))
    return (q_S * (behaviour_S2 - logp_S2).sum(1)).sum()


def expected_k3(policy, behaviour_S2, weight_S2):
    logp_S2 = sequence_logps(*policy)
    zero = jnp.zeros_like(logp_S2)
    return mm_grpo.loss(logp_S2, zero, behaviour_S2, zero, weight_S2, algo(kl=1.0))[0]


def test_k3_and_its_gradient_are_the_exact_kl_in_expectation():
    policy, behaviour_S2 = random_policy(0), sequence_logps(*random_policy(1))
    weight_S2 = jnp.repeat(jnp.exp(behaviour_S2.sum(1))[:, None], 2, axis=1)
    got, got_grad = jax.jit(jax.value_and_grad(expected_k3))(
        policy, behaviour_S2, weight_S2
    )
    want, want_grad = jax.jit(jax.value_and_grad(exact_kl))(policy, behaviour_S2)
    assert float(got) == pytest.approx(float(want), rel=1e-5)
    for a, b in zip(got_grad, want_grad, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    single = jax.jit(jax.vmap(lambda w: expected_k3(policy, behaviour_S2, w)))(
        jnp.eye(18).reshape(18, 9, 2)
    )
    assert (np.asarray(single) >= 0.0).all()


def test_two_hundred_sampled_steps_lower_the_exact_kl():
    policy, behaviour_S2 = random_policy(0), sequence_logps(*random_policy(1))
    kl = jax.jit(exact_kl)
    start = float(kl(policy, behaviour_S2))

    @jax.jit
    def step(policy, key):
        picks = jax.random.categorical(key, behaviour_S2.sum(1), shape=(64,))
        count_S = jnp.zeros(9).at[picks].add(1.0 / 64)
        weight_S2 = jnp.repeat(count_S[:, None], 2, axis=1)
        grads = jax.grad(expected_k3)(policy, behaviour_S2, weight_S2)
        return jax.tree.map(lambda p, g: p - 0.3 * g, policy, grads)

    for key in jax.random.split(jax.random.key(2), 200):
        policy = step(policy, key)
    assert float(kl(policy, behaviour_S2)) < 0.05 * start
