"""A very small model, rows for it, and the parts of a config that learning reads."""

import functools
import io
from types import SimpleNamespace

import jax
import numpy as np
from flax import nnx
from PIL import Image

from openwebrl_jax.batch import collate
from openwebrl_jax.core import types
from openwebrl_jax.learn import optim, state, update
from openwebrl_jax.models import init, mesh, sizes
from tests.batch.toys import SPEC

VOCAB, PAD = 64, 2
RULE = types.SamplingRule(temperature=0.7, forbidden_ids=(0, PAD))
SIZES = sizes.Sizes(
    vision=sizes.VisionSizes(
        depth=2,
        width=16,
        mlp=24,
        heads=2,
        patch_shape=(3, SPEC.temporal, SPEC.patch_px, SPEC.patch_px),
        merge=2,
        table_side=4,
        taps=(0,),
        rope_theta=10_000.0,
    ),
    decoder=sizes.DecoderSizes(
        vocab=VOCAB,
        width=32,
        mlp=48,
        layers=2,
        heads=2,
        kv_heads=1,
        head_width=16,
        rope_theta=1000.0,
        rope_section=(4, 2, 2),
        norm_eps=1e-6,
    ),
    is_tied=False,
)


@functools.cache
def make_params():
    """(graphdef, params in numpy) with some noise on norms and biases too.

    Embeddings are of size one: the norm behind them would blow rounding errors up.
    """
    graphdef, params = nnx.split(init.init_model(SIZES, 0), nnx.Param)
    draw = np.random.default_rng(1)

    def noisy(leaf):
        noise = 0.05 * draw.standard_normal(leaf.shape, np.float32)
        return np.asarray(leaf) + noise

    params = jax.tree.map(noisy, params)
    params["decoder"]["embed"][...] *= 15.0
    return graphdef, params


def few_params():
    """Some of them, as cheap to compile for: two tables, matrices, a norm, biases."""
    _, params = make_params()
    decoder, vision = params["decoder"], params["vision"]
    return nnx.State(
        {
            "embed": decoder["embed"],
            "table": vision["table"],
            "q": decoder["layers"]["q"],
            "down": decoder["layers"]["down"],
            "attn_norm": decoder["layers"]["attn_norm"],
            "qkv_bias": vision["blocks"]["qkv_bias"],
        }
    )


def make_optim(**changed):
    plain = {
        "name": "adamw",
        "lr_peak": 1e-2,
        "lr_rest": 0.0,
        "schedule": "constant",
        "warmup_steps": 0,
        "decay_share": 0.3,
        "b1": 0.9,
        "b2": 0.98,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
    }
    return SimpleNamespace(**{**plain, **changed})


def make_algo(**changed):
    plain = {"loss": "mm_grpo", "clip_low": 0.2, "clip_high": 0.28}
    return SimpleNamespace(**{**plain, "kl": 0.0, "entropy": 0.0, **changed})


def make_model_config(**changed):
    plain = {"dtype": "float32", "remat": False, "attention": "xla"}
    return SimpleNamespace(**{**plain, "train_vision": True, **changed})


def png(shade):
    """A page of 16 x 16 pixels: 16 patches, 4 tokens."""
    out = io.BytesIO()
    page = np.random.default_rng(shade).integers(0, 255, (16, 16, 3), np.uint8)
    Image.fromarray(page).save(out, format="PNG")
    return out.getvalue()


def make_row(seed, live, length=None, shade=None):
    """A row with one image and `live` loss tokens at its end."""
    draw = np.random.default_rng(seed)
    length = length or 8 + live
    ids = [1, PAD, PAD, PAD, PAD, *draw.integers(6, VOCAB, length - 5)]
    weight, old_logp = np.zeros((2, length), np.float32)
    if live:
        weight[-live:] = draw.uniform(0.5, 1.5, live) / live
        old_logp[-live:] = -4.0 + draw.uniform(-0.3, 0.3, live)
    return types.Row(
        ids=np.array(ids, np.int32),
        loss_weight=weight,
        old_logp=old_logp,
        advantage=float(draw.uniform(-1, 1)),
        images=(png(seed if shade is None else shade),),
        source=f"toy{seed}:0",
    )


def make_batches(rows, rows_a_batch, length=128, loss_tokens=120):
    shape = collate.Lattice(
        rows=rows_a_batch,
        lengths=(length,),
        loss_tokens=loss_tokens,
        images=(rows_a_batch,),
        patches=(16,),
    )
    return [
        collate.collate(
            [[row] for row in rows[start : start + rows_a_batch]],
            shape,
            SPEC,
            image_id=PAD,
            table_side=SIZES.vision.table_side,
        )
        for start in range(0, len(rows), rows_a_batch)
    ]


def make_mesh(data=1, fsdp=1, tp=1):
    return mesh.make_mesh(data, fsdp, tp, jax.devices()[: data * fsdp * tp])


def make_programs(the_mesh=None, *, algo=None, optimizer=None, model=None, rule=RULE):
    """(params, update, tx) of the toy model; nothing is compiled yet."""
    the_mesh = the_mesh or make_mesh()
    graphdef, params = make_params()
    tx = optim.make_optimizer(optimizer or make_optim())
    like = state.abstract_state(params, tx, the_mesh)
    made = update.make_update(
        graphdef,
        like,
        tx,
        the_mesh,
        rule,
        algo or make_algo(),
        model or make_model_config(),
    )
    places = jax.tree.map(lambda leaf: leaf.sharding, like.params)
    return jax.device_put(params, places), made, tx


def make_learner(**parts):
    """(state, update) of a fresh toy model."""
    params, made, tx = make_programs(**parts)
    return state.init_state(params, tx, made.mesh), made
