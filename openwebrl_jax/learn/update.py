"""One optimizer step, the same for MM-GRPO and MT-SFT: micro-batches in, state out.

    state, metrics = update.step(state, batches)

The loss is a sum whose weights carry all normalisation, so gradients of micro-batches
and of devices add up, whatever the split. B rows, N loss positions, I images: rows
and, where they divide, images are split over the mesh axes data and fsdp.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from openwebrl_jax.algos import mm_grpo, mt_sft
from openwebrl_jax.core import types
from openwebrl_jax.learn import hosts
from openwebrl_jax.learn import state as states
from openwebrl_jax.models import head, qwen3_vl, sight
from openwebrl_jax.models import mesh as meshes

LOSSES = {"mm_grpo": mm_grpo.loss, "mt_sft": mt_sft.loss}

jax.tree_util.register_dataclass(
    types.Batch,
    data_fields=[field.name for field in dataclasses.fields(types.Batch)],
    meta_fields=[],
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Update:
    """The jitted programs of a run. Made by `make_update`."""

    mesh: Mesh
    start: Callable  # params -> sums, all 0
    accumulate: Callable  # (params, sums, batch) -> sums; the sums are donated
    apply: Callable  # (state, sums, rate) -> (state, metrics); the state is donated
    score: Callable  # (params, batch) -> log-probs [B, N] of the loss positions

    def step(
        self,
        state: states.TrainState,
        batches: Iterable[types.Batch],
        rate: float = 1.0,
    ) -> tuple[states.TrainState, dict[str, Any]]:
        """One optimizer step over all the batches; metrics stay on the device.

        `rate` multiplies the optimizer's rates, see optim.tail.
        If nothing carries weight the state stays as it is and the step is counted as
        skipped.
        """
        live, fill = 0, np.zeros((2, 2))
        with jax.set_mesh(self.mesh):
            sums = self.start(state.params)
            for batch in batches:
                live += np.count_nonzero(batch.loss_weight_BN)
                fill += _fill(batch)
                sums = self.accumulate(state.params, sums, self.place(batch))
            if not live:
                return state, {"learner/skipped_steps": 1.0, "learner/tokens": 0.0}
            state, metrics = self.apply(state, sums, np.float32(rate))
        padding, image_padding = 1.0 - fill[0] / fill[1]
        return state, metrics | {
            "learner/padding_frac": padding,
            "learner/image_padding_frac": image_padding,
        }

    def logps(self, params: nnx.State, batch: types.Batch) -> np.ndarray:
        """Log-probs [B, N] of the loss positions."""
        with jax.set_mesh(self.mesh):
            return np.asarray(self.score(params, self.place(batch)))

    def in_turns(self, turns: contextlib.AbstractContextManager) -> "Update":
        """The same programs, each inside of `turns` from its start to its end."""

        def inside(program):
            def run(*arguments):
                with turns:
                    return jax.block_until_ready(program(*arguments))

            return run

        names = ("accumulate", "apply", "score")
        return dataclasses.replace(
            self, **{name: inside(getattr(self, name)) for name in names}
        )

    def place(self, batch: types.Batch) -> types.Batch:
        """The batch on the devices, split by the letters in its fields' names."""
        return hosts.place(batch, batch_shardings(batch, self.mesh))


def _fill(batch: types.Batch) -> np.ndarray:
    """[2, 2]: tokens and patches that are there, and places for them."""
    there = np.count_nonzero(batch.segment_BL >= 0), np.sum(batch.patch_count_I)
    return np.array([there, (batch.segment_BL.size, batch.patches_IPC[..., 0].size)])


def batch_shardings(batch: types.Batch, mesh: Mesh) -> types.Batch:
    """A sharding for each array of a batch."""
    places = {}
    for field in dataclasses.fields(types.Batch):
        shape = getattr(batch, field.name).shape
        letters = field.name.rpartition("_")[-1]
        axes = ["batch" if letter in "BI" else None for letter in letters]
        places[field.name] = meshes.named(axes, shape, mesh)
    return types.Batch(**places)


def make_update(
    graphdef: nnx.GraphDef,
    like: states.TrainState,
    tx: optax.GradientTransformation,
    mesh: Mesh,
    rule: types.SamplingRule,
    config_algo,
    config_model,
) -> Update:
    """The programs for a model, an optimizer and a mesh.

    Args:
      like: shapes and shardings of the state, see state.abstract_state.
      rule: of the distribution whose log-probs the loss is about.
      config_algo: `config.algo`; `loss` names one of LOSSES.
      config_model: `config.model`; dtype, remat, attention, train_vision are read.
    """
    places = jax.tree.map(lambda leaf: leaf.sharding, like)
    everywhere = NamedSharding(mesh, PartitionSpec())
    sums_places = {"grads": places.params, "metrics": everywhere}
    token_logps = functools.partial(_token_logps, graphdef, rule, config_model)
    loss = functools.partial(_loss, token_logps, config_algo)
    return Update(
        mesh=mesh,
        start=jax.jit(
            functools.partial(_start, config_algo), out_shardings=sums_places
        ),
        accumulate=jax.jit(
            functools.partial(_accumulate, loss),
            donate_argnums=1,
            in_shardings=(places.params, sums_places, None),
            out_shardings=sums_places,
        ),
        apply=jax.jit(
            functools.partial(_apply, tx, config_model.train_vision),
            donate_argnums=0,
            in_shardings=(places, sums_places, everywhere),
            out_shardings=(places, everywhere),
        ),
        score=jax.jit(
            lambda params, batch: token_logps(params, batch)[0],
            out_shardings=everywhere,
        ),
    )


def _start(config_algo, params):
    """Sums of nothing; their names are those of the loss."""
    loss, zero_BN = LOSSES[config_algo.loss], jnp.zeros((1, 1))
    _, names = jax.eval_shape(
        lambda x_BN: loss(x_BN, x_BN, x_BN, x_BN, x_BN, config_algo), zero_BN
    )
    return {
        "grads": jax.tree.map(jnp.zeros_like, params),
        "metrics": {name: jnp.zeros(()) for name in names},
    }


def _loss(token_logps, config_algo, params, batch):
    logp_BN, entropy_BN = token_logps(params, batch)
    return LOSSES[config_algo.loss](
        logp_BN,
        entropy_BN,
        batch.old_logp_BN,
        batch.advantage_BN,
        batch.loss_weight_BN,
        config_algo,
    )


def _accumulate(loss, params, sums, batch):
    grads, metrics = jax.grad(loss, has_aux=True)(params, batch)
    return {
        "grads": jax.tree.map(jnp.add, sums["grads"], grads),
        "metrics": {
            name: jnp.maximum(before, metrics[name])
            if name.endswith("_max")
            else before + metrics[name]
            for name, before in sums["metrics"].items()
        },
    }


def _apply(tx, train_vision, state, sums, rate):
    grads = sums["grads"]
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    updates = jax.tree.map(lambda update: rate * update, updates)
    if not train_vision:
        updates = _without_vision(updates)
    params = optax.apply_updates(state.params, updates)
    metrics = _means(sums["metrics"])
    metrics["learner/grad_norm"] = optax.tree.norm(grads)
    metrics["learner/update_norm"] = optax.tree.norm(updates)
    metrics["learner/param_norm"] = optax.tree.norm(params)
    return states.TrainState(params, opt_state, state.step + 1), metrics


def _token_logps(graphdef, rule, config_model, params, batch):
    """Log-prob and entropy [B, N] at the loss positions, float32."""
    dtype = jnp.dtype(config_model.dtype)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    model = nnx.merge(graphdef, params)
    features = qwen3_vl.encode_images(
        model,
        batch.patches_IPC,
        batch.patch_count_I,
        batch.patch_position_2IP,
        batch.table_index_4IP,
        batch.table_weight_4IP,
        remat=config_model.remat,
        kernel=config_model.attention,
    )
    if not config_model.train_vision:
        features = jax.lax.stop_gradient(features)
    before_BN, target_BN = head.at_positions(batch.ids_BL, batch.loss_index_BN)
    hidden_BND = qwen3_vl.forward(
        model,
        batch.ids_BL,
        batch.positions_3BL,
        sight.Sight(*batch.sight_3BL),
        batch.image_index_BL,
        features,
        before_BN,
        remat=config_model.remat,
        kernel=config_model.attention,
    )
    logp_R, entropy_R = head.token_logps(
        hidden_BND.reshape(-1, hidden_BND.shape[-1]),
        qwen3_vl.table_VD(model),
        target_BN.reshape(-1),
        rule,
    )
    shape = batch.loss_index_BN.shape
    return logp_R.reshape(shape), entropy_R.reshape(shape)


def _means(sums: dict[str, Any]) -> dict[str, Any]:
    """Sums over tokens -> what is logged; the loss is already a mean."""
    tokens = jnp.maximum(sums["tokens"], 1.0)
    whole = ("loss", "tokens")
    return {
        f"learner/{name}": value
        if name in whole or name.endswith("_max")
        else value / tokens
        for name, value in sums.items()
    }


def _without_vision(updates):
    """Zero for the vision tower, so that weight decay does not touch it either."""

    def one(path, update):
        return jnp.zeros_like(update) if path[0].key == "vision" else update

    return jax.tree.map_with_path(one, updates)
