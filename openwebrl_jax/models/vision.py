"""The vision tower: patches of images in, decoder-wide tokens out.

I images, P patches an image, C values a patch, W tower width, M = P / merge^2 merged
tokens an image, T taps, D decoder width, N blocks. Patches come merge-block-major, so
that merge^2 neighbours in the row become one token.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from openwebrl_jax.models import layers, mesh, sight
from openwebrl_jax.models.sizes import VisionSizes


class Blocks(nnx.Module):
    """All blocks of the tower, stacked on the first axis."""

    def __init__(self, sizes: VisionSizes):
        N, W, F = sizes.depth, sizes.width, sizes.mlp
        self.attn_norm_scale = layers.declare((N, W), ("layers", None), mean=1.0)
        self.attn_norm_bias = layers.declare((N, W), ("layers", None))
        self.qkv = layers.kernel((N, W, 3 * W), ("layers", "embed", "heads"))
        self.qkv_bias = layers.declare((N, 3 * W), ("layers", "heads"))
        self.out = layers.kernel((N, W, W), ("layers", "heads", "embed"))
        self.out_bias = layers.declare((N, W), ("layers", None))
        self.mlp_norm_scale = layers.declare((N, W), ("layers", None), mean=1.0)
        self.mlp_norm_bias = layers.declare((N, W), ("layers", None))
        self.up = layers.kernel((N, W, F), ("layers", "embed", "mlp"))
        self.up_bias = layers.declare((N, F), ("layers", "mlp"))
        self.down = layers.kernel((N, F, W), ("layers", "mlp", "embed"))
        self.down_bias = layers.declare((N, W), ("layers", None))


class Merger(nnx.Module):
    """merge^2 patches become one token of the decoder's width.

    The norm is over one patch (the tower's own merger) or over all that are merged
    (the DeepStack mergers, stacked): `norm_width` says which.
    """

    def __init__(
        self, sizes: VisionSizes, norm_width: int, out: int, stack: tuple[int, ...] = ()
    ):
        X, lead = sizes.width * sizes.merge**2, ("layers",) * len(stack)
        self.norm_scale = layers.declare((*stack, norm_width), (*lead, None), mean=1.0)
        self.norm_bias = layers.declare((*stack, norm_width), (*lead, None))
        self.up = layers.kernel((*stack, X, X), (*lead, "embed", "mlp"))
        self.up_bias = layers.declare((*stack, X), (*lead, "mlp"))
        self.down = layers.kernel((*stack, X, out), (*lead, "mlp", "embed"))
        self.down_bias = layers.declare((*stack, out), (*lead, None))


class Tower(nnx.Module):
    """Patch embedding, position table, blocks and mergers."""

    def __init__(self, sizes: VisionSizes, out: int):
        W, table = sizes.width, sizes.table_side**2
        self.sizes = sizes
        self.patch = layers.kernel((sizes.patch_values, W), (None, "embed"))
        self.patch_bias = layers.declare((W,), (None,))
        self.table = layers.declare((table, W), (None, "embed"), std=0.02)
        self.blocks = Blocks(sizes)
        self.merger = Merger(sizes, W, out)
        self.tap_mergers = Merger(
            sizes, W * sizes.merge**2, out, stack=(len(sizes.taps),)
        )


def encode(
    tower: Tower,
    patches_IPC,
    count_I,
    position_2IP,
    index_4IP,
    weight_4IP,
    remat: bool,
    kernel: str,
):
    """Merged tokens [I, M, D] and the DeepStack taps [T, I, M, D]."""
    sizes, dtype = tower.sizes, tower.table.dtype
    x_IPW = layers.linear(
        patches_IPC.astype(dtype), tower.patch[...], tower.patch_bias[...]
    )
    for index_IP, weight_IP in zip(index_4IP, weight_4IP, strict=True):
        corner_IPW = tower.table[...][index_IP]
        x_IPW = x_IPW + corner_IPW * weight_IP[..., None].astype(dtype)
    turn = layers.turn(_angles(sizes, position_2IP))
    planned = sight.plan(sight.inside(count_I, patches_IPC.shape[1]), kernel)

    def block(x_IPW, one):
        x_IPW = mesh.constrain(x_IPW, "batch", None, None)
        return _block(one, sizes, x_IPW, turn, planned)

    def blocks(x_IPW, start, stop):
        part = layers.at(tower.blocks, slice(start, stop))
        return layers.run(block, x_IPW, part, stop - start, remat=remat)

    taps, start = [], 0
    for i, tap in enumerate(sizes.taps):
        x_IPW, start = blocks(x_IPW, start, tap + 1), tap + 1
        taps.append(_merge(layers.at(tower.tap_mergers, i), sizes, x_IPW))
    x_IPW = blocks(x_IPW, start, sizes.depth)
    merged_IMD = _merge(tower.merger, sizes, x_IPW)
    empty_TIMD = jnp.zeros((0, *merged_IMD.shape), dtype)
    return merged_IMD, jnp.stack(taps) if taps else empty_TIMD


def _angles(sizes: VisionSizes, position_2IP):
    """Half of a head's pairs turn with the patch's row, half with its column."""
    quarter = sizes.width // sizes.heads // 4
    turn_k = layers.frequencies(quarter, sizes.rope_theta)
    angle_2IPk = position_2IP[..., None].astype(jnp.float32)
    angle_2IPk = angle_2IPk * layers.broad(turn_k, angle_2IPk)
    return jnp.concatenate([angle_2IPk[0], angle_2IPk[1]], axis=-1)


def _block(block: Blocks, sizes: VisionSizes, x_IPW, turn, planned):
    """One pre-norm block; attention stays inside each image."""
    images, P, W = x_IPW.shape
    h_IPW = layers.layer_norm(
        x_IPW, block.attn_norm_scale[...], block.attn_norm_bias[...]
    )
    qkv_IPX = layers.linear(h_IPW, block.qkv[...], block.qkv_bias[...])
    heads = (images, P, sizes.heads, W // sizes.heads)
    q_IPHK, k_IPHK, v_IPHK = (
        part.reshape(heads) for part in jnp.split(qkv_IPX, 3, axis=-1)
    )
    q_IPHK = layers.rotate(q_IPHK, turn)
    k_IPHK = layers.rotate(k_IPHK, turn)
    out_IPW = sight.attend(
        q_IPHK, layers.key_major(k_IPHK), layers.head_major(v_IPHK), planned
    )
    x_IPW = x_IPW + layers.linear(out_IPW, block.out[...], block.out_bias[...])
    h_IPW = layers.layer_norm(
        x_IPW, block.mlp_norm_scale[...], block.mlp_norm_bias[...]
    )
    h_IPF = jax.nn.gelu(
        layers.linear(h_IPW, block.up[...], block.up_bias[...]), approximate=True
    )
    return x_IPW + layers.linear(h_IPF, block.down[...], block.down_bias[...])


def _merge(merger: Merger, sizes: VisionSizes, x_IPW):
    """Joins merge^2 neighbours, norms before or after, maps to decoder width."""
    images, P, W = x_IPW.shape
    joined = (images, P // sizes.merge**2, W * sizes.merge**2)
    scale, bias = merger.norm_scale[...], merger.norm_bias[...]
    is_after = scale.shape[-1] != W
    x_IMX = layers.layer_norm(
        x_IPW.reshape(joined) if is_after else x_IPW, scale, bias
    ).reshape(joined)
    h_IMX = jax.nn.gelu(
        layers.linear(x_IMX, merger.up[...], merger.up_bias[...]), approximate=False
    )
    return layers.linear(h_IMX, merger.down[...], merger.down_bias[...])
