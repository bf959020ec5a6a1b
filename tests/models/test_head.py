"""Log-probabilities of tokens: alignment, rule, chunks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openwebrl_jax.core.types import SamplingRule
from openwebrl_jax.models import head

PLAIN = SamplingRule(temperature=1.0, forbidden_ids=())


def test_index_t_is_token_t_given_the_tokens_before():
    """A model that says token + 1 next has log 0.9 at each step, and only there."""
    V = 8
    ids_BL = jnp.asarray([[3, 4, 5, 6], [1, 2, 3, 7]])
    logit = np.full((V, V), math.log(0.1 / (V - 1)), np.float32)
    logit[np.arange(V), (np.arange(V) + 1) % V] = math.log(0.9)
    hidden_BLD = jnp.asarray(logit)[ids_BL]
    index_BN = jnp.asarray([[1, 2, 3], [1, 3, 0]])
    before_BN, target_BN = head.at_positions(ids_BL, index_BN)
    hidden_BND = jnp.take_along_axis(hidden_BLD, before_BN[..., None], axis=1)
    logp_N, _ = head.token_logps(
        hidden_BND.reshape(-1, V), jnp.eye(V), target_BN.reshape(-1), PLAIN
    )
    low = math.log(0.1 / 7)
    want = [math.log(0.9)] * 3 + [math.log(0.9), low]
    np.testing.assert_allclose(logp_N[:5], want, rtol=1e-5)


def test_the_rule_is_temperature_then_forbidden_ids():
    rule = SamplingRule(temperature=0.5, forbidden_ids=(1,))
    table_VD = jnp.asarray([[1.0], [9.0], [2.0]])
    hidden_ND = jnp.asarray([[1.0]] * 3)
    logp_N, entropy_N = head.token_logps(
        hidden_ND, table_VD, jnp.asarray([0, 2, 1]), rule
    )
    p = 1 / (1 + math.exp(2))  # logits 1 and 2 become 2 and 4
    np.testing.assert_allclose(logp_N[:2], [math.log(p), math.log(1 - p)], rtol=1e-5)
    assert logp_N[2] < -1e29
    want = -p * math.log(p) - (1 - p) * math.log(1 - p)
    np.testing.assert_allclose(entropy_N, [want] * 3, rtol=1e-5)
    logit_BV = head.sample_logits(hidden_ND[:1], table_VD, rule)
    np.testing.assert_allclose(logit_BV[0, [0, 2]], [2.0, 4.0])
    assert logit_BV[0, 1] < -1e29


@pytest.mark.parametrize("chunk", [5, 64])
def test_chunks_change_nothing(chunk):
    """Values, and gradients of hidden states and table, to 1e-6."""
    N, D, V = 23, 16, 40
    rule = SamplingRule(temperature=0.8, forbidden_ids=(3, 39))
    draw = np.random.default_rng(0)
    hidden_ND = jnp.asarray(draw.normal(size=(N, D)), jnp.float32)
    table_VD = jnp.asarray(draw.normal(size=(V, D)), jnp.float32)
    target_N = jnp.asarray(draw.integers(4, 39, N))
    weight_2N = jnp.asarray(draw.normal(size=(2, N)), jnp.float32)

    def chunked(hidden_ND, table_VD):
        pair = head.token_logps(hidden_ND, table_VD, target_N, rule, chunk=chunk)
        return (weight_2N * jnp.stack(pair)).sum(), pair

    def whole(hidden_ND, table_VD):
        logit_NV = hidden_ND @ table_VD.T / rule.temperature
        logit_NV = logit_NV.at[:, jnp.asarray(rule.forbidden_ids)].set(-jnp.inf)
        logp_NV = jax.nn.log_softmax(logit_NV)
        logp_N = jnp.take_along_axis(logp_NV, target_N[:, None], axis=1)[:, 0]
        kept_V = np.setdiff1d(np.arange(V), rule.forbidden_ids)
        logp_NV = logp_NV[:, kept_V]
        pair = logp_N, -(jnp.exp(logp_NV) * logp_NV).sum(axis=1)
        return (weight_2N * jnp.stack(pair)).sum(), pair

    grad = jax.grad(whole, (0, 1), has_aux=True)
    want_grads, want = grad(hidden_ND, table_VD)
    got_grads, got = jax.jit(jax.grad(chunked, (0, 1), has_aux=True))(
        hidden_ND, table_VD
    )
    for a, b in zip((*got, *got_grads), (*want, *want_grads), strict=True):
        scale = max(1.0, float(jnp.abs(b).max()))
        np.testing.assert_allclose(a, b, atol=1e-6 * scale, rtol=0)
