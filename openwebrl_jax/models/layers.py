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


def broad(vector_D, x_BLD):
    """The vector along the last axis of x: ranks are never promoted silently."""
    return jnp.expand_dims(vector_D, range(x_BLD.ndim - 1))


def linear(x_BLD, kernel_DF, bias_F):
    """x @ kernel + bias."""
    y_BLF = x_BLD @ kernel_DF
    return y_BLF + broad(bias_F, y_BLF)


def rms_norm(x_BLD, scale_D, eps):
    """Root-mean-square norm in float32, back in the input's dtype."""
    x32_BLD = x_BLD.astype(jnp.float32)
    square_BL1 = jnp.mean(x32_BLD * x32_BLD, axis=-1, keepdims=True)
    x_BLD = (x32_BLD * jax.lax.rsqrt(square_BL1 + eps)).astype(x_BLD.dtype)
    return x_BLD * broad(scale_D, x_BLD)


def layer_norm(x_BLD, scale_D, bias_D, eps=1e-6):
    """Layer norm in float32, back in the input's dtype."""
    x32_BLD = x_BLD.astype(jnp.float32)
    x32_BLD = x32_BLD - jnp.mean(x32_BLD, axis=-1, keepdims=True)
    square_BL1 = jnp.mean(x32_BLD * x32_BLD, axis=-1, keepdims=True)
    x32_BLD = x32_BLD * jax.lax.rsqrt(square_BL1 + eps)
    x32_BLD = x32_BLD * broad(scale_D, x_BLD) + broad(bias_D, x_BLD)
    return x32_BLD.astype(x_BLD.dtype)


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


def head_major(x_BLHK):
    """[B, H, L, K]: the order in which XLA-CPU multiplies without a detour."""
    return x_BLHK.swapaxes(1, 2)


def attend(q_BLHK, k_BGSK, v_BGSK, mask_BLS):
    """Grouped-query attention where the mask is True: [B, L, H * K].

    Head h reads key-value head h // R; softmax in float32. A query that may see
    nothing gets the mean of all values: finite, and never read.
    """
    B, L, H, K = q_BLHK.shape
    G, S = k_BGSK.shape[1:3]
    # The R heads of a key-value head lie on the query axis: no key is repeated.
    q_BGXK = head_major(q_BLHK * K**-0.5).reshape(B, G, H // G * L, K)
    score_BGXS = jnp.einsum(
        "bgxk,bgsk->bgxs", q_BGXK, k_BGSK, preferred_element_type=jnp.float32
    )
    score_BGRLS = score_BGXS.reshape(B, G, H // G, L, S)
    score_BGRLS = jnp.where(mask_BLS[:, None, None], score_BGRLS, -1e30)
    weight_BGRLS = jax.nn.softmax(score_BGRLS, axis=-1).astype(v_BGSK.dtype)
    weight_BGXS = weight_BGRLS.reshape(B, G, H // G * L, S)
    out_BGXK = jnp.einsum("bgxs,bgsk->bgxk", weight_BGXS, v_BGSK)
    return head_major(out_BGXK.reshape(B, H, L, K)).reshape(B, L, H * K)
