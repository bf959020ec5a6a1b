"""From hidden states to log-probabilities, in float32, a few rows at a time.

N rows (loss positions), D width, V vocabulary, B sequences, L tokens. Index t of a
log-probability belongs to token t given the tokens before it; the shift that this
needs happens in `at_positions` and nowhere else.
"""

import jax
import jax.numpy as jnp
import numpy as np

from openwebrl_jax.core.types import SamplingRule
from openwebrl_jax.models import mesh

CHUNK_VALUES = 2**27  # logits that exist at a time: half a gigabyte


def at_positions(ids_BL, loss_index_BN):
    """Where each loss position is predicted, and its token: [B, N] each.

    Index 0 stands for an unused place; it reads the first token and must carry no
    weight.
    """
    target_BN = jnp.take_along_axis(ids_BL, loss_index_BN, axis=1)
    return jnp.maximum(loss_index_BN - 1, 0), target_BN


def token_logps(
    hidden_ND, table_VD, target_N, rule: SamplingRule, *, chunk: int | None = None
):
    """Log-probability of each target under the rule, and the rule's entropy: [N] each.

    Logits exist for `chunk` rows only (None = as many as CHUNK_VALUES allows), in the
    backward pass too. A forbidden target has a log-probability of about -1e30.
    """
    N, D = hidden_ND.shape
    C = min(chunk or max(CHUNK_VALUES // table_VD.shape[0], 1), N)
    R = -(-N // C)
    # Chunk r is every R-th row, so that each chunk is split over the devices as N is.
    hidden_CRD = jnp.pad(hidden_ND, ((0, C * R - N), (0, 0))).reshape(C, R, D)
    target_CR = jnp.pad(target_N, (0, C * R - N)).reshape(C, R)

    @jax.checkpoint
    def score(hidden_and_target):
        hidden_CD, target_C = hidden_and_target
        logit_CV = sample_logits(hidden_CD, table_VD, rule)
        logp_CV = jax.nn.log_softmax(logit_CV, axis=-1)
        # A comparison, not a gather: the vocabulary may be split over devices.
        is_target_CV = target_C[:, None] == jnp.arange(logit_CV.shape[1])[None]
        logp_C = jnp.sum(jnp.where(is_target_CV, logp_CV, 0.0), axis=-1)
        return logp_C, -jnp.sum(jnp.exp(logp_CV) * logp_CV, axis=-1)

    if R == 1:
        return score((hidden_ND, target_N))
    chunks = hidden_CRD.swapaxes(0, 1), target_CR.swapaxes(0, 1)
    pair_RC = jax.lax.map(score, chunks)
    return tuple(value_RC.swapaxes(0, 1).reshape(-1)[:N] for value_RC in pair_RC)


def sample_logits(hidden_BD, table_VD, rule: SamplingRule):
    """Logits [B, V] of the distribution that is sampled from, float32."""
    logit_BV = jnp.einsum(
        "bd,vd->bv", hidden_BD, table_VD, preferred_element_type=jnp.float32
    )
    logit_BV = mesh.constrain(logit_BV, "batch", "vocab") / rule.temperature
    if not rule.forbidden_ids:
        return logit_BV
    is_forbidden_1V = np.zeros((1, table_VD.shape[0]), bool)
    is_forbidden_1V[0, list(rule.forbidden_ids)] = True
    return jnp.where(is_forbidden_1V, -1e30, logit_BV)
