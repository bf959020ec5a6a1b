"""Parity with torch's Qwen3-VL, and what must not change the numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from openwebrl_jax.models import cache, qwen3_vl
from tests.models import small


def tolerance(expected) -> float:
    return 3e-5 * max(1.0, expected.std())


def test_logits_equal_torch(loaded, example, features, expected):
    got = small.read(loaded.graphdef, loaded.params, example.tokens(), features)
    assert expected.std() > 1.0  # else a difference could hide
    np.testing.assert_allclose(got[0], expected, atol=tolerance(expected), rtol=0)


def test_untied_head_and_text_alone_equal_torch(untied_folder, untied_torch_model):
    untied = small.load_split(untied_folder)
    text = small.make_example(3, grids=())
    with torch.no_grad():
        ids = torch.tensor(text.ids[None]).long()
        expected = untied_torch_model(input_ids=ids).logits[0].numpy()
    assert untied.params["head"].shape == (small.VOCAB, 64)
    got = small.read(untied.graphdef, untied.params, text.tokens(), None)
    np.testing.assert_allclose(got[0], expected, atol=tolerance(expected), rtol=0)


def test_tokens_that_are_asked_for_are_those_of_all(loaded, example, features):
    @jax.jit
    def both(params, tokens, features, index_BN):
        model = nnx.merge(loaded.graphdef, params)
        whole_BLD = qwen3_vl.forward(model, **tokens, features=features)
        few_BND = qwen3_vl.forward(
            model, **tokens, features=features, index_BN=index_BN
        )
        return whole_BLD[0][index_BN[0]], few_BND[0]

    index_BN = jnp.asarray([[3, 9, 9, 0]])
    want, got = both(loaded.params, example.tokens(), features, index_BN)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_gradients_equal_torch(loaded, example, expected_gradients):
    images = example.images(loaded.sizes)
    grads, _ = small.gradient(
        loaded.params, loaded.graphdef, example.tokens(), images, False
    )
    small.assert_gradients(loaded.sizes, grads, expected_gradients, 1, 2e-5)


def test_greedy_tokens_equal_torch(loaded, torch_model, example):
    with torch.no_grad():
        want = torch_model.generate(
            **example.torch_inputs(), max_new_tokens=12, do_sample=False
        )[0, len(example.ids) :]

    @jax.jit
    def first(params, tokens, images):
        model = nnx.merge(loaded.graphdef, params)
        empty = cache.init_cache(loaded.sizes, 1, 64)
        features = qwen3_vl.encode_images(model, **images)
        return tell(model, empty, tokens, features, jnp.zeros(1, jnp.int32))

    @jax.jit
    def following(params, places, ids_BL, start_B, rope_B):
        model = nnx.merge(loaded.graphdef, params)
        tokens = dict(
            ids_BL=ids_BL,
            positions_3BL=jnp.broadcast_to(rope_B[None, :, None], (3, 1, 1)),
            image_index_BL=jnp.full_like(ids_BL, -1),
        )
        return tell(model, places, tokens, None, start_B)

    def tell(model, places, tokens, features, start_B):
        hidden, places = small.extend(model, places, tokens, features, start_B)
        return jnp.argmax(hidden @ qwen3_vl.table_VD(model).T, -1), places

    tokens = example.tokens(length=40)  # padded, as a bucket is
    del tokens["sight"]
    count = len(example.ids)
    rope = int(tokens["positions_3BL"].max()) + 1
    best, places = first(loaded.params, tokens, example.images(loaded.sizes))
    got = [int(best[0, count - 1])]
    for i in range(11):
        best, places = following(
            loaded.params,
            places,
            jnp.asarray([got[-1:]], jnp.int32),
            jnp.asarray([count + i], jnp.int32),
            jnp.asarray([rope + i], jnp.int32),
        )
        got.append(int(best[0, 0]))
    assert got == want.tolist()
    assert len(set(got)) > 6


def test_wrong_ports_are_seen(loaded, example, features, expected, monkeypatch):
    """One-axis rope, no DeepStack and tanh in the merger each miss by far."""

    def error(tokens, features) -> float:
        got = small.read(loaded.graphdef, loaded.params, tokens, features)
        return float(np.abs(got[0] - expected).max())

    tokens = example.tokens()
    assert error(tokens, features) < tolerance(expected)
    time_3BL = jnp.stack([tokens["positions_3BL"][0]] * 3)
    assert error(tokens | {"positions_3BL": time_3BL}, features) > 1e-2
    no_taps = features._replace(deepstack=jnp.zeros_like(features.deepstack))
    assert error(tokens, no_taps) > 1e-2
    gelu = jax.nn.gelu
    monkeypatch.setattr(jax.nn, "gelu", lambda x, approximate: gelu(x))
    images = example.images(loaded.sizes)
    wrong = jax.jit(qwen3_vl.encode_images)(loaded.model(), **images)
    assert error(tokens, wrong) > 1e-2


def test_padding_and_packing_change_nothing(loaded, example, features, expected):
    """Two rows in one, with padding between and behind, equal the rows alone."""
    other = small.make_example(5, grids=())
    alone = small.read(loaded.graphdef, loaded.params, other.tokens(), features)
    first, second = example.tokens(48), other.tokens(16)
    own = jax.tree.map(lambda index_BL: index_BL + 48, second["sight"])
    packed = jax.tree.map(
        lambda one, other: jnp.concatenate([one, other], axis=-1),
        first,
        second | {"sight": own},
    )
    got = small.read(loaded.graphdef, loaded.params, packed, features)
    count, close = len(example.ids), dict(atol=tolerance(expected), rtol=0)
    np.testing.assert_allclose(got[0, :count], expected, **close)
    np.testing.assert_allclose(got[0, 48 : 48 + len(other.ids)], alone[0], **close)


def test_image_buckets_change_nothing(loaded, example, expected):
    """More places for patches and for images: the same logits, and no gradient."""
    images = example.images(loaded.sizes, patches=40, images=3)
    features = small.encode(loaded.graphdef, loaded.params, images)
    tokens = example.tokens(patches=40)
    got = small.read(loaded.graphdef, loaded.params, tokens, features)
    np.testing.assert_allclose(got[0], expected, atol=tolerance(expected), rtol=0)


def test_cache_equals_no_cache(loaded, example, features, expected):
    """Rows of two lengths, prefilled in one bucket, then fed two tokens at a time."""
    count = len(example.ids)
    tokens = example.tokens()
    del tokens["sight"]
    rows = {name: jnp.concatenate([value] * 2, -2) for name, value in tokens.items()}
    lengths = np.asarray([count - 4, count - 6])

    @jax.jit
    def extend(params, places, tokens, features, start_B):
        model = nnx.merge(loaded.graphdef, params)
        hidden, places = small.extend(model, places, tokens, features, start_B)
        return hidden @ qwen3_vl.table_VD(model).T, places

    # Beyond its length each row is prefilled with what must be overwritten.
    beyond = jnp.arange(count)[None] >= lengths[:, None]
    prefill = rows | {"ids_BL": jnp.where(beyond, 7, rows["ids_BL"])}
    places = cache.init_cache(loaded.sizes, 2, count + 3)
    start = jnp.zeros(2, jnp.int32)
    got, places = extend(loaded.params, places, prefill, features, start)
    close = dict(atol=tolerance(expected), rtol=0)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(got[row, :length], expected[:length], **close)
    for step in range(2):
        start = lengths + 2 * step
        at_BL = jnp.asarray(start[:, None] + np.arange(2))
        two = dict(
            ids_BL=jnp.take_along_axis(rows["ids_BL"], at_BL, axis=1),
            positions_3BL=jnp.take_along_axis(
                rows["positions_3BL"], jnp.stack([at_BL] * 3), axis=2
            ),
            image_index_BL=jnp.full((2, 2), -1),
        )
        got, places = extend(
            loaded.params, places, two, None, jnp.asarray(start, jnp.int32)
        )
        for row in range(2):
            want = expected[start[row] : start[row] + 2]
            np.testing.assert_allclose(got[row], want, **close)


def test_bfloat16_is_no_further_off_than_torch_s(loaded, example, expected):
    """Casting the parameters casts the model; its noise is what torch's bf16 has."""
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), loaded.params)
    features = small.encode(loaded.graphdef, params, example.images(loaded.sizes))
    assert features.merged.dtype == jnp.bfloat16
    got = small.read(loaded.graphdef, params, example.tokens(), features)
    torch_model = small.make_torch(is_tied=True).bfloat16()
    with torch.no_grad():
        theirs = torch_model(**example.torch_inputs()).logits

    def error(logit_LV) -> np.ndarray:
        want = jax.nn.log_softmax(jnp.asarray(expected, jnp.float32))
        return np.abs(jax.nn.log_softmax(jnp.float32(logit_LV)) - want)

    ours, theirs = error(got[0]), error(theirs[0].float().numpy())
    assert ours.mean() < 1.5 * theirs.mean() < 0.05
