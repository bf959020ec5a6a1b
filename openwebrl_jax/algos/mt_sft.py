"""MT-SFT: cross-entropy as a weighted sum over tokens.

    L = (1/B) sum_m alpha_d(m) (1/T_m) sum_t -log p(token t)     (arXiv 2602.13559)

B rows, N loss positions a row; the weights hold alpha / (T B), see batch.demos.
"""

import jax.numpy as jnp

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
