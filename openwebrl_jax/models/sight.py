"""Attention of rows in which a token sees a range of its row and its own run.

A row is one axis of tokens. Each token sees `[start, limit)`, a trunk that came
earlier, and `[own, itself]`, the run that it stands in; with an empty trunk that is
plain causal attention of packed sequences. Whole blocks of tokens that see nothing of
each other are never multiplied, forward or backward, and memory is linear in L. Of the
two KERNELS "xla" is loops of plain JAX, measured on CPUs; "pallas" see `flash`.

B rows, L tokens, T tokens a block, n = L / T blocks, H query heads, G key-value heads,
R = H / G, X = R * T, K head width.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from openwebrl_jax.models import flash, layers, mesh

DENSE = 512  # tokens; shorter rows fit into one masked product
BLOCK = 256  # tokens
_NEVER = -1e30


class Sight(NamedTuple):
    """What each token sees, [B, L] int32 each, as indices into its own row."""

    start: jax.Array  # of the trunk's range
    limit: jax.Array  # behind its end; start = there is none
    own: jax.Array  # first token of the token's own run

    def mask(self):
        """[B, L, L], True where query (second axis) sees key (third)."""
        index_L = jnp.arange(self.own.shape[1])
        return jax.vmap(lambda one: visible(one, index_L, index_L))(self)


def visible(sight: Sight, query_Q, key_S):
    """True where the tokens at query_Q, whose Sight is given, see those at key_S."""
    query_Q1, key_1S = query_Q[:, None], key_S[None]
    start, limit, own = (field[..., None] for field in sight)
    trunk = (start <= key_1S) & (key_1S < limit)
    return trunk | ((own <= key_1S) & (key_1S <= query_Q1))


def inside(count_B, length: int) -> Sight:
    """The Sight of rows whose first tokens all see each other: patches of an image."""
    own_BL = jnp.broadcast_to(jnp.arange(length)[None], (len(count_B), length))
    limit_BL = jnp.broadcast_to(count_B[:, None], own_BL.shape)
    return Sight(jnp.zeros_like(own_BL), limit_BL, own_BL)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which blocks see which; made once for all layers."""

    sight: Sight
    blocks: jax.Array  # [B, n, n] int32, of keys; those that are seen come first
    count: jax.Array  # [B, n] int32, how many are seen
    seers: jax.Array  # [B, n, n] int32, of queries; those that see come first
    seer_count: jax.Array  # [B, n] int32
    kernel: str = dataclasses.field(metadata={"static": True})  # of KERNELS


def plan(
    sight: Sight, kernel: str = "xla", block: int | None = None
) -> Plan | jax.Array:
    """How `attend` goes about it: a mask for short rows, else a Plan."""
    block = block or BLOCK
    if sight.own.shape[1] <= DENSE:
        # Else XLA compares again in each head of each layer.
        return jax.lax.optimization_barrier(sight.mask())
    sight = _padded(sight, -sight.own.shape[1] % block)
    B, L = sight.own.shape
    n = L // block
    start, limit, own = (field.reshape(B, n, block) for field in sight)
    has_trunk = start < limit
    first_Bn1 = jnp.min(jnp.where(has_trunk, start, L), axis=-1)[..., None]
    end_Bn1 = jnp.max(jnp.where(has_trunk, limit, 0), axis=-1)[..., None]
    own_Bn1 = jnp.min(own, axis=-1)[..., None]
    low_11n = jnp.arange(n)[None, None] * block
    trunk = (first_Bn1 < low_11n + block) & (low_11n < end_Bn1)
    run = (own_Bn1 < low_11n + block) & (low_11n <= low_11n.swapaxes(1, 2))
    blocks, count = _listed(trunk | run)
    seers, seer_count = _listed((trunk | run).swapaxes(1, 2))
    return Plan(
        sight=sight,
        blocks=blocks,
        count=count,
        seers=seers,
        seer_count=seer_count,
        kernel=kernel,
    )


def _listed(is_seen_Bnn):
    """For each block those that are True, first of all, and how many they are."""
    blocks_Bnn = jnp.argsort(~is_seen_Bnn, axis=-1, stable=True).astype(jnp.int32)
    return blocks_Bnn, jnp.sum(is_seen_Bnn, axis=-1, dtype=jnp.int32)


def _padded(sight: Sight, more: int) -> Sight:
    """With so many tokens more, which see themselves alone."""
    B, L = sight.own.shape
    zeros = jnp.zeros((B, more), sight.own.dtype)
    itself = jnp.broadcast_to(L + jnp.arange(more)[None], (B, more))
    fields = zip(sight, (zeros, zeros, itself), strict=True)
    return Sight(*(jnp.concatenate(pair, axis=1) for pair in fields))


def attend(q_BLHK, k_BGKL, v_BGLK, planned: Plan | jax.Array):
    """Grouped-query attention [B, L, H * K] as planned; softmax in float32."""
    if not isinstance(planned, Plan):
        return layers.attend(q_BLHK, k_BGKL, v_BGLK, planned)
    B, L, H, K = q_BLHK.shape
    G = k_BGKL.shape[1]
    q_BGRLK = layers.head_major(q_BLHK * K**-0.5).reshape(B, G, H // G, L, K)
    more = planned.sight.own.shape[1] - L
    q_BGRLK, k_BGLK, v_BGLK = (
        jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, more), (0, 0)])
        for x in (q_BGRLK, k_BGKL.swapaxes(2, 3), v_BGLK)
    )
    out_BGRLK = _sharded(q_BGRLK, k_BGLK, v_BGLK, planned)[..., :L, :]
    return layers.head_major(out_BGRLK.reshape(B, H, L, K)).reshape(B, L, H * K)


def _sharded(q_BGRLK, k_BGLK, v_BGLK, planned: Plan):
    """Each device takes its own rows and heads."""
    kernel = KERNELS[planned.kernel]
    abstract = jax.sharding.get_abstract_mesh()
    if abstract.empty:
        return kernel(q_BGRLK, k_BGLK, v_BGLK, planned)

    def of(x, *axes):
        return mesh.spec(axes + (None,) * (x.ndim - len(axes)), x.shape, abstract)

    arrays = q_BGRLK, k_BGLK, v_BGLK
    return jax.shard_map(
        kernel,
        in_specs=(
            *(of(x, "batch", "heads") for x in arrays),
            jax.tree.map(lambda x: of(x, "batch"), planned),
        ),
        out_specs=of(q_BGRLK, "batch", "heads"),
        check_vma=False,  # loops begin with zeros, which vary over no axis
    )(*arrays, planned)


@jax.custom_vjp
def _attend(q_BGRLK, k_BGLK, v_BGLK, planned):
    return _forward(q_BGRLK, k_BGLK, v_BGLK, planned)[0]


def _forward(q_BGRLK, k_BGLK, v_BGLK, planned):
    B, n, _ = planned.blocks.shape
    take = functools.partial(_Block, planned)

    def one(where):
        block = take(*where)
        q_GXK = block.queries(q_BGRLK)
        shape = q_GXK.shape[:2]

        def see(i, carry):
            top_GX, total_GX, out_GXK = carry
            key = block.key(i)
            score_GXT = block.scores(q_GXK, k_BGLK, key)
            new_GX = jnp.maximum(top_GX, jnp.max(score_GXT, axis=-1))
            power_GXT = jnp.exp(score_GXT - new_GX[..., None])
            fade_GX = jnp.exp(top_GX - new_GX)
            value_GTK = block.keys(v_BGLK, key)
            more_GXK = _einsum(
                "gxt,gtk->gxk", power_GXT.astype(v_BGLK.dtype), value_GTK
            )
            return (
                new_GX,
                total_GX * fade_GX + jnp.sum(power_GXT, axis=-1),
                out_GXK * fade_GX[..., None] + more_GXK,
            )

        empty = (
            jnp.full(shape, _NEVER, jnp.float32),
            jnp.zeros(shape, jnp.float32),
            jnp.zeros(q_GXK.shape, jnp.float32),
        )
        top_GX, total_GX, out_GXK = jax.lax.fori_loop(0, block.count, see, empty)
        lse_GX = top_GX + jnp.log(total_GX)
        return (out_GXK / total_GX[..., None]).astype(q_BGRLK.dtype), lse_GX

    out_mGXK, lse_mGX = jax.lax.map(one, _places(B, n))
    out_BGRLK = _unblock(out_mGXK, q_BGRLK.shape)
    return out_BGRLK, (q_BGRLK, k_BGLK, v_BGLK, planned, out_mGXK, lse_mGX)


def _backward(kept, grad_BGRLK):
    q_BGRLK, k_BGLK, v_BGLK, planned, out_mGXK, lse_mGX = kept
    B, n, _ = planned.blocks.shape
    take = functools.partial(_Block, planned)

    def one(carry, each):
        where, out_GXK, lse_GX = each
        block = take(*where)
        q_GXK, grad_GXK = block.queries(q_BGRLK), block.queries(grad_BGRLK)
        mean_GX1 = jnp.sum(
            grad_GXK.astype(jnp.float32) * out_GXK, axis=-1, keepdims=True
        )

        def see(i, carry):
            k_grad_BGLK, v_grad_BGLK, q_grad_GXK = carry
            key = block.key(i)
            score_GXT = block.scores(q_GXK, k_BGLK, key)
            power_GXT = jnp.exp(score_GXT - lse_GX[..., None])
            weight_grad_GXT = _einsum("gxk,gtk->gxt", grad_GXK, block.keys(v_BGLK, key))
            score_grad_GXT = power_GXT * (weight_grad_GXT - mean_GX1)
            score_grad_GXT = score_grad_GXT.astype(q_GXK.dtype)
            power_GXT = power_GXT.astype(q_GXK.dtype)
            more_GXK = _einsum("gxt,gtk->gxk", score_grad_GXT, block.keys(k_BGLK, key))
            k_more_GTK = _einsum("gxt,gxk->gtk", score_grad_GXT, q_GXK)
            v_more_GTK = _einsum("gxt,gxk->gtk", power_GXT, grad_GXK)
            return (
                block.add(k_grad_BGLK, key, k_more_GTK),
                block.add(v_grad_BGLK, key, v_more_GTK),
                q_grad_GXK + more_GXK,
            )

        zero_GXK = jnp.zeros(q_GXK.shape, jnp.float32)
        *carry, q_grad_GXK = jax.lax.fori_loop(0, block.count, see, (*carry, zero_GXK))
        return tuple(carry), q_grad_GXK.astype(q_BGRLK.dtype)

    zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (k_BGLK, v_BGLK))
    (k_grad_BGLK, v_grad_BGLK), q_grad_mGXK = jax.lax.scan(
        one, zeros, (_places(B, n), out_mGXK, lse_mGX)
    )
    return (
        _unblock(q_grad_mGXK, q_BGRLK.shape),
        k_grad_BGLK.astype(k_BGLK.dtype),
        v_grad_BGLK.astype(v_BGLK.dtype),
        None,
    )


_attend.defvjp(_forward, _backward)

KERNELS = {"xla": _attend, "pallas": flash.attend}


class _Block:
    """One block of queries: its row, what it sees, and slices for it."""

    def __init__(self, planned: Plan, b, i):
        B, n, _ = planned.blocks.shape
        self.T = planned.sight.own.shape[1] // n
        self.b, self.i = b, i
        self.count = planned.count[b, i]
        self._list_n = planned.blocks[b, i]
        self._sight = jax.tree.map(
            lambda x_BL: jax.lax.dynamic_slice(x_BL, (b, i * self.T), (1, self.T))[0],
            planned.sight,
        )
        self._query_T = i * self.T + jnp.arange(self.T)

    def key(self, i):
        """First token of the i-th block of keys that is seen."""
        return self._list_n[i] * self.T

    def queries(self, x_BGRLK):
        """[G, X, K]."""
        _, G, R, _, K = x_BGRLK.shape
        start = (self.b, 0, 0, self.i * self.T, 0)
        x_1GRTK = jax.lax.dynamic_slice(x_BGRLK, start, (1, G, R, self.T, K))
        return x_1GRTK.reshape(G, R * self.T, K)

    def keys(self, x_BGLK, key):
        """[G, T, K] from the token `key` on."""
        _, G, _, K = x_BGLK.shape
        start = (self.b, 0, key, 0)
        return jax.lax.dynamic_slice(x_BGLK, start, (1, G, self.T, K))[0]

    def add(self, x_BGLK, key, more_GTK):
        """x with something added from the token `key` on."""
        start = (self.b, 0, key, 0)
        more_GTK = self.keys(x_BGLK, key) + more_GTK
        return jax.lax.dynamic_update_slice(x_BGLK, more_GTK[None], start)

    def scores(self, q_GXK, k_BGLK, key):
        """[G, X, T], as good as minus infinity where nothing is seen."""
        score_GXT = _einsum("gxk,gtk->gxt", q_GXK, self.keys(k_BGLK, key))
        mask_TT = visible(self._sight, self._query_T, key + jnp.arange(self.T))
        G, X, T = score_GXT.shape
        score_GRTT = score_GXT.reshape(G, X // T, T, T)
        return jnp.where(mask_TT[None, None], score_GRTT, _NEVER).reshape(G, X, T)


def _places(B, n):
    """Row and block of every block of queries, [B * n] each."""
    b_Bn, i_Bn = jnp.meshgrid(jnp.arange(B), jnp.arange(n), indexing="ij")
    return b_Bn.reshape(-1), i_Bn.reshape(-1)


def _unblock(x_mGXK, shape):
    """[B * n, G, R * T, K] -> [B, G, R, L, K]."""
    B, G, R, L, K = shape
    T = x_mGXK.shape[2] // R
    x_BnGRTK = x_mGXK.reshape(B, L // T, G, R, T, K)
    return x_BnGRTK.transpose(0, 2, 3, 1, 4, 5).reshape(shape)


def _einsum(formula, a, b):
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)
