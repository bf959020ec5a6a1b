import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openwebrl_jax.algos import mt_sft


def test_loss_by_hand():
    logp = jnp.array([[-1.0, -2.0], [-3.0, -jnp.inf]])
    weight = jnp.array([[0.25, 0.25], [0.5, 0.0]])
    loss, sums = mt_sft.loss(logp, -logp, logp, logp, weight, None)
    assert float(loss) == pytest.approx(0.25 * 3.0 + 1.5)
    assert float(sums["nll"]) == 6.0
    assert float(sums["nll_max"]) == 3.0
    assert float(sums["tokens"]) == 3.0
    assert float(sums["loss"]) == float(loss)


def test_nothing_live_is_exactly_zero():
    def loss(logp):
        zero = jnp.zeros_like(logp)
        return mt_sft.loss(logp, zero, zero, zero, zero, None)

    (value, sums), grad = jax.value_and_grad(loss, has_aux=True)(
        jnp.full((2, 3), -jnp.inf)
    )
    assert float(value) == 0.0
    assert all(float(x) == 0.0 for x in sums.values())
    assert not np.asarray(grad).any()
