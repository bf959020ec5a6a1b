"""What is drawn follows the rule, row by row; what was never allowed never comes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import grpo_long, grpo_short
from openwebrl_jax.core import types
from openwebrl_jax.models import head
from openwebrl_jax.models.sizes import DecoderSizes
from openwebrl_jax.policy import generate

draw = jax.jit(generate.draw)


def test_draws_follow_the_distribution_and_tell_its_log_probs():
    logits_V = jnp.array([1.0, 0.0, -1.0, 2.0])
    p_V = np.asarray(jax.nn.softmax(logits_V))
    B = 20_000
    token_B, logp_B = draw(
        jnp.tile(logits_V, (B, 1)),
        jax.random.split(jax.random.key(0), B),
        jnp.zeros(B, bool),
    )
    share_V = np.bincount(token_B, minlength=4) / B
    np.testing.assert_allclose(share_V, p_V, atol=4 * 0.5 / B**0.5)
    np.testing.assert_allclose(logp_B, np.log(p_V)[token_B], atol=1e-6)


def test_a_greedy_row_takes_the_greatest_and_keeps_the_log_prob():
    logits_BV = jnp.array([[0.0, 0.1, 0.05], [0.0, 0.1, 0.05]])
    for seed in range(20):
        key_B = jax.random.split(jax.random.key(seed), 2)
        token_B, logp_B = draw(logits_BV, key_B, jnp.array([True, False]))
        assert token_B[0] == 1
        np.testing.assert_allclose(logp_B[0], jax.nn.log_softmax(logits_BV[0])[1])


def test_forbidden_ids_never_come_even_when_the_logits_favour_them():
    rule = types.SamplingRule(temperature=1.0, forbidden_ids=(1, 3))
    table_VD = jnp.array([[0.0], [100.0], [1.0], [1000.0]])
    B = 2000
    logits_BV = head.sample_logits(jnp.ones((B, 1)), table_VD, rule)
    for is_greedy in (False, True):
        token_B, logp_B = draw(
            logits_BV,
            jax.random.split(jax.random.key(0), B),
            jnp.full(B, is_greedy),
        )
        assert not np.isin(token_B, rule.forbidden_ids).any()
        allowed = np.log(np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum())
        np.testing.assert_allclose(logp_B, allowed[(token_B == 2) * 1], rtol=1e-5)


def make_lattice(**sample):
    return generate.make_lattice(
        ConfigDict(
            {
                "slots": 48,
                "context_tokens": 32_768,
                "response_tokens": 1024,
                "prompt_buckets": (2048, 32_768),
                "static": False,
                **sample,
            }
        )
    )


def test_a_decode_has_few_widths():
    assert make_lattice().widths == (12, 24, 48)
    assert make_lattice(slots=3).widths == (1, 2, 3)
    assert make_lattice(slots=1).widths == (1,)


SIZES_4B = DecoderSizes(
    layers=36,
    kv_heads=8,
    head_width=128,
    width=2560,
    vocab=151_936,
    mlp=9728,
    heads=32,
    norm_eps=1e-6,
    rope_theta=5e6,
    rope_section=(24, 20, 20),
)


def test_what_a_row_of_the_4b_model_takes():
    places = 32_768 + 32
    assert make_lattice().row_bytes(SIZES_4B, jnp.bfloat16) == places * 147_456


@pytest.mark.parametrize("experiment", [grpo_short, grpo_long])
def test_the_rows_of_the_full_experiments_fit_an_accelerator(experiment):
    """One of 141 GB, of which jax takes 3/4; the largest that they name has 180.

    While weights come in they are there three times: sent, old and new.
    """
    lattice = generate.make_lattice(experiment.get_config().sample)
    rows = lattice.rows + lattice.widths[-1]
    row_bytes = lattice.row_bytes(SIZES_4B, jnp.bfloat16)
    weight_bytes = 2 * 4.44e9
    assert rows * row_bytes + 3 * weight_bytes < 0.75 * 141e9


def test_no_call_runs_over_the_end_of_a_row():
    for context in (40, 64, 160, 32_768):
        lattice = make_lattice(
            context_tokens=context, response_tokens=32, prompt_buckets=(32, 64)
        )
        *shorter, whole = lattice.places
        assert all(count < context for count in shorter)
        assert whole >= context - 33 + lattice.narrow_tokens
        assert whole >= context - 1 + lattice.decode_tokens
        assert all(tokens <= whole for _, tokens in lattice.prefills())
