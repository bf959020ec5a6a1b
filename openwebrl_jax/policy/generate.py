"""The sampler's programs on the device: each works at some rows of one cache.

`encode` writes the features of new screenshots into a store that all rows share,
`prefill` appends a chunk of prompt to a few rows, `copy` gives a row the beginning of
another, and `decode` draws the next tokens of many rows. All sizes come from one
lattice, so that few programs are ever compiled. What a row draws depends on its own
key, prompt and token index alone, never on the rows beside it nor on where a call ends.

Letters: B rows of a call, L tokens of a chunk, T tokens that a call draws, J copies of
a call, D width, V vocabulary, M features an image, I images, P patches, N values a
patch, X any other axis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.models import cache as caches
from openwebrl_jax.models import decoder, head, qwen3_vl
from openwebrl_jax.models.sizes import DecoderSizes
from openwebrl_jax.policy import weights
from openwebrl_jax.tokens import images

WIDE_TOKENS = 256  # of one row, prefilled at once
NARROW_TOKENS = 32  # of some rows
NARROW_ROWS = 8
DECODE_TOKENS = 32  # between two looks at what has come and what has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """The sizes of all programs. Made by `make_lattice`.

    Example: 32 rows of 544 places, `places` (256, 544), `widths` (8, 16, 32), chunks
    of 32 tokens for 1 or 8 rows and of 256 for one, 32 tokens a decode.
    """

    rows: int  # of the cache
    places: tuple[int, ...]  # of a row that `decode` looks at; the last are all
    widths: tuple[int, ...]  # rows of a call of `decode`
    narrow_rows: int
    narrow_tokens: int
    wide_tokens: int  # of one row; narrow ones will do where prompts are short
    decode_tokens: int  # at most
    response_tokens: int
    is_static: bool = False  # one shape a program, and nothing is computed by halves

    def prefills(self) -> list[tuple[int, int]]:
        """Rows and tokens of each program `prefill`."""
        narrow = {(1, self.narrow_tokens), (self.narrow_rows, self.narrow_tokens)}
        return sorted({*narrow, (1, self.wide_tokens)})

    def decodes(self) -> list[tuple[int, int]]:
        """Rows and places of each program `decode`."""
        return [(rows, places) for rows in self.widths for places in self.places]

    def row_bytes(self, sizes: DecoderSizes, dtype: Any) -> int:
        """What one row of the cache takes."""
        values = 2 * sizes.layers * sizes.kv_heads * sizes.head_width
        return values * self.places[-1] * jnp.dtype(dtype).itemsize

    def size(self, encodings: int) -> int:
        """How many programs there are, with so many sizes of `encode`."""
        others = 3  # init_store, init_cache, copy
        return others + len(self.prefills()) + len(self.decodes()) + encodings


def make_lattice(config: Any) -> Lattice:
    """The lattice of `config.sample`.

    A row is longer than its context by what the padding of a call may overrun.
    """
    limit = config.context_tokens - config.response_tokens
    narrow = min(NARROW_TOKENS, limit)
    whole = config.context_tokens + max(narrow, DECODE_TOKENS)
    shorter = [n for n in config.prompt_buckets if n < config.context_tokens]
    made = Lattice(
        rows=config.slots,
        places=(*shorter, whole),
        widths=tuple(sorted({-(-config.slots // part) for part in (1, 2, 4)})),
        narrow_rows=min(NARROW_ROWS, config.slots),
        narrow_tokens=narrow,
        wide_tokens=WIDE_TOKENS if limit >= WIDE_TOKENS else narrow,
        decode_tokens=min(DECODE_TOKENS, config.response_tokens),
        response_tokens=config.response_tokens,
    )
    if not config.static:
        return made
    one_shape = {"places": (whole,), "widths": made.widths[-1:], "narrow_rows": 1}
    return replace(made, **one_shape, wide_tokens=narrow, is_static=True)


class Images(NamedTuple):
    """Screenshots to encode. Made by `policy.features`, eaten by `encode`."""

    patches_IPN: Any  # uint8, see `tokens.images.cut`; zeros beyond an image's count
    count_I: Any  # int32
    position_2IP: Any  # int32
    table_index_4IP: Any  # int32
    table_weight_4IP: Any  # float32


class Chunk(NamedTuple):
    """Right-padded pieces of prompts. Made by `policy.prompt`, eaten by `prefill`."""

    row_B: Any  # int32, rows of the cache
    start_B: Any  # int32, place of the first token in its row
    ids_BL: Any  # int32
    positions_3BL: Any  # int32
    image_index_BL: Any  # int32, row of the store's features, -1 = text
    count: Any  # int32, rows that are there; they come first


class Seeds(NamedTuple):
    """Rows that go on drawing. Made by `policy.speaker`, eaten by `decode`."""

    row_B: Any  # int32, rows of the cache
    token_B: Any  # int32, the newest token: it is fed first
    start_B: Any  # int32, its place in the row
    position_B: Any  # int32, its rope position; it is text
    drawn_B: Any  # int32, how many tokens of the reply were drawn before
    key_B4: Any  # uint32: seed, group ordinal, slot, turn
    is_greedy_B: Any  # bool
    count: Any  # int32, rows that are there; they come first
    tokens: Any  # int32, how many are drawn at most


class Drawn(NamedTuple):
    """Pieces of replies: token t of row b is there iff t < length_B[b]."""

    ids_BT: Any  # int32
    logp_BT: Any  # float32, under the sampling rule
    length_B: Any  # int32, the end token included where it was drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The jitted programs of one sampler; each donates the store or cache it changes.

    `params` are the sampler's own `weights.Weights`. `places` is static: how many
    places of the rows are looked at.
    """

    init_store: Callable[..., qwen3_vl.Features]  # (params)
    encode: Callable[..., qwen3_vl.Features]  # (params, store, images, place_I)
    init_cache: Callable[..., caches.Cache]  # (params)
    prefill: Callable[..., caches.Cache]  # (params, store, cache, chunk)
    copy: Callable[..., caches.Cache]  # (cache, from_J, to_J, length_J, count)
    decode: Callable[..., tuple[Drawn, caches.Cache]]  # (params, cache, seeds, places)

    def compilations(self) -> int:
        """How many programs were compiled so far."""
        programs = (
            self.init_store,
            self.encode,
            self.init_cache,
            self.prefill,
            self.copy,
            self.decode,
        )
        return sum(program._cache_size() for program in programs)  # pyright: ignore


def make_programs(
    graphdef: nnx.GraphDef,
    rule: types.SamplingRule,
    lattice: Lattice,
    *,
    spec: images.ImageSpec,
    end_id: int,
    pictures: int,
    features: int,
) -> Programs:
    """Jits the programs; the store holds so many pictures of so many features each."""

    def init_store(params):
        model, _ = weights.merge(graphdef, params)
        width, taps = model.sizes.decoder.width, len(model.sizes.vision.taps)
        dtype = qwen3_vl.table_VD(model).dtype
        return qwen3_vl.Features(
            merged=jnp.zeros((pictures * features, width), dtype),
            deepstack=jnp.zeros((taps, pictures * features, width), dtype),
        )

    def encode(params, store, shown: Images, place_I):
        model, _ = weights.merge(graphdef, params)
        # Copies of an image along time are equal: their kernels can be added up.
        kernel = model.vision.patch[...].reshape(3, spec.temporal, spec.patch_px**2, -1)
        model.vision.patch = nnx.Param(kernel.sum(1).reshape(3 * spec.patch_px**2, -1))
        values_IPN = _values(spec, shown.patches_IPN)
        new = qwen3_vl.encode_images(model, values_IPN, *shown[1:])
        return jax.tree.map(
            lambda store_XD, new_XD: _write(store_XD, new_XD, place_I, features),
            store,
            new,
        )

    def init_cache(params):
        model, _ = weights.merge(graphdef, params)
        return _empty(model, lattice.rows, lattice.places[-1])

    def prefill(params, store, cache, chunk: Chunk):
        model, parts = weights.merge(graphdef, params)
        _, own = qwen3_vl.extend(  # nobody asks for the hidden states
            model,
            caches.in_place(cache, chunk.row_B, chunk.start_B),
            _empty(model, *chunk.ids_BL.shape),
            0,
            chunk.ids_BL,
            chunk.positions_3BL,
            chunk.image_index_BL,
            store,
            parts,
        )
        return caches.put(cache, own, chunk.row_B, chunk.start_B, chunk.count)

    def decode(params, cache, seeds: Seeds, places: int):
        model, parts = weights.merge(graphdef, params)
        some = caches.take(cache, seeds.row_B, seeds.start_B, seeds.count, places)
        past = caches.of_rows(some, seeds.start_B)
        drawn, own = _decode(model, parts, past, seeds, rule, lattice, end_id)
        cache = caches.put(cache, own, seeds.row_B, seeds.start_B, seeds.count)
        return drawn, cache

    def copy(cache, *seats):  # of these programs alone, so that its compiling counts
        return caches.copy(cache, *seats)

    return Programs(
        init_store=jax.jit(init_store),
        encode=jax.jit(encode, donate_argnums=1),
        init_cache=jax.jit(init_cache),
        prefill=jax.jit(prefill, donate_argnums=2),
        copy=jax.jit(copy, donate_argnums=0),
        decode=jax.jit(decode, donate_argnums=1, static_argnums=3),
    )


def _values(spec: images.ImageSpec, bytes_IPN: jax.Array) -> jax.Array:
    """Normalised values: to a rounding those that `tokens.images.patches` looks up."""
    mean_N, std_N = (
        np.repeat(np.asarray(part, np.float32), spec.patch_px**2)
        for part in (spec.mean, spec.std)
    )
    scale_N, shift_N = np.float32(spec.rescale) / std_N, -mean_N / std_N
    return bytes_IPN.astype(jnp.float32) * scale_N[None, None] + shift_N[None, None]


def _write(store_XD: jax.Array, new_XD: jax.Array, place_I: jax.Array, features: int):
    """Puts the features of image i at place_I[i]; axis -2 is places times features."""
    *lead, _, width = store_XD.shape
    store_CMD = store_XD.reshape(*lead, -1, features, width)
    new_IMD = new_XD.reshape(*lead, -1, features, width)
    return store_CMD.at[..., place_I, :, :].set(new_IMD).reshape(store_XD.shape)


def _decode(
    model: qwen3_vl.Model,
    parts: Sequence[decoder.Layers],
    past: caches.Past,
    seeds: Seeds,
    rule: types.SamplingRule,
    lattice: Lattice,
    end_id: int,
) -> tuple[Drawn, caches.Cache]:
    """Draws until the call's tokens are drawn or every row has ended; what it fed."""
    rows, tokens = len(seeds.row_B), lattice.decode_tokens
    # Turned once a call: XLA-CPU would turn the whole table at every token.
    table_DV = jax.lax.optimization_barrier(qwen3_vl.table_VD(model).T)
    key_B = jax.vmap(_row_key)(seeds.key_B4)

    def goes_on(carry):
        t, _, is_open_B, _, _ = carry
        return (t < seeds.tokens) & is_open_B.any()

    def step(carry):
        """Feeds the newest token, at first the prompt's last, and draws the next."""
        t, token_B, is_open_B, drawn, own = carry
        position_B = seeds.position_B + t
        hidden_B1D, own = qwen3_vl.extend(
            model,
            past,
            own,
            t,
            token_B[:, None],
            jnp.broadcast_to(position_B[:, None], (3, rows, 1)),
            jnp.full((rows, 1), -1, jnp.int32),
            None,
            parts,
        )
        token_B, logp_B = draw(
            head.sample_logits(hidden_B1D[:, 0], table_DV.T, rule),
            jax.vmap(jax.random.fold_in)(key_B, seeds.drawn_B + t),
            seeds.is_greedy_B,
        )
        drawn = Drawn(
            ids_BT=drawn.ids_BT.at[:, t].set(jnp.where(is_open_B, token_B, 0)),
            logp_BT=drawn.logp_BT.at[:, t].set(jnp.where(is_open_B, logp_B, 0.0)),
            length_B=drawn.length_B + is_open_B,
        )
        is_full_B = seeds.drawn_B + t + 1 >= lattice.response_tokens
        is_open_B = is_open_B & (token_B != end_id) & ~is_full_B
        return t + 1, token_B, is_open_B, drawn, own

    nothing = Drawn(
        ids_BT=jnp.zeros((rows, tokens), jnp.int32),
        logp_BT=jnp.zeros((rows, tokens), jnp.float32),
        length_B=jnp.zeros(rows, jnp.int32),
    )
    is_open_B = jnp.arange(rows) < seeds.count
    own = _empty(model, rows, tokens)
    carry = (jnp.int32(0), seeds.token_B, is_open_B, nothing, own)
    *_, drawn, own = jax.lax.while_loop(goes_on, step, carry)
    return drawn, own


def _empty(model: qwen3_vl.Model, rows: int, places: int) -> caches.Cache:
    """Empty places in the dtype of the weights."""
    dtype = qwen3_vl.table_VD(model).dtype
    return caches.init_cache(model.sizes, rows, places, dtype)


def draw(logits_BV: jax.Array, key_B: jax.Array, is_greedy_B: jax.Array):
    """Draws one token a row by the Gumbel trick, or the greatest; with its log-prob.

    No noise lifts a forbidden id from where the rule puts it. The inverse of the
    cumulative sum would not promise that at its rounded upper end.
    """
    width = logits_BV.shape[-1:]

    def noisy():
        noise_BV = jax.vmap(lambda key: jax.random.gumbel(key, width))(key_B)
        return logits_BV + jnp.where(is_greedy_B[:, None], 0.0, noise_BV)

    best_BV = jax.lax.cond(is_greedy_B.all(), lambda: logits_BV, noisy)
    token_B = jnp.argmax(best_BV, axis=-1).astype(jnp.int32)
    logp_BV = jax.nn.log_softmax(logits_BV)
    logp_B = jnp.take_along_axis(logp_BV, token_B[:, None], axis=-1)[:, 0]
    return token_B, logp_B


def _row_key(key_4: jax.Array) -> jax.Array:
    """The key of a reply: the seed folded with ordinal, slot and turn."""
    key = jax.random.key(key_4[0])
    for part in key_4[1:]:
        key = jax.random.fold_in(key, part)
    return key
