"""Qwen3-VL whole: images to features, tokens to hidden states, with or without cache.

B rows, L tokens, D width, I images, P patches an image, C values a patch, T DeepStack
taps. The arrays are those of `core.types.Batch`. Everything is
computed in the dtype of the parameters; norms, softmax and rope in float32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from openwebrl_jax.models import cache as caches
from openwebrl_jax.models import decoder as decoders
from openwebrl_jax.models import layers, mesh, vision
from openwebrl_jax.models import sight as sights
from openwebrl_jax.models.sizes import Sizes


class Model(nnx.Module):
    """Tower, decoder and, where it is not the embedding table, the head's matrix."""

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        decoder = sizes.decoder
        self.vision = vision.Tower(sizes.vision, decoder.width)
        self.decoder = decoders.Decoder(decoder)
        table = (decoder.vocab, decoder.width)
        self.head = (
            None
            if sizes.is_tied
            else layers.declare(table, ("vocab", "embed"), std=0.02)
        )


class Features(NamedTuple):
    """What the tower makes of a batch's images, all images' tokens in one row."""

    merged: jax.Array  # [I * P / merge^2, D]
    deepstack: jax.Array  # [T, I * P / merge^2, D]


def encode_images(
    model: Model,
    patches_IPC,
    patch_count_I,
    patch_position_2IP,
    table_index_4IP,
    table_weight_4IP,
    *,
    remat: bool = False,
    kernel: str = "xla",
) -> Features:
    """Runs the tower; what stands beyond an image's patch count touches nothing."""
    merged_IMD, taps_TIMD = vision.encode(
        model.vision,
        patches_IPC,
        patch_count_I,
        patch_position_2IP,
        table_index_4IP,
        table_weight_4IP,
        remat,
        kernel,
    )
    D = merged_IMD.shape[-1]
    return Features(
        merged_IMD.reshape(-1, D), taps_TIMD.reshape(taps_TIMD.shape[0], -1, D)
    )


def forward(
    model: Model,
    ids_BL,
    positions_3BL,
    sight: sights.Sight,
    image_index_BL,
    features: Features | None,
    index_BN=None,
    *,
    remat: bool = False,
    kernel: str = "xla",
):
    """Hidden states after the final norm, [B, N, D] of the tokens at index_BN.

    Args:
      index_BN: what else the last layer would make is never made; None = all tokens.
      kernel: one of sight's.
    """
    sizes = model.sizes.decoder
    turn = layers.turn(decoders.angles(sizes, positions_3BL))
    planned = sights.plan(sight, kernel)

    def attend(q_BLHK, k_BGKL, v_BGLK):
        return sights.attend(q_BLHK, k_BGKL, v_BGLK, planned)

    def layer(x_BLD, one, index_BN=None):
        x_BLD = mesh.constrain(x_BLD, "batch", None, None)
        return decoders.apply_layer(one, sizes, x_BLD, turn, attend, index_BN)

    def tapped_layer(x_BLD, one_and_tap):
        one, tap_ND = one_and_tap
        return layer(x_BLD, one) + pick(tap_ND, image_index_BL)

    x_BLD = embed(model, ids_BL, image_index_BL, features)
    taps = 0 if features is None else features.deepstack.shape[0]
    if features is not None:
        tapped = layers.at(model.decoder.layers, slice(0, taps)), features.deepstack
        x_BLD = layers.run(tapped_layer, x_BLD, tapped, taps, remat=remat)
    last = max(taps, sizes.layers - 1)
    rest = layers.at(model.decoder.layers, slice(taps, last))
    x_BLD = layers.run(layer, x_BLD, rest, last - taps, remat=remat)
    if last < sizes.layers:
        few = jax.checkpoint(layer) if remat else layer
        x_BND = few(x_BLD, layers.at(model.decoder.layers, last), index_BN)
    else:  # each layer has a tap
        x_BND = layers.tokens(x_BLD, index_BN)
    return layers.rms_norm(x_BND, model.decoder.norm[...], sizes.norm_eps)


def extend(
    model: Model,
    past: caches.Past,
    own: caches.Cache,
    at,
    ids_BL,
    positions_3BL,
    image_index_BL,
    features: Features | None,
    parts: Sequence[decoders.Layers] | None = None,
):
    """L tokens more for each row: (hidden [B, L, D], own with their keys and values).

    `past` is what the rows hold; `own` has what stands beside them, and these tokens
    come to stand in its places from `at` on. A token sees its row, and the places
    beside it up to its own; so padding at the end does no harm. `parts` are the layers
    one by one, None = those of the model.
    """
    sizes = model.sizes.decoder
    turn = layers.turn(decoders.angles(sizes, positions_3BL))
    x_BLD = embed(model, ids_BL, image_index_BL, features)
    taps = 0 if features is None else features.deepstack.shape[0]
    new_k, new_v = [], []

    def attend(q_BLHK, k_BGKL, v_BGLK):
        i = len(new_k)
        new_k.append(caches.write(own.k[i], k_BGKL, at, axis=3))
        new_v.append(caches.write(own.v[i], v_BGLK, at, axis=2))
        return caches.attend(q_BLHK, new_k[i], new_v[i], at, i, past)

    for i in range(sizes.layers):
        one = layers.at(model.decoder.layers, i) if parts is None else parts[i]
        x_BLD = decoders.apply_layer(one, sizes, x_BLD, turn, attend)
        if features is not None and i < taps:
            x_BLD = x_BLD + pick(features.deepstack[i], image_index_BL)
    hidden_BLD = layers.rms_norm(x_BLD, model.decoder.norm[...], sizes.norm_eps)
    return hidden_BLD, caches.Cache(tuple(new_k), tuple(new_v))


def table_VD(model: Model):
    """The head's matrix: its own, or the embedding table."""
    return (model.decoder.embed if model.head is None else model.head)[...]


def embed(model: Model, ids_BL, image_index_BL, features: Features | None):
    """Token embeddings, with an image's tokens in the places of its pads."""
    x_BLD = model.decoder.embed[...][ids_BL]
    if features is None:
        return x_BLD
    is_image_BL1 = image_index_BL[..., None] >= 0
    return jnp.where(is_image_BL1, pick(features.merged, image_index_BL), x_BLD)


def pick(feature_ND, index_BL):
    """Rows of the features by index; zeros where the index is -1."""
    row_BLD = feature_ND[jnp.maximum(index_BL, 0)]
    return jnp.where(index_BL[..., None] >= 0, row_BLD, 0)
