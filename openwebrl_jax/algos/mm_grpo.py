"""MM-GRPO's loss (arXiv 2606.02031, section 4) as a weighted sum over tokens.

    rho = exp(logp - old_logp)
    l = max(-rho A, -clip(rho, 1 - clip_low, 1 + clip_high) A)
        + kl * (rho - 1 - log rho) - entropy * H

`old_logp` is the behaviour policy's, at the sampling temperature. The weights carry
all normalisation (see batch.rows), so that sums over micro-batches and devices add up.

B rows, N loss positions a row; a weight of 0 marks an unused position.
Deviations: the log-ratio is cut at +-20 so that exp stays finite. The KL term is k3
of KL(behaviour || policy), whose value and gradient are both unbiased because the
tokens were sampled from the behaviour policy; k3 of KL(policy || reference), as often
used, has a biased gradient.
"""

import jax.numpy as jnp

from openwebrl_jax.algos import masked

LOG_RATIO_CAP = 20.0


def loss(logp_BN, entropy_BN, old_logp_BN, advantage_BN, weight_BN, algo):
    """The summed loss, and sums for metrics (names ending in `_max` are maxima).

    Args:
      algo: the part `config.algo`; clip_low, clip_high, kl and entropy are read.
    """
    shapes = {x.shape for x in (logp_BN, entropy_BN, old_logp_BN, advantage_BN)}
    if shapes != {weight_BN.shape} or weight_BN.ndim != 2:
        raise ValueError(f"want one shape [B, N], got {shapes} and {weight_BN.shape}")
    live_BN = weight_BN != 0.0
    log_ratio_BN = masked.fill(logp_BN - old_logp_BN, live_BN)
    log_ratio_BN = jnp.clip(log_ratio_BN, -LOG_RATIO_CAP, LOG_RATIO_CAP)
    ratio_BN = jnp.exp(log_ratio_BN)
    k3_BN = jnp.expm1(log_ratio_BN) - log_ratio_BN
    clipped_BN = jnp.clip(ratio_BN, 1.0 - algo.clip_low, 1.0 + algo.clip_high)
    free_BN, bound_BN = -ratio_BN * advantage_BN, -clipped_BN * advantage_BN
    loss_BN = jnp.maximum(free_BN, bound_BN)
    if algo.kl:
        loss_BN += algo.kl * k3_BN
    if algo.entropy:
        loss_BN -= algo.entropy * masked.fill(entropy_BN, live_BN)
    summed = masked.weighted(loss_BN, weight_BN)
    sums = {
        "loss": summed,
        "tokens": live_BN.sum().astype(jnp.float32),
        "entropy": masked.total(entropy_BN, live_BN),
        "ratio": masked.total(ratio_BN, live_BN),
        "clipped": masked.total(bound_BN > free_BN, live_BN),
        "mismatch_kl": masked.total(k3_BN, live_BN),
        "log_ratio_max": masked.largest(jnp.abs(log_ratio_BN), live_BN),
    }
    return summed, sums
