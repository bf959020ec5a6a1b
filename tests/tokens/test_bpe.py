"""The small tokenizer: pieces whole, words shared, every text spelt."""

import json

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.tokens import bpe

HEAD = '\n{"name": "click", "arguments": {"point_2d": ['
PIECES = ["user\n", "\n", ", ", HEAD, "]}}\n", *map(str, range(0, 1001, 40))]
CORPUS = ['Click on the "Ok" button.', "click Ok", "button no_effect"] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return bpe.train(CORPUS, 400, PIECES, merges=40)


def _ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_each_piece_is_one_token_wherever_it_stands(tokenizer):
    ids = [bpe.piece_id(tokenizer, piece) for piece in PIECES]
    assert len(set(ids)) == len(PIECES)
    call = [HEAD, "480", ", ", "1000", "]}}\n"]
    wanted = [bpe.piece_id(tokenizer, piece) for piece in call]
    assert _ids(tokenizer, "".join(call)) == wanted


def test_a_name_is_the_same_token_in_quotes_and_alone(tokenizer):
    (name,) = _ids(tokenizer, "Ok")
    assert _ids(tokenizer, CORPUS[0])[4] == name
    assert _ids(tokenizer, "click Ok")[-1] == name
    assert len(_ids(tokenizer, CORPUS[0])) == 8


@given(st.text())
def test_every_text_is_spelt(tokenizer, text):
    assert tokenizer.decode(_ids(tokenizer, text), skip_special_tokens=False) == text


def test_control_tokens_come_last_and_no_merge_makes_them(tokenizer):
    ids = [tokenizer.token_to_id(text) for text in bpe.CONTROL]
    assert ids == list(range(ids[0], tokenizer.get_vocab_size()))
    model = json.loads(tokenizer.to_str())["model"]
    assert ids[0] == len(model["vocab"])
    assert not set(bpe.CONTROL) & set(model["vocab"])


def test_transformers_reads_it_unchanged(tokenizer, tmp_path):
    bpe.save(tmp_path, tokenizer)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    other = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = f"<|im_start|>user\nClick on <tool_call>{HEAD}480, 37]}}}}\n  \t é 日<think>"
    assert other(text)["input_ids"] == _ids(tokenizer, text)
    assert other.decode(_ids(tokenizer, text)) == text
    assert other.eos_token == "<|im_end|>"


def test_ids_and_the_padded_size_go_into_the_config(tokenizer):
    named = bpe.name_ids({"text_config": {"hidden_size": 96}}, tokenizer, multiple=64)
    assert named["image_token_id"] == tokenizer.token_to_id("<|image_pad|>")
    size = named["text_config"]["vocab_size"]
    assert size % 64 == 0 and 0 <= size - tokenizer.get_vocab_size() < 64
    assert named["text_config"]["hidden_size"] == 96


def test_a_piece_that_is_cut_is_refused(tokenizer):
    with pytest.raises(ValueError, match="costs 2 tokens"):
        bpe.piece_id(tokenizer, "480, ")
