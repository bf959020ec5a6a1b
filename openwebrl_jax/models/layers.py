"""What vision tower and decoder share: declared parameters, norms, rope, attention.

B rows, L queries, S keys, D width, H query heads, G key-value heads, R = H / G,
K head width, N = layers that are stacked. Modules only declare their parameters;
`init.py` and `load.py` fill them.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx


def declare(shape, axes, *, mean=0.0, std=0.0) -> nnx.Param:
    """A parameter without a value yet.

    `axes` names each dimension for `mesh.RULES`; a fresh model draws
    mean + std x normal.
    """
    return nnx.Param(
        jax.ShapeDtypeStruct(shape, jnp.float32), axes=axes, mean=mean, std=std
    )


def kernel(shape, axes) -> nnx.Param:
    """A matrix [..., in, out], drawn so that it keeps the size of what it maps."""
    return declare(shape, axes, std=1.0 / math.sqrt(shape[-2]))


def at(stack, index):
    """One layer (int) or some (slice) of a module of stacked parameters."""
    return jax.tree.map(lambda leaf: leaf[index], stack)


def rms_norm(x_BLD, scale_D, eps):
    """Root-mean-square norm in float32, back in the input's dtype."""
    x32_BLD = x_BLD.astype(jnp.float32)
    square_BL1 = jnp.mean(x32_BLD * x32_BLD, axis=-1, keepdims=True)
    return (x32_BLD * jax.lax.rsqrt(square_BL1 + eps)).astype(x_BLD.dtype) * scale_D


def layer_norm(x_BLD, scale_D, bias_D, eps=1e-6):
    """Layer norm in float32, back in the input's dtype."""
    x32_BLD = x_BLD.astype(jnp.float32)
    x32_BLD = x32_BLD - jnp.mean(x32_BLD, axis=-1, keepdims=True)
    square_BL1 = jnp.mean(x32_BLD * x32_BLD, axis=-1, keepdims=True)
    x32_BLD = x32_BLD * jax.lax.rsqrt(square_BL1 + eps)
    return (x32_BLD * scale_D + bias_D).astype(x_BLD.dtype)


def frequencies(pairs: int, theta: float):
    """Rotation per position of each of a head's pairs, [pairs] float32."""
    return theta ** -(jnp.arange(pairs, dtype=jnp.float32) / pairs)


def rotate(x_BLHK, angle_BLk):
    """Rotary embedding: value i is paired with value i + K/2, turned by angle i."""
    first_BLHk, second_BLHk = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    cos_BL1k, sin_BL1k = jnp.cos(angle_BLk)[:, :, None], jnp.sin(angle_BLk)[:, :, None]
    turned_BLHK = jnp.concatenate(
        [
            first_BLHk * cos_BL1k - second_BLHk * sin_BL1k,
            second_BLHk * cos_BL1k + first_BLHk * sin_BL1k,
        ],
        axis=-1,
    )
    return turned_BLHK.astype(x_BLHK.dtype)


def attend(q_BLHK, k_BSGK, v_BSGK, mask_BLS):
    """Grouped-query attention where the mask is True; softmax in float32.

    Head h reads key-value head h // R. A query that may see nothing gets the mean of
    all values: finite, and never read.
    """
    B, L, H, K = q_BLHK.shape
    G = k_BSGK.shape[2]
    q_BLGRK = q_BLHK.reshape(B, L, G, H // G, K)
    score_BGRLS = jnp.einsum(
        "blgrk,bsgk->bgrls", q_BLGRK, k_BSGK, preferred_element_type=jnp.float32
    )
    score_BGRLS = score_BGRLS * K**-0.5
    score_BGRLS = jnp.where(mask_BLS[:, None, None], score_BGRLS, -1e30)
    weight_BGRLS = jax.nn.softmax(score_BGRLS, axis=-1).astype(v_BSGK.dtype)
    out_BLGRK = jnp.einsum("bgrls,bsgk->blgrk", weight_BGRLS, v_BSGK)
    return out_BLGRK.reshape(B, L, H * K)
