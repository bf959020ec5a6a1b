"""Attention of `sight` as TPU kernels (Pallas), forward and backward.

One step of a grid is a block of queries with one of the blocks of keys that it sees.
The lists of blocks are fetched before the kernel runs: what sees nothing of each other
is neither read nor multiplied, and no grid is longer than the longest list. Scores lie
as [keys, queries], so that all that belongs to a query is a row and never turned.

Measured: equality with the loops of `sight`, interpreted on a CPU. Only built: it
lowers for TPUs, on which it has not run yet. Stock kernels do not express it: splash
attention wants its mask as a constant or dense, cuDNN's knows causal and lengths.

B rows, G key-value heads, R query heads for each, n blocks of T tokens, X = R * T,
K head width, m blocks in the longest list.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

_NEVER = -1e30


@jax.custom_vjp
def attend(q_BGRLK, k_BGLK, v_BGLK, planned):
    """Grouped-query attention [B, G, R, L, K] as planned; queries come scaled."""
    return _forward(q_BGRLK, k_BGLK, v_BGLK, planned)[0]


def _forward(q_BGRLK, k_BGLK, v_BGLK, planned):
    B, G, R, L, K = q_BGRLK.shape
    n = planned.count.shape[1]
    X = R * L // n
    q_BGnXK, k_BGnTK, v_BGnTK = (_cut(x, n) for x in (q_BGRLK, k_BGLK, v_BGLK))
    row = jax.ShapeDtypeStruct((B, G, n, 1, X), jnp.float32)
    out_BGnXK, lse_BGn1X = _call(
        _forward_kernel,
        (planned.blocks, planned.count),
        own=(q_BGnXK, _sight(planned)),
        seen=(k_BGnTK, v_BGnTK),
        out=(jax.ShapeDtypeStruct(q_BGnXK.shape, q_BGRLK.dtype), row),
        scratch=((1, X), (1, X), (K, X)),
    )
    kept = q_BGnXK, k_BGnTK, v_BGnTK, planned, out_BGnXK, lse_BGn1X
    return _join(out_BGnXK, R), kept


def _backward(kept, grad_BGRLK):
    q_BGnXK, k_BGnTK, v_BGnTK, planned, out_BGnXK, lse_BGn1X = kept
    R, (n, T, K) = grad_BGRLK.shape[2], k_BGnTK.shape[2:]
    X = R * T
    grad_BGnXK = _cut(grad_BGRLK, n)
    product_BGnXK = grad_BGnXK.astype(jnp.float32) * out_BGnXK.astype(jnp.float32)
    mean_BGn1X = jnp.sum(product_BGnXK, axis=-1)[..., None, :]
    queries = q_BGnXK, grad_BGnXK, lse_BGn1X, mean_BGn1X, _sight(planned)
    keys = k_BGnTK, v_BGnTK
    like = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731
    (q_grad_BGnXK,) = _call(
        _query_kernel,
        (planned.blocks, planned.count),
        own=queries,
        seen=keys,
        out=(like(q_BGnXK),),
        scratch=((K, X),),
    )
    k_grad_BGnTK, v_grad_BGnTK = _call(
        _key_kernel,
        (planned.seers, planned.seer_count),
        own=keys,
        seen=queries,
        out=(like(k_BGnTK), like(v_BGnTK)),
        scratch=((T, K), (T, K)),
    )
    return (
        _join(q_grad_BGnXK, R),
        _join(k_grad_BGnTK, 1)[:, :, 0],
        _join(v_grad_BGnTK, 1)[:, :, 0],
        None,
    )


attend.defvjp(_forward, _backward)


def _forward_kernel(at, q, sight, k, v, out, lse, top, total, sums):
    @pl.when(at.is_first)
    def _():
        top[...] = jnp.full(top.shape, _NEVER, jnp.float32)
        total[...] = jnp.zeros(total.shape, jnp.float32)
        sums[...] = jnp.zeros(sums.shape, jnp.float32)

    @pl.when(at.is_live)
    def _():
        score_TX = _scores(k[...], q[...], sight[...], at.other, at.own)
        new_1X = jnp.maximum(top[...], jnp.max(score_TX, axis=0, keepdims=True))
        power_TX = jnp.exp(score_TX - new_1X)
        fade_1X = jnp.exp(top[...] - new_1X)
        top[...] = new_1X
        total[...] = total[...] * fade_1X + jnp.sum(power_TX, axis=0, keepdims=True)
        value_TK = v[...]
        more_KX = _dot(value_TK, power_TX.astype(value_TK.dtype), 0, 0)
        sums[...] = sums[...] * fade_1X + more_KX

    @pl.when(at.is_last)
    def _():
        out[...] = (sums[...] / total[...]).T.astype(out.dtype)
        lse[...] = top[...] + jnp.log(total[...])


def _query_kernel(at, q, grad, lse, mean, sight, k, v, q_grad, sums):
    @pl.when(at.is_first)
    def _():
        sums[...] = jnp.zeros(sums.shape, jnp.float32)

    @pl.when(at.is_live)
    def _():
        score_TX = _scores(k[...], q[...], sight[...], at.other, at.own)
        _, score_grad_TX = _slopes(score_TX, v[...], grad[...], lse[...], mean[...])
        sums[...] += _dot(k[...], score_grad_TX, 0, 0)

    @pl.when(at.is_last)
    def _():
        q_grad[...] = sums[...].T.astype(q_grad.dtype)


def _key_kernel(at, k, v, q, grad, lse, mean, sight, k_grad, v_grad, k_sums, v_sums):
    @pl.when(at.is_first)
    def _():
        k_sums[...] = jnp.zeros(k_sums.shape, jnp.float32)
        v_sums[...] = jnp.zeros(v_sums.shape, jnp.float32)

    @pl.when(at.is_live)
    def _():
        score_TX = _scores(k[...], q[...], sight[...], at.own, at.other)
        power_TX, score_grad_TX = _slopes(
            score_TX, v[...], grad[...], lse[...], mean[...]
        )
        k_sums[...] += _dot(score_grad_TX, q[...], 1, 0)
        v_sums[...] += _dot(power_TX, grad[...], 1, 0)

    @pl.when(at.is_last)
    def _():
        k_grad[...] = k_sums[...].astype(k_grad.dtype)
        v_grad[...] = v_sums[...].astype(v_grad.dtype)


def _scores(key_TK, query_XK, sight_3T, key_block, query_block):
    """[T, X], as good as minus infinity where nothing is seen."""
    score_TX = _dot(key_TK, query_XK, 1, 1)
    T, X = score_TX.shape
    start_1X, limit_1X, own_1X = (
        jnp.tile(sight_3T[i : i + 1], (1, X // T)) for i in range(3)
    )
    key_TX = key_block * T + jax.lax.broadcasted_iota(jnp.int32, (T, X), 0)
    index_1T = query_block * T + jax.lax.broadcasted_iota(jnp.int32, (1, T), 1)
    trunk_TX = (start_1X <= key_TX) & (key_TX < limit_1X)
    run_TX = (own_1X <= key_TX) & (key_TX <= jnp.tile(index_1T, (1, X // T)))
    return jnp.where(trunk_TX | run_TX, score_TX, _NEVER)


def _slopes(score_TX, value_TK, grad_XK, lse_1X, mean_1X):
    """The weights [T, X] and the gradients of their scores."""
    power_TX = jnp.exp(score_TX - lse_1X)
    score_grad_TX = power_TX * (_dot(value_TK, grad_XK, 1, 1) - mean_1X)
    return power_TX.astype(grad_XK.dtype), score_grad_TX.astype(grad_XK.dtype)


def _dot(a, b, a_axis: int, b_axis: int):
    """The product over these axes, float32."""
    axes = (((a_axis,), (b_axis,)), ((), ()))
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


class _At:
    """Where a step of the grid stands."""

    def __init__(self, blocks, count):
        row, step = pl.program_id(0), pl.program_id(3)
        self.own = pl.program_id(2)
        place = row * pl.num_programs(2) + self.own
        self.other = blocks[place * pl.num_programs(2) + step]
        self.is_first = step == 0
        self.is_live = step < count[place]
        self.is_last = step == pl.num_programs(3) - 1


def _call(
    kernel: Callable,
    lists: tuple[Any, Any],
    *,
    own: Sequence[Any],
    seen: Sequence[Any],
    out: Sequence[jax.ShapeDtypeStruct],
    scratch: Sequence[tuple[int, int]],
):
    """Runs the kernel over each block and all those in its list.

    Args:
      lists: blocks [B, n, n] and how many of them count [B, n].
      own: arrays that are read by block, [B, G, n, ., .] or [B, 1, n, ., .].
      seen: the same, read by the blocks of the list.
      scratch: float32 that lasts from a list's first block to its last.
    """
    blocks_Bnn, count_Bn = lists
    B, n = count_Bn.shape
    G = out[0].shape[1]

    def spec(x, block: Callable):
        def index(b, g, i, step, blocks, count):
            return (
                b,
                g if x.shape[1] == G else 0,
                block(b, i, step, blocks, count),
                0,
                0,
            )

        return pl.BlockSpec((None, None, None, *x.shape[3:]), index)

    def itself(b, i, step, blocks, count):
        return i

    def listed(b, i, step, blocks, count):
        # Behind the list's end the last block stays: nothing is fetched.
        place = b * n + i
        return blocks[place * n + jnp.minimum(step, count[place] - 1)]

    def body(blocks, count, *refs):
        kernel(_At(blocks, count), *refs)

    return pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(B, G, n, jnp.max(count_Bn)),
            in_specs=[
                *(spec(x, itself) for x in own),
                *(spec(x, listed) for x in seen),
            ],
            out_specs=[spec(x, itself) for x in out],
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
        ),
        out_shape=list(out),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
        ),
        interpret=_is_interpreted(),
    )(blocks_Bnn.reshape(-1), count_Bn.reshape(-1), *own, *seen)


def _is_interpreted() -> bool:
    """On a CPU, which has no such kernels."""
    platform = jax.default_backend()
    if platform not in ("tpu", "cpu"):
        raise ValueError(
            f"config.model.attention='pallas' is for TPUs, this is a {platform}; set "
            "it to 'xla'"
        )
    return platform == "cpu"


def _sight(planned):
    """[B, 1, n, 3, T]."""
    B, n = planned.count.shape
    sight_3BnT = jnp.stack(planned.sight).reshape(3, B, n, -1)
    return sight_3BnT.transpose(1, 2, 0, 3)[:, None]


def _cut(x, n):
    """[B, G, R, L, K] or [B, G, L, K] -> [B, G, n, R * T, K]."""
    x_BGRLK = x if x.ndim == 5 else x[:, :, None]
    B, G, R, L, K = x_BGRLK.shape
    x_BGnRTK = x_BGRLK.reshape(B, G, R, n, L // n, K).swapaxes(2, 3)
    return x_BGnRTK.reshape(B, G, n, R * L // n, K)


def _join(x_BGnXK, R):
    """[B, G, n, R * T, K] -> [B, G, R, L, K]."""
    B, G, n, X, K = x_BGnXK.shape
    x_BGnRTK = x_BGnXK.reshape(B, G, n, R, X // R, K)
    return x_BGnRTK.swapaxes(2, 3).reshape(B, G, R, n * X // R, K)
