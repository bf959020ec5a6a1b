"""Replies by the batch: two jitted programs, pixels to features and prompts to tokens.

`encode` writes the features of new screenshots into a store that all rows share;
`generate` prefills right-padded prompts and decodes until every row has ended. What
a row draws depends on its own key, prompt and token index alone, never on the rows
beside it. The cache lives inside the program: one prefill fills it, the loop rewrites
it in place.

Letters: B rows, L prompt tokens, T reply tokens, S cache positions, D width, V
vocabulary, C places in the store, M features an image, I images, P patches, N values
a patch.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.models import cache as caches
from openwebrl_jax.models import head, qwen3_vl

# Tokens that are prefilled at once: enough to keep any device busy.
_PREFILL_TOKENS = 1024


class Images(NamedTuple):
    """Screenshots to encode. Made by `policy.prompt`, eaten by `encode`."""

    patches_IPN: Any  # float32, merge-block-major, zeros beyond an image's count
    count_I: Any  # int32
    position_2IP: Any  # int32
    table_index_4IP: Any  # int32
    table_weight_4IP: Any  # float32


class Prompts(NamedTuple):
    """Right-padded prompts. Made by `policy.prompt`, eaten by `generate`.

    A row that only fills the bucket has one token, is not live and draws nothing.
    """

    ids_BL: Any  # int32
    positions_3BL: Any  # int32
    image_index_BL: Any  # int32, row of the store's features, -1 = text
    length_B: Any  # int32
    last_position_B: Any  # int32, rope position of the last token, which is text
    key_B4: Any  # uint32: seed, group ordinal, slot, turn
    is_greedy_B: Any  # bool
    is_live_B: Any  # bool, live rows first


class Drawn(NamedTuple):
    """Sampled replies: token t of row b is there iff t < length_B[b]."""

    ids_BT: Any  # int32
    logp_BT: Any  # float32, under the sampling rule
    length_B: Any  # int32, the end token included where it was drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The jitted programs of one sampler; `encode` donates the store it is given."""

    init_store: Callable[..., qwen3_vl.Features]  # (params)
    encode: Callable[..., qwen3_vl.Features]  # (params, store, images, place_I)
    generate: Callable[..., Drawn]  # (params, store, prompts)

    def compilations(self) -> int:
        """How many programs were compiled so far."""
        programs = (self.init_store, self.encode, self.generate)
        return sum(program._cache_size() for program in programs)  # pyright: ignore


def make_programs(
    graphdef: nnx.GraphDef,
    rule: types.SamplingRule,
    *,
    end_id: int,
    response_tokens: int,
    context_tokens: int,
    places: int,
    features: int,
) -> Programs:
    """Jits the programs; the store has so many places of so many features each."""

    def init_store(params):
        model = nnx.merge(graphdef, params)
        width, taps = model.sizes.decoder.width, len(model.sizes.vision.taps)
        dtype = qwen3_vl.table_VD(model).dtype
        return qwen3_vl.Features(
            merged=jnp.zeros((places * features, width), dtype),
            deepstack=jnp.zeros((taps, places * features, width), dtype),
        )

    def encode(params, store, images: Images, place_I):
        new = qwen3_vl.encode_images(nnx.merge(graphdef, params), *images)
        return jax.tree.map(
            lambda store_XD, new_XD: _write(store_XD, new_XD, place_I, features),
            store,
            new,
        )

    def generate(params, store, prompts: Prompts) -> Drawn:
        length = prompts.ids_BL.shape[1]
        return _generate(
            nnx.merge(graphdef, params),
            store,
            prompts,
            rule,
            end_id=end_id,
            response_tokens=response_tokens,
            cache_tokens=min(length + response_tokens, context_tokens),
        )

    return Programs(
        init_store=jax.jit(init_store),
        encode=jax.jit(encode, donate_argnums=1),
        generate=jax.jit(generate),
    )


def _write(store_XD: jax.Array, new_XD: jax.Array, place_I: jax.Array, features: int):
    """Puts the features of image i at place_I[i]; axis -2 is places times features."""
    *lead, _, width = store_XD.shape
    store_CMD = store_XD.reshape(*lead, -1, features, width)
    new_IMD = new_XD.reshape(*lead, -1, features, width)
    return store_CMD.at[..., place_I, :, :].set(new_IMD).reshape(store_XD.shape)


def _generate(
    model: qwen3_vl.Model,
    store: qwen3_vl.Features,
    prompts: Prompts,
    rule: types.SamplingRule,
    *,
    end_id: int,
    response_tokens: int,
    cache_tokens: int,
) -> Drawn:
    rows = prompts.ids_BL.shape[0]
    table_VD = qwen3_vl.table_VD(model)
    key_B = jax.vmap(_row_key)(prompts.key_B4)

    def goes_on(carry):
        t, _, is_open_B, _, _ = carry
        return (t < response_tokens) & is_open_B.any()

    def step(carry):
        """Feeds the newest token, at first the prompt's last, and draws the next."""
        t, token_B, is_open_B, drawn, cache = carry
        position_B = prompts.last_position_B + t
        hidden_B1D, cache = qwen3_vl.extend(
            model,
            cache,
            token_B[:, None],
            jnp.broadcast_to(position_B[:, None], (3, rows, 1)),
            jnp.full((rows, 1), -1, jnp.int32),
            None,
            prompts.length_B - 1 + t,
        )
        token_B, logp_B = draw(
            head.sample_logits(hidden_B1D[:, 0], table_VD, rule),
            jax.vmap(jax.random.fold_in, (0, None))(key_B, t),
            prompts.is_greedy_B,
        )
        drawn = Drawn(
            ids_BT=drawn.ids_BT.at[:, t].set(jnp.where(is_open_B, token_B, 0)),
            logp_BT=drawn.logp_BT.at[:, t].set(jnp.where(is_open_B, logp_B, 0.0)),
            length_B=drawn.length_B + is_open_B,
        )
        return t + 1, token_B, is_open_B & (token_B != end_id), drawn, cache

    nothing = Drawn(
        ids_BT=jnp.zeros((rows, response_tokens), jnp.int32),
        logp_BT=jnp.zeros((rows, response_tokens), jnp.float32),
        length_B=jnp.zeros(rows, jnp.int32),
    )
    token_B = prompts.ids_BL[jnp.arange(rows), prompts.length_B - 1]
    cache = prefill(model, store, prompts, cache_tokens)
    carry = (jnp.int32(0), token_B, prompts.is_live_B, nothing, cache)
    return jax.lax.while_loop(goes_on, step, carry)[3]


def prefill(
    model: qwen3_vl.Model,
    store: qwen3_vl.Features,
    prompts: Prompts,
    cache_tokens: int,
) -> caches.Cache:
    """The cache of all live prompts, a few rows at a time.

    So a row that fills the bucket costs nothing here, and what the layers hold at once
    is bounded. No hidden state is asked for: the last layer does not go beyond keys
    and values.
    """
    rows, length = prompts.ids_BL.shape
    some = math.gcd(rows, 1 << (max(_PREFILL_TOKENS // length, 1).bit_length() - 1))
    dtype = qwen3_vl.table_VD(model).dtype

    def fill(i, cache):
        pick = functools.partial(
            jax.lax.dynamic_slice_in_dim, start_index=i * some, slice_size=some
        )
        _, new = qwen3_vl.extend(
            model,
            caches.init_cache(model.sizes, some, length, dtype),
            pick(prompts.ids_BL),
            pick(prompts.positions_3BL, axis=1),
            pick(prompts.image_index_BL),
            store,
            jnp.zeros(some, jnp.int32),
        )
        return jax.tree.map(
            lambda old_BSGK, new_BLGK: jax.lax.dynamic_update_slice(
                old_BSGK, new_BLGK, (i * some, 0, 0, 0)
            ),
            cache,
            new,
        )

    calls = (prompts.is_live_B.sum() + some - 1) // some  # the live rows come first
    empty = caches.init_cache(model.sizes, rows, cache_tokens, dtype)
    return jax.lax.fori_loop(0, calls, fill, empty)


def draw(logits_BV: jax.Array, key_B: jax.Array, is_greedy_B: jax.Array):
    """Draws one token a row by the Gumbel trick, or the greatest; with its log-prob.

    No noise lifts a forbidden id from where the rule puts it. The inverse of the
    cumulative sum would not promise that at its rounded upper end.
    """
    width = logits_BV.shape[-1:]
    noise_BV = jax.vmap(lambda key: jax.random.gumbel(key, width))(key_B)
    noise_BV = jnp.where(is_greedy_B[:, None], 0.0, noise_BV)
    token_B = jnp.argmax(logits_BV + noise_BV, axis=-1).astype(jnp.int32)
    logp_BV = jax.nn.log_softmax(logits_BV)
    logp_B = jnp.take_along_axis(logp_BV, token_B[:, None], axis=-1)[:, 0]
    return token_B, logp_B


def _row_key(key_4: jax.Array) -> jax.Array:
    """The key of a reply: the seed folded with ordinal, slot and turn."""
    key = jax.random.key(key_4[0])
    for part in key_4[1:]:
        key = jax.random.fold_in(key, part)
    return key
