"""The small Qwen3-VL of these tests: its config, its example, its arrays."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from flax import nnx

from openwebrl_jax.models import cache, load, qwen3_vl, sight
from openwebrl_jax.tokens import positions

VOCAB, PAD = 96, 90  # of tokens, and the image pad
GRIDS = ((4, 6), (6, 2))  # patches


def config(is_tied: bool) -> transformers.Qwen3VLConfig:
    return transformers.Qwen3VLConfig(
        text_config=dict(
            vocab_size=VOCAB,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=5e6,
                mrope_section=[4, 2, 2],
                mrope_interleaved=True,
            ),
        ),
        vision_config=dict(
            depth=4,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            patch_size=4,
            out_hidden_size=64,
            num_position_embeddings=64,
            deepstack_visual_indexes=[1, 3],
        ),
        image_token_id=PAD,
        video_token_id=PAD + 1,
        vision_start_token_id=PAD + 2,
        vision_end_token_id=PAD + 3,
        tie_word_embeddings=is_tied,
    )


def make_torch(is_tied: bool) -> transformers.Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    model = transformers.Qwen3VLForConditionalGeneration(config(is_tied)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
        tower = model.model.visual
        # Where the exact GELU and its tanh form differ most, against their size.
        for merger in (tower.merger, *tower.deepstack_merger_list):
            merger.linear_fc1.bias.sub_(4.0)
    model.generation_config.eos_token_id = None
    return model


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model split at the jit border."""

    sizes: object
    graphdef: nnx.GraphDef
    params: nnx.State

    def model(self) -> qwen3_vl.Model:
        return nnx.merge(self.graphdef, self.params)


def load_split(path) -> Loaded:
    sizes, model = load.load_model(path)
    return Loaded(sizes, *nnx.split(model, nnx.Param))


@dataclasses.dataclass(frozen=True)
class Example:
    """One row of tokens with its images, as the model eats it."""

    ids: np.ndarray  # [L]
    grids: tuple[tuple[int, int], ...]
    patches: tuple[np.ndarray, ...]  # one [P, C] an image

    def torch_inputs(self) -> dict:
        thw = [(1, *grid) for grid in self.grids]
        return dict(
            input_ids=torch.tensor(self.ids[None]).long(),
            mm_token_type_ids=torch.tensor(self.ids[None] == PAD).int(),
            pixel_values=torch.tensor(np.concatenate(self.patches)),
            image_grid_thw=torch.tensor(thw),
        )

    def images(self, sizes, patches: int = 24, images: int = 2) -> dict:
        """The image fields of a Batch; unused places are filled with nonsense."""
        draw = np.random.default_rng(9)
        values = sizes.vision.patch_values
        fields = dict(
            patches_IPC=draw.normal(size=(images, patches, values)).astype("f"),
            patch_count_I=np.zeros(images, np.int32),
            patch_position_2IP=np.full((2, images, patches), 5, np.int32),
            table_index_4IP=np.full((4, images, patches), 5, np.int32),
            table_weight_4IP=np.full((4, images, patches), 0.5, np.float32),
        )
        for i, (grid, image) in enumerate(zip(self.grids, self.patches, strict=True)):
            count = len(image)
            plan = positions.vision_plan(*grid, 2, sizes.vision.table_side)
            fields["patches_IPC"][i, :count] = image
            fields["patch_count_I"][i] = count
            fields["patch_position_2IP"][:, i, :count] = plan[0]
            fields["table_index_4IP"][:, i, :count] = plan[1]
            fields["table_weight_4IP"][:, i, :count] = plan[2]
        return device(fields)

    def tokens(self, length: int | None = None, patches: int = 24) -> dict:
        """The token fields of a Batch of one row, padded to a length."""
        count, length = len(self.ids), length or len(self.ids)
        rope = positions.rope_positions(self.ids, self.grids, image_id=PAD, merge=2)
        offsets = [i * patches // 4 for i in range(len(self.grids))]
        fields = dict(
            ids_BL=np.full((1, length), 7, np.int32),
            positions_3BL=np.zeros((3, 1, length), np.int32),
            image_index_BL=np.full((1, length), -1, np.int32),
        )
        fields["ids_BL"][0, :count] = self.ids
        fields["positions_3BL"][:, 0, :count] = rope
        index = positions.image_index(self.ids, PAD, offsets)
        fields["image_index_BL"][0, :count] = index
        return device(fields) | {"sight": make_sight(count, length)}


def make_sight(count: int, length: int) -> sight.Sight:
    """Of one run of tokens; the padding behind it sees itself."""
    index_L = np.arange(length)
    own_L = np.where(index_L < count, 0, index_L)
    zeros_1L = jnp.zeros((1, length), jnp.int32)
    return sight.Sight(zeros_1L, zeros_1L, jnp.asarray(own_L[None], jnp.int32))


def device(fields: dict) -> dict:
    return {name: jnp.asarray(value) for name, value in fields.items()}


def make_example(seed: int, grids=GRIDS) -> Example:
    draw = np.random.default_rng(seed)
    ids = [*draw.integers(0, PAD, 5)]
    for rows, cols in grids:
        pads = [PAD] * (rows * cols // 4)
        ids += [PAD + 2, *pads, PAD + 3, *draw.integers(0, PAD, 6)]
    patches = tuple(
        draw.normal(size=(rows * cols, 96)).astype(np.float32) for rows, cols in grids
    )
    return Example(np.asarray(ids, np.int32), tuple(grids), patches)


@functools.partial(jax.jit, static_argnums=0)
def encode(graphdef, params, images) -> qwen3_vl.Features:
    return qwen3_vl.encode_images(nnx.merge(graphdef, params), **images)


@functools.partial(jax.jit, static_argnums=0)
def read(graphdef, params, tokens, features):
    """Logits [B, L, V] of a whole forward pass."""
    model = nnx.merge(graphdef, params)
    hidden_BLD = qwen3_vl.forward(model, **tokens, features=features)
    return hidden_BLD @ qwen3_vl.table_VD(model).T


def loss(params, graphdef, tokens, images, remat):
    """Summed cross-entropy of all tokens but the first, and the logits."""
    model = nnx.merge(graphdef, params)
    features = qwen3_vl.encode_images(model, **images, remat=remat)
    hidden_BLD = qwen3_vl.forward(model, **tokens, features=features, remat=remat)
    logit_BLV = hidden_BLD @ qwen3_vl.table_VD(model).T
    logp_BLV = jax.nn.log_softmax(logit_BLV[:, :-1])
    target_BL1 = tokens["ids_BL"][:, 1:, None]
    return -jnp.take_along_axis(logp_BLV, target_BL1, axis=2).sum(), logit_BLV


gradient = jax.jit(jax.grad(loss, has_aux=True), static_argnums=(1, 4))


def assert_gradients(sizes, grads, expected, rows: int, tolerance: float):
    """Each tensor's gradient over `rows` equal rows, relative to its largest value."""
    got = load.to_tensors(sizes, grads)
    assert got.keys() == expected.keys()
    for name, want in expected.items():
        scale = np.abs(want).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            got[name] / rows, want, atol=tolerance * scale, rtol=0, err_msg=name
        )


def extend(model, places, tokens, features, start_B):
    """Hidden states of tokens more for each row; and the cache with them."""
    rows = len(start_B)
    past = cache.in_place(places, jnp.arange(rows), start_B)
    own = cache.init_cache(model.sizes, *tokens["ids_BL"].shape)
    hidden, own = qwen3_vl.extend(model, past, own, 0, **tokens, features=features)
    return hidden, cache.put(places, own, jnp.arange(rows), start_B, rows)
