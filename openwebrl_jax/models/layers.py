"""What vision tower and decoder share: declared parameters, norms, rope, attention.

B rows, L queries, S keys, D width, H query heads, G key-value heads, R = H / G,
K head width, N = layers that are stacked. Modules only declare their parameters;
`init.py` and `load.py` fill them.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

UNROLL = 4  # layers


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


def run(layer, x, stack, count: int, *, remat: bool):
    """x through `count` layers: layer(x, one) -> x, with one layer of the stack each.

    A few layers are written out: a loop would copy what the backward pass needs.
    """
    layer = jax.checkpoint(layer) if remat else layer
    if count <= UNROLL:
        for i in range(count):
            x = layer(x, at(stack, i))
        return x
    return jax.lax.scan(lambda x, one: (layer(x, one), None), x, stack)[0]


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


class Turn(NamedTuple):
    """Cosine and signed sine of each pair's angle, made once for all layers."""

    cos: jax.Array  # [B, L, 1, 1, K / 2]
    sin: jax.Array  # [B, L, 1, 2, K / 2]


def turn(angle_BLk) -> Turn:
    """The Turn of these angles."""
    angle_BL11k = angle_BLk[:, :, None, None]
    sin_BL11k = jnp.sin(angle_BL11k)
    sin_BL12k = jnp.concatenate([-sin_BL11k, sin_BL11k], axis=-2)
    return Turn(jnp.cos(angle_BL11k), sin_BL12k)


def rotate(x_BLHK, turn: Turn):
    """Rotary embedding: value i is paired with value i + K/2, turned by angle i."""
    pairs = (*x_BLHK.shape[:-1], 2, x_BLHK.shape[-1] // 2)
    x_BLH2k = x_BLHK.astype(jnp.float32).reshape(pairs)
    y_BLH2k = x_BLH2k * turn.cos + x_BLH2k[..., ::-1, :] * turn.sin
    return y_BLH2k.reshape(x_BLHK.shape).astype(x_BLHK.dtype)


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
