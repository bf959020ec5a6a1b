"""MT-SFT: weighted cross-entropy, and the weights of data sets of unequal size.

    L = (1/B) sum_m alpha_d(m) (1/T_m) sum_t -log p(token t)     (arXiv 2602.13559)

B rows, N loss positions a row; the weights hold alpha / (T B), see batch.demos.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from openwebrl_jax.algos import masked


def loss(logp_BN, entropy_BN, old_logp_BN, advantage_BN, weight_BN, algo):
    """The summed loss, and sums for metrics; the arguments are those of mm_grpo.

    There is no behaviour policy: `old_logp_BN`, `advantage_BN`, `algo` are not read.
    """
    del old_logp_BN, advantage_BN, algo
    if logp_BN.shape != weight_BN.shape or weight_BN.ndim != 2:
        raise ValueError(
            f"want one shape [B, N], got {logp_BN.shape} and {weight_BN.shape}"
        )
    live_BN = weight_BN != 0.0
    summed = masked.weighted(-logp_BN, weight_BN)
    sums = {
        "loss": summed,
        "tokens": live_BN.sum().astype(jnp.float32),
        "entropy": masked.total(entropy_BN, live_BN),
        "nll": masked.total(-logp_BN, live_BN),
        "nll_max": masked.largest(-logp_BN, live_BN),
    }
    return summed, sums


def effective_weights(sizes: Sequence[int], k: float) -> list[float]:
    """alpha by effective number, b = 1 - 10^-k: mean 1, more for smaller data sets.

    Example: sizes (1e6, 1e6, 5e3) at k = 4 -> (0.661, 0.661, 1.679).
    """
    if min(sizes) <= 0:
        raise ValueError(f"data set sizes {tuple(sizes)}; each must be above 0")
    counts = np.asarray(sizes, np.float64)
    with np.errstate(divide="ignore"):  # k = 0: log 0 = -inf, and all weights are 1
        inverse = 1.0 / -np.expm1(counts * np.log1p(-(10.0**-k)))
    return list(len(counts) * inverse / inverse.sum())
