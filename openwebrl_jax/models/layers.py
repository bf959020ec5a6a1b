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


def tokens(x_BLD, index_BN):
    """Those at index_BN, [B, N, D]; None = all."""
    if index_BN is None:
        return x_BLD
    return jnp.take_along_axis(x_BLD, index_BN[..., None], axis=1)


def broad(vector_D, x_BLD):
    """The vector along the last axis of x: ranks are never promoted silently."""
    return jnp.expand_dims(vector_D, range(x_BLD.ndim - 1))


@jax.custom_vjp
def matmul(x_BLD, kernel_DF):
    """x @ kernel, with a backward pass that XLA-CPU does not copy into slowness."""
    return x_BLD @ kernel_DF


def _matmul_forward(x_BLD, kernel_DF):
    return x_BLD @ kernel_DF, (x_BLD, kernel_DF)


def _matmul_backward(kept, grad_BLF):
    x_BLD, kernel_DF = kept
    # Made once: it would be computed again, transposed, for the kernel's gradient.
    grad_BLF = jax.lax.optimization_barrier(grad_BLF)
    # The left side of a product over B and L is transposed: let it be the narrow one.
    if kernel_DF.shape[0] <= kernel_DF.shape[1]:
        kernel_grad_DF = jnp.einsum("...d,...f->df", x_BLD, grad_BLF)
    else:
        kernel_grad_DF = jnp.einsum("...d,...f->fd", x_BLD, grad_BLF).T
    return grad_BLF @ kernel_DF.T, kernel_grad_DF


matmul.defvjp(_matmul_forward, _matmul_backward)


def linear(x_BLD, kernel_DF, bias_F):
    """x @ kernel + bias."""
    y_BLF = matmul(x_BLD, kernel_DF)
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
    """Cosine and signed sine for each value of a head, made once for all layers."""

    cos: jax.Array  # [B, L, 1, K]
    sin: jax.Array  # [B, L, 1, K], negative in the first half


def turn(angle_BLk) -> Turn:
    """The Turn of these angles."""
    angle_BL1K = jnp.concatenate([-angle_BLk, angle_BLk], axis=-1)[:, :, None]
    # Else XLA makes them again wherever they are used: for each head of each layer.
    return jax.lax.optimization_barrier(Turn(jnp.cos(angle_BL1K), jnp.sin(angle_BL1K)))


@jax.custom_vjp
def rotate(x_BLHK, turn: Turn):
    """Rotary embedding: value i is paired with value i + K/2, turned by angle i."""
    x32_BLHK = x_BLHK.astype(jnp.float32)
    other_BLHK = jnp.roll(x32_BLHK, x_BLHK.shape[-1] // 2, axis=-1)
    return (x32_BLHK * turn.cos + other_BLHK * turn.sin).astype(x_BLHK.dtype)


def _rotate_forward(x_BLHK, turn):
    return rotate(x_BLHK, turn), turn


def _rotate_backward(turn, grad_BLHK):
    """Turned back; positions have no gradient."""
    return rotate(grad_BLHK, Turn(turn.cos, -turn.sin)), None


rotate.defvjp(_rotate_forward, _rotate_backward)


def head_major(x_BLHK):
    """[B, H, L, K]: the order in which XLA-CPU multiplies without a detour."""
    return x_BLHK.swapaxes(1, 2)


def key_major(x_BLGK):
    """[B, G, K, L]: how `attend` wants its keys."""
    return x_BLGK.transpose(0, 2, 3, 1)


def attend(q_BLHK, k_BGKS, v_BGSK, mask_BLS):
    """Grouped-query attention where the mask is True: [B, L, H * K].

    Head h reads key-value head h // R; softmax in float32. A query that may see
    nothing gets the mean of all values: finite, and never read. Keys lie as [K, S]:
    a step of decoding is then a row times a matrix, three times as fast on a CPU.
    """
    B, L, H, K = q_BLHK.shape
    G = k_BGKS.shape[1]
    # The R heads of a key-value head lie on the query axis: no key is repeated.
    q_BGXK = head_major(q_BLHK * K**-0.5).reshape(B, G, H // G * L, K)
    out_BGXK = _attend(q_BGXK, k_BGKS, v_BGSK, mask_BLS)
    return head_major(out_BGXK.reshape(B, H, L, K)).reshape(B, L, H * K)


@jax.custom_vjp
def _attend(q_BGXK, k_BGKS, v_BGSK, mask_BLS):
    """Attention of X = R * L queries; only what is K wide is ever normalised."""
    return _attend_forward(q_BGXK, k_BGKS, v_BGSK, mask_BLS)[0]


def _attend_forward(q_BGXK, k_BGKS, v_BGSK, mask_BLS):
    score_BGXS = _einsum("bgxk,bgks->bgxs", q_BGXK, k_BGKS)
    top_BGX1 = jnp.max(_masked(score_BGXS, mask_BLS), axis=-1, keepdims=True)
    # Masked once more, not read back: each pass over the scores costs as a product.
    score_BGXS = jax.lax.optimization_barrier(score_BGXS)
    power_BGXS = jnp.exp(_masked(score_BGXS, mask_BLS) - top_BGX1)
    total_BGX1 = jnp.sum(power_BGXS, axis=-1, keepdims=True)
    power_BGXS = power_BGXS.astype(v_BGSK.dtype)
    out_BGXK = _einsum("bgxs,bgsk->bgxk", power_BGXS, v_BGSK) / total_BGX1
    kept = q_BGXK, k_BGKS, v_BGSK, power_BGXS, total_BGX1, out_BGXK
    return out_BGXK.astype(q_BGXK.dtype), kept


def _attend_backward(kept, grad_BGXK):
    q_BGXK, k_BGKS, v_BGSK, power_BGXS, total_BGX1, out_BGXK = kept
    grad_BGXK = grad_BGXK / total_BGX1
    mean_BGX1 = jnp.sum(grad_BGXK * out_BGXK, axis=-1, keepdims=True)
    grad_BGXK = grad_BGXK.astype(v_BGSK.dtype)
    weight_grad_BGXS = _einsum("bgxk,bgsk->bgxs", grad_BGXK, v_BGSK)
    score_grad_BGXS = power_BGXS * (weight_grad_BGXS - mean_BGX1)
    score_grad_BGXS = score_grad_BGXS.astype(q_BGXK.dtype)
    q_grad_BGXK = _einsum("bgxs,bgks->bgxk", score_grad_BGXS, k_BGKS)
    # As [K, S]: so the narrow side is transposed, not the scores.
    k_grad_BGKS = _einsum("bgxk,bgxs->bgks", q_BGXK, score_grad_BGXS)
    v_grad_BGKS = _einsum("bgxk,bgxs->bgks", grad_BGXK, power_BGXS)
    return (
        q_grad_BGXK.astype(q_BGXK.dtype),
        k_grad_BGKS.astype(k_BGKS.dtype),
        v_grad_BGKS.swapaxes(2, 3).astype(v_BGSK.dtype),
        None,
    )


_attend.defvjp(_attend_forward, _attend_backward)


def _masked(score_BGXS, mask_BLS):
    B, G, X, S = score_BGXS.shape
    L = mask_BLS.shape[1]
    score_BGRLS = score_BGXS.reshape(B, G, X // L, L, S)
    score_BGRLS = jnp.where(mask_BLS[:, None, None], score_BGRLS, -1e30)
    return score_BGRLS.reshape(score_BGXS.shape)


def _einsum(formula, a, b):
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)
