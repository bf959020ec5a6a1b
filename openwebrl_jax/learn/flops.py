"""How many floating-point operations an update takes, and a device can do.

Only what the model needs is counted: tokens and patches that are there, keys that a
query sees, no padding and nothing that is computed again. T tokens, A pairs of a query
and a key that it sees, N loss positions; P patches, M merged tokens; the letters of the
sizes are those of `models`. Forward:

    decoder: 2 T layers (2 D H K + 2 D G K + 3 D F) + 4 A layers H K + 2 N D V
    tower:   2 P C W + depth (2 P (4 W W + 2 W F) + 4 A W) + 2 (1 + taps) M X (X + D)

with X = W merge^2. The backward pass takes twice as many.
"""

import jax
import numpy as np

from openwebrl_jax.core import types
from openwebrl_jax.models.sizes import DecoderSizes, Sizes, VisionSizes

# Dense bfloat16, 1e12 operations a second of one device, from the makers' data sheets;
# the first one that a device's kind begins with counts.
_PEAK_TFLOPS = (
    ("NVIDIA A100", 312.0),
    ("NVIDIA H100 PCIe", 756.0),
    ("NVIDIA H100 NVL", 835.0),
    ("NVIDIA H100", 989.0),
    ("NVIDIA H200", 989.0),
    ("NVIDIA B200", 2250.0),
    ("TPU v4 lite", 138.0),
    ("TPU v4", 275.0),
    ("TPU v5 lite", 197.0),
    ("TPU v5e", 197.0),
    ("TPU v5", 459.0),
    ("TPU v6 lite", 918.0),
    ("TPU v6e", 918.0),
)


def of_update(sizes: Sizes, batch: types.Batch, *, train_vision: bool = True) -> float:
    """Of a micro-batch's forward and backward pass; a frozen tower has no backward."""
    start_BL, limit_BL, own_BL = batch.sight_3BL
    index_1L = np.arange(batch.ids_BL.shape[1])[None]
    seen_BL = (limit_BL - start_BL) + (index_1L - own_BL + 1)
    is_there_BL = batch.segment_BL >= 0
    decoder = _decoder(
        sizes.decoder,
        tokens=int(np.count_nonzero(is_there_BL)),
        pairs=int(seen_BL[is_there_BL].sum()),
        positions=int(np.count_nonzero(batch.loss_weight_BN)),
    )
    count_I = batch.patch_count_I.astype(np.int64)
    tower = _tower(
        sizes.vision,
        sizes.decoder.width,
        patches=int(count_I.sum()),
        pairs=int((count_I**2).sum()),
    )
    return float(3 * decoder + (3 if train_vision else 1) * tower)


def peak(tflops: float, dtype: str) -> float:
    """Operations a second of all devices; 0 = not known.

    `tflops` of one device; 0 = by its kind, known for bfloat16 alone.
    """
    kind = jax.devices()[0].device_kind
    if not tflops and dtype == "bfloat16":
        tflops = next((n for name, n in _PEAK_TFLOPS if kind.startswith(name)), 0.0)
    return tflops * 1e12 * jax.device_count()


def _decoder(sizes: DecoderSizes, *, tokens: int, pairs: int, positions: int) -> int:
    D, queries = sizes.width, sizes.heads * sizes.head_width
    keys = sizes.kv_heads * sizes.head_width
    kernels = 2 * D * queries + 2 * D * keys + 3 * D * sizes.mlp
    layers = sizes.layers * (2 * tokens * kernels + 4 * pairs * queries)
    return layers + 2 * positions * D * sizes.vocab


def _tower(sizes: VisionSizes, out: int, *, patches: int, pairs: int) -> int:
    W, X = sizes.width, sizes.width * sizes.merge**2
    kernels = 4 * W * W + 2 * W * sizes.mlp
    blocks = sizes.depth * (2 * patches * kernels + 4 * pairs * W)
    merged = patches // sizes.merge**2
    mergers = (1 + len(sizes.taps)) * 2 * merged * X * (X + out)
    return 2 * patches * sizes.patch_values * W + blocks + mergers
