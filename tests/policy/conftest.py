"""A checkpoint small enough to compile in seconds, and what every test asks of it."""

import hashlib
import io
import json

import jax
import numpy as np
import pytest
from flax import nnx
from ml_collections import ConfigDict
from PIL import Image

from openwebrl_jax.core import types
from openwebrl_jax.models import init
from openwebrl_jax.models import sizes as sizes_of
from openwebrl_jax.policy import sampler
from openwebrl_jax.tokens import bpe, chat, images

TEXT = {
    "vocab_size": 352,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1024,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1000.0,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [0],
    "hidden_act": "gelu_pytorch_tanh",
    "out_hidden_size": 32,
}
PREPROCESSOR = {
    "patch_size": 16,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 1024, "longest_edge": 1_000_000},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
SAMPLE = {
    "temperature": 0.6,
    "response_tokens": 8,
    "context_tokens": 200,
    "slots": 2,
    "prompt_buckets": (128, 256),
    "timeout_s": 60.0,
    "static": False,
}
IMAGE_PX = (96, 64)  # 3 x 2 tokens


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A checkpoint folder without weights; some ids of the model have no token."""
    path = tmp_path_factory.mktemp("checkpoint")
    corpus = ['<think>click OK</think>\n{"name": "click", "arguments": {}}'] * 4
    tokenizer = bpe.train(corpus, 340, pieces=('{"name": "',))
    bpe.save(path, tokenizer)
    config = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": TEXT,
        "vision_config": VISION,
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
        "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    return path


@pytest.fixture(scope="session")
def make_params(folder):
    """seed -> (graphdef, params), with noise on every parameter.

    The end of a turn is made likely where it fits, so that some replies end.
    """

    def make(seed):
        graphdef, params = nnx.split(
            init.init_model(sizes_of.load_sizes(folder), seed), nnx.Param
        )
        draw = np.random.default_rng(seed)
        params = jax.tree.map(
            lambda x: x + 0.15 * draw.standard_normal(x.shape, np.float32), params
        )
        end_id = chat.load_chat(folder, history="full", open_think=True).end_id
        table_VD = params["decoder"]["embed"]
        table_VD[...] = table_VD[...].at[end_id].multiply(4.0)
        return graphdef, params

    return make


@pytest.fixture(scope="session")
def make(folder, make_params):
    """(history, version, **sample) -> a Sampler with the parameters of seed 0."""

    def make_sampler(history="full", **sample):
        graphdef, params = make_params(0)
        return sampler.Sampler(
            graphdef,
            params,
            7,
            chat=chat.load_chat(folder, history=history, open_think=True),
            spec=images.load_spec(folder),
            sizes=sizes_of.load_sizes(folder),
            config=ConfigDict({**SAMPLE, **sample}),
            image_px=IMAGE_PX,
            context_screenshots=3,
        )

    return make_sampler


@pytest.fixture(scope="session")
def png():
    """seed -> a picture as a PNG; seed None = a black one."""

    def draw(seed):
        shape = (IMAGE_PX[1], IMAGE_PX[0], 3)
        pixels = np.zeros(shape, np.uint8)
        if seed is not None:
            noise = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), np.uint8)
            pixels = noise.repeat(16, axis=0).repeat(16, axis=1)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()

    return draw


@pytest.fixture(scope="session")
def ask(png):
    """A first turn: (text, picture seed, key) -> SampleRequest."""

    def request(text="click OK", picture=0, key=(0, 0, 0, 0), is_greedy=False):
        screenshot = png(picture)
        sha = hashlib.sha256(screenshot).hexdigest()
        user = types.Segment(
            role="user",
            text=f"{text}\n{types.IMAGE_MARK}\n",
            image=sha,
            remembered_text=f"{text}\n",
        )
        return types.SampleRequest(
            episode_id=str(key),
            turn=key[3],
            segments=(types.Segment(role="system", text="You act."), user),
            images={sha: screenshot},
            key=key,
            is_greedy=is_greedy,
        )

    return request
