"""From hidden states to log-probabilities, in float32, a few rows at a time.

N rows (loss positions), D width, V vocabulary, B sequences, L tokens. Index t of a
log-probability belongs to token t given the tokens before it; the shift that this
needs happens in `at_positions` and nowhere else.
"""

import jax
import jax.numpy as jnp
import numpy as np

from openwebrl_jax.core.types import SamplingRule

CHUNK = 1024


def at_positions(hidden_BLD, ids_BL, loss_index_BN):
    """What predicts each loss position, and its token: ([B * N, D], [B * N]).

    Index 0 stands for an unused place; it reads the first token and must carry no
    weight.
    """
    before_BN = jnp.maximum(loss_index_BN - 1, 0)
    hidden_BND = jnp.take_along_axis(hidden_BLD, before_BN[..., None], axis=1)
    target_BN = jnp.take_along_axis(ids_BL, loss_index_BN, axis=1)
    return hidden_BND.reshape(-1, hidden_BLD.shape[-1]), target_BN.reshape(-1)


def token_logps(
    hidden_ND, table_VD, target_N, rule: SamplingRule, *, chunk: int = CHUNK
):
    """Log-probability of each target under the rule, and the rule's entropy: [N] each.

    Logits exist for one chunk of rows only, in the backward pass too. A forbidden
    target has log-probability of about -1e30.
    """
    N, D = hidden_ND.shape
    chunk = min(chunk, N)
    rows = -(-N // chunk) * chunk
    hidden_RCD = jnp.pad(hidden_ND, ((0, rows - N), (0, 0))).reshape(-1, chunk, D)
    target_RC = jnp.pad(target_N, (0, rows - N)).reshape(-1, chunk)

    @jax.checkpoint
    def one(hidden_and_target):
        hidden_CD, target_C = hidden_and_target
        logit_CV = sample_logits(hidden_CD, table_VD, rule)
        logp_CV = jax.nn.log_softmax(logit_CV, axis=-1)
        logp_C = jnp.take_along_axis(logp_CV, target_C[:, None], axis=-1)[:, 0]
        entropy_C = -jnp.sum(jnp.exp(logp_CV) * logp_CV, axis=-1)
        return logp_C, entropy_C

    logp_RC, entropy_RC = jax.lax.map(one, (hidden_RCD, target_RC))
    return logp_RC.reshape(-1)[:N], entropy_RC.reshape(-1)[:N]


def sample_logits(hidden_BD, table_VD, rule: SamplingRule):
    """Logits [B, V] of the distribution that is sampled from, float32."""
    logit_BV = jnp.einsum(
        "bd,vd->bv", hidden_BD, table_VD, preferred_element_type=jnp.float32
    )
    logit_BV = logit_BV / rule.temperature
    if not rule.forbidden_ids:
        return logit_BV
    is_forbidden_1V = np.zeros((1, table_VD.shape[0]), bool)
    is_forbidden_1V[0, list(rule.forbidden_ids)] = True
    return jnp.where(is_forbidden_1V, -1e30, logit_BV)
