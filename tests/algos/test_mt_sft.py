import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openwebrl_jax.algos import mt_sft


@pytest.mark.parametrize(
    ("k", "want"),
    [
        (4, (0.661, 0.661, 1.679)),
        (5, (0.133, 0.133, 2.733)),
        (6, (0.023, 0.023, 2.953)),
        (7, (0.016, 0.016, 2.969)),
        (0, (1.0, 1.0, 1.0)),
    ],
)
def test_effective_weights_of_the_published_sizes(k, want):
    got = mt_sft.effective_weights((1_000_000, 1_000_000, 5_000), k)
    assert got == pytest.approx(want, abs=6e-4)
    assert sum(got) == pytest.approx(3.0)


def test_an_empty_data_set_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        mt_sft.effective_weights((10, 0), 4.0)


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
