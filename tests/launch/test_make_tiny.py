"""The tiny folder is a checkpoint like any other, and cheap to talk to."""

import filecmp

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from launch import make_tiny
from openwebrl_jax.agent import grammar, prompts
from openwebrl_jax.core.types import Observation, Segment, ToolCall
from openwebrl_jax.tokens import chat, images, positions


@pytest.fixture(scope="module")
def talk(tiny_folder):
    return chat.load_chat(tiny_folder, history="full", open_think=True)


def _turn(intent: str) -> Segment:
    page = Observation(
        screenshot=b"", width_px=160, height_px=224, tabs=(), active_tab=0
    )
    seen, remembered = prompts.first_text("short", intent, page)
    return Segment(role="user", text=seen, image="page", remembered_text=remembered)


def _click(thought: str) -> str:
    call = ToolCall(name="click", arguments={"point_2d": [480, 520]})
    return grammar.render(thought, [call])


def test_a_click_costs_few_tokens(talk):
    spec_tokens = 35
    system = talk.system(Segment(role="system", text=prompts.system_text("short")))
    seen, remembered = talk.user(_turn('Click on the "Ok" button.'), spec_tokens)
    reply = talk.encode_reply(_click("click Ok"))
    assert len(system) == 4
    assert len(seen) == spec_tokens + 19
    assert len(remembered) == 16
    assert len(reply) == 12


def test_every_piece_of_the_format_is_one_token(talk):
    pieces = [*make_tiny.TURN, *make_tiny.call_pieces(), *make_tiny.COORDINATES]
    ids = [talk.plain.encode(piece, add_special_tokens=False).ids for piece in pieces]
    assert {len(one) for one in ids} == {1}
    assert len({one[0] for one in ids}) == len(pieces)


def test_a_page_is_35_tokens(tiny_folder):
    spec = images.load_spec(tiny_folder)
    assert images.grid(spec, 160, 224) == (14, 10)
    assert images.token_count(spec, 160, 224) == 35


def test_transformers_loads_and_runs_it(tiny_folder, talk):
    model, report = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        tiny_folder, output_loading_info=True
    )
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_folder)
    assert (
        tokenizer.eos_token_id == talk.end_id == model.config.text_config.eos_token_id
    )
    assert model.config.image_token_id == talk.image_id
    ids = torch.tensor([talk.prompt([_turn("Click the button.")], {"page": 35}.get)])
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            mm_token_type_ids=(ids == talk.image_id).int(),
            pixel_values=torch.ones(140, 1536),
            image_grid_thw=torch.tensor([[1, 14, 10]]),
        ).logits
    assert logits.shape == (1, ids.shape[1], talk.vocab_size)
    assert torch.isfinite(logits).all()
    found = positions.rope_positions(
        ids[0].numpy(), [(14, 10)], image_id=talk.image_id, merge=2
    )
    assert found.shape == (3, ids.shape[1])


def test_neighbouring_coordinates_begin_alike(tiny_folder, talk):
    tensors = safetensors.numpy.load_file(tiny_folder / "model.safetensors")
    ids = [talk.plain.encode(text).ids[0] for text in make_tiny.COORDINATES]
    rows = tensors["model.language_model.embed_tokens.weight"][ids]
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    alike = rows @ rows.T
    assert np.diag(alike, 1).mean() > 0.8 > 0.5 > np.diag(alike, 8).mean()


def test_the_same_seed_makes_the_same_bytes(tiny_folder, tmp_path):
    make_tiny.make(tmp_path / "same", 0)
    make_tiny.make(tmp_path / "other", 1)
    names = sorted(path.name for path in tiny_folder.iterdir())
    assert names == [
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    same = filecmp.cmpfiles(tiny_folder, tmp_path / "same", names, shallow=False)
    assert same == (names, [], [])
    differs = filecmp.cmpfiles(tiny_folder, tmp_path / "other", names, shallow=False)
    assert differs[1] == ["model.safetensors"]
