"""Checkpoint folders in and out, and each way in which one can be broken."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from openwebrl_jax.models import load, sizes
from tests.models import small


@pytest.fixture
def copy(folder, tmp_path):
    """A folder of one's own to break."""
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def rewrite(folder, change):
    """Lets `change` work on the tensors of a folder, by name."""
    path = folder / load.WEIGHTS
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_saved_folder_is_the_same_model_to_torch(
    is_tied, folder, untied_folder, tmp_path
):
    source = folder if is_tied else untied_folder
    (source / "tokenizer_config.json").write_text("{}")
    got_sizes, model = load.load_model(source)
    load.save_model(tmp_path, got_sizes, model, source)
    assert (tmp_path / "tokenizer_config.json").read_text() == "{}"
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1, "who may read the config may read the weights"
    make = transformers.Qwen3VLForConditionalGeneration.from_pretrained
    saved, original = make(tmp_path), make(source)
    assert saved.dtype == torch.float32
    want = original.state_dict()
    assert saved.state_dict().keys() == want.keys()
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, want[name]), name
    inputs = small.make_example(1).torch_inputs()
    with torch.no_grad():
        assert torch.equal(saved(**inputs).logits, original(**inputs).logits)


def test_shards_and_bfloat16_are_read(folder, tmp_path):
    make = transformers.Qwen3VLForConditionalGeneration.from_pretrained
    model = make(folder, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert (tmp_path / load.INDEX).is_file()
    assert not (tmp_path / load.WEIGHTS).exists()
    _, wide = load.load_model(tmp_path)
    _, narrow = load.load_model(tmp_path, dtype=jnp.bfloat16)
    want = model.model.language_model.layers[1].self_attn.q_proj.weight
    want = want.detach().float().numpy().T
    np.testing.assert_array_equal(wide.decoder.layers.q[1], want)
    assert narrow.decoder.layers.q.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.float32(narrow.decoder.layers.q[1]), want)


def test_bfloat16_is_saved(loaded, folder, tmp_path):
    sizes_, model = load.load_model(folder, dtype=jnp.bfloat16)
    load.save_model(tmp_path, sizes_, model, folder)
    saved = safetensors.numpy.load_file(tmp_path / load.WEIGHTS)
    assert {str(tensor.dtype) for tensor in saved.values()} == {"bfloat16"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == config["text_config"]["dtype"] == "bfloat16"


def test_a_head_beside_a_tied_table_must_be_the_table(copy):
    embed = "model.language_model.embed_tokens.weight"
    rewrite(copy, lambda all: all.update({"lm_head.weight": all[embed]}))
    load.load_model(copy)
    rewrite(copy, lambda all: all.update({"lm_head.weight": all[embed] + 1}))
    with pytest.raises(ValueError, match="lm_head.weight that its config.json does"):
        load.load_model(copy)


def test_a_missing_file_is_named(copy):
    (copy / load.WEIGHTS).unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors is missing; fetch"):
        load.load_model(copy)
    (copy / load.INDEX).write_text('{"weight_map": {"a": "part-1.safetensors"}}')
    with pytest.raises(ValueError, match=r"part-1\.safetensors is missing; fetch"):
        load.load_model(copy)
    (copy / load.INDEX).write_text("{}")
    with pytest.raises(ValueError, match="is not an index of weights"):
        load.load_model(copy)
    with pytest.raises(ValueError, match=r"config\.json is missing; wanted a Qwen3-VL"):
        load.load_model(copy / "nowhere")


@pytest.mark.parametrize("kept", [0, 5, 1000, -1])
def test_a_truncated_file_is_named(copy, kept):
    path = copy / load.WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"model\.safetensors is truncated") as info:
        load.load_model(copy)
    assert "\n" not in str(info.value)


def test_a_wrong_shape_is_named(copy):
    name = "model.visual.blocks.2.attn.qkv.weight"
    rewrite(copy, lambda all: all.update({name: all[name][:-1]}))
    with pytest.raises(
        ValueError, match=r"qkv.weight has shape \(95, 32\).*\(96, 32\)"
    ):
        load.load_model(copy)


def test_weights_that_are_no_numbers_are_named(copy):
    name = "model.language_model.norm.weight"
    rewrite(copy, lambda all: all.update({name: all[name].astype(np.int64)}))
    with pytest.raises(ValueError, match=r"norm.weight is I64; wanted one of F32"):
        load.check_model(copy)
    rewrite(copy, lambda all: all.update({name: all[name] * np.float32(np.nan)}))
    with pytest.raises(ValueError, match=r"norm.weight holds numbers that are not"):
        load.load_model(copy)


def test_missing_and_unknown_tensors_are_named(copy):
    name = "model.language_model.layers.{}.mlp.up_proj.weight"
    rewrite(copy, lambda all: all.pop(name.format(1)))
    with pytest.raises(ValueError, match="lacks the tensor .*layers.1.mlp.up_proj"):
        load.load_model(copy)
    extra = {name.format(i): np.zeros(2, np.float32) for i in (1, 3, 4, 10, 11)}
    rewrite(copy, lambda all: all.update(extra))
    with pytest.raises(ValueError, match=r"layers.3.*layers.4.*layers.10.* and 1 more"):
        load.load_model(copy)


def test_old_and_new_configs_read_alike(folder):
    new = json.loads((folder / "config.json").read_text())
    old = json.loads(json.dumps(new))
    rope = old["text_config"].pop("rope_parameters")
    old["text_config"]["rope_theta"] = rope.pop("rope_theta")
    old["text_config"]["rope_scaling"] = rope
    old["vision_config"].pop("rope_parameters", None)
    assert sizes.read_sizes(old) == sizes.read_sizes(new)
    assert sizes.read_sizes(new).decoder.rope_section == (4, 2, 2)


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        (None, "model_type", "qwen2_vl", "model_type is 'qwen2_vl'; .* 'qwen3_vl'"),
        ("text_config", "attention_bias", True, "attention_bias is True"),
        ("vision_config", "hidden_act", "silu", "vision hidden_act is 'silu'"),
        ("vision_config", "out_hidden_size", 65, "out_hidden_size is 65"),
        ("vision_config", "depth", None, "has no key 'depth'"),
        ("vision_config", "deepstack_visual_indexes", [0, 1, 2, 3], "4 entries"),
    ],
)
def test_configs_beyond_this_model_are_refused(copy, part, key, value, message):
    path = copy / "config.json"
    config = json.loads(path.read_text())
    place = config[part] if part else config
    place.pop(key) if value is None else place.update({key: value})
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        sizes.load_sizes(copy)
