"""The language decoder: one layer as a function, and the stack of its parameters.

B rows, L tokens, D width, H query heads, G key-value heads, K head width, F width of
the MLP, N layers, k = K / 2 rotation pairs.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openwebrl_jax.models import layers
from openwebrl_jax.models.sizes import DecoderSizes


class Layers(nnx.Module):
    """All layers, stacked on the first axis."""

    def __init__(self, sizes: DecoderSizes):
        N, D, F, K = sizes.layers, sizes.width, sizes.mlp, sizes.head_width
        queries, keys = sizes.heads * K, sizes.kv_heads * K
        self.attn_norm = layers.declare((N, D), ("layers", None), mean=1.0)
        self.q = layers.kernel((N, D, queries), ("layers", "embed", "heads"))
        self.k = layers.kernel((N, D, keys), ("layers", "embed", "heads"))
        self.v = layers.kernel((N, D, keys), ("layers", "embed", "heads"))
        self.q_norm = layers.declare((N, K), ("layers", None), mean=1.0)
        self.k_norm = layers.declare((N, K), ("layers", None), mean=1.0)
        self.out = layers.kernel((N, queries, D), ("layers", "heads", "embed"))
        self.mlp_norm = layers.declare((N, D), ("layers", None), mean=1.0)
        self.gate = layers.kernel((N, D, F), ("layers", "embed", "mlp"))
        self.up = layers.kernel((N, D, F), ("layers", "embed", "mlp"))
        self.down = layers.kernel((N, F, D), ("layers", "mlp", "embed"))


class Decoder(nnx.Module):
    """Embedding table, layers and final norm."""

    def __init__(self, sizes: DecoderSizes):
        self.sizes = sizes
        table = (sizes.vocab, sizes.width)
        self.embed = layers.declare(table, ("vocab", "embed"), std=0.02)
        self.layers = Layers(sizes)
        self.norm = layers.declare((sizes.width,), (None,), mean=1.0)


def angles(sizes: DecoderSizes, positions_3BL):
    """Rotation angles [B, L, k]: pairs 1, 4, 7, ... turn with the height position,
    2, 5, 8, ... with the width, as far as their section goes; the rest with time."""
    pairs = sizes.head_width // 2
    axis_k = np.zeros(pairs, np.int32)
    for axis in (1, 2):
        axis_k[axis : 3 * sizes.rope_section[axis] : 3] = axis
    position_BLk = jnp.moveaxis(positions_3BL[axis_k], 0, -1).astype(jnp.float32)
    turn_k = layers.frequencies(pairs, sizes.rope_theta)
    return position_BLk * layers.broad(turn_k, position_BLk)


def apply_layer(
    layer: Layers, sizes: DecoderSizes, x_BLD, turn, attend: Callable, index_BN=None
):
    """One pre-norm layer; `attend(q, k, v)` decides what each query sees.

    Only the tokens at index_BN come out of it: [B, N, D]; None = all of them.
    """
    B, L, _ = x_BLD.shape
    eps, K = sizes.norm_eps, sizes.head_width
    h_BLD = layers.rms_norm(x_BLD, layer.attn_norm[...], eps)
    q_BLHK = layers.matmul(h_BLD, layer.q[...]).reshape(B, L, sizes.heads, K)
    k_BLGK = layers.matmul(h_BLD, layer.k[...]).reshape(B, L, sizes.kv_heads, K)
    v_BLGK = layers.matmul(h_BLD, layer.v[...]).reshape(B, L, sizes.kv_heads, K)
    q_BLHK = layers.rotate(layers.rms_norm(q_BLHK, layer.q_norm[...], eps), turn)
    k_BLGK = layers.rotate(layers.rms_norm(k_BLGK, layer.k_norm[...], eps), turn)
    out_BLX = attend(q_BLHK, layers.key_major(k_BLGK), layers.head_major(v_BLGK))
    out_BLX, x_BLD = (layers.tokens(y_BLX, index_BN) for y_BLX in (out_BLX, x_BLD))
    x_BLD = x_BLD + layers.matmul(out_BLX, layer.out[...])
    h_BLD = layers.rms_norm(x_BLD, layer.mlp_norm[...], eps)
    gate_BLF = jax.nn.silu(layers.matmul(h_BLD, layer.gate[...]))
    h_BLF = gate_BLF * layers.matmul(h_BLD, layer.up[...])
    return x_BLD + layers.matmul(h_BLF, layer.down[...])
