"""Trains a small byte-level tokenizer in the format of Qwen's checkpoints.

In: free text, and pieces of the wire format that must be one token each. Out: a
tokenizer and its files. A vocabulary of a thousand is enough for a model that reads
and writes one format only.
"""

import collections
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

# Qwen's names. True = a marker that a decoder may skip; tags of a reply are no such.
CONTROL = {
    "<|endoftext|>": True,
    "<|im_start|>": True,
    "<|im_end|>": True,
    "<|vision_start|>": True,
    "<|vision_end|>": True,
    "<|vision_pad|>": True,
    "<|image_pad|>": True,
    "<|video_pad|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
    "<tool_response>": False,
    "</tool_response>": False,
    "<think>": False,
    "</think>": False,
}

# Between the fixed pieces: a number, a word or other signs with the one space after
# them, a line end, other space. A word carries the space behind it and not the one
# before it, so that a name is the same token inside quotes, at the end of a thought
# and as an argument: it can be copied.
_FREE = r"\d+|[\p{L}_]+ ?|[^\s\p{L}\d_]+ ?|\n|[^\S\n]+"


def train(
    corpus: Sequence[str], vocab_size: int, pieces: Sequence[str], merges: int = 256
) -> tokenizers.Tokenizer:
    """A tokenizer of at most `vocab_size` ids that spells every piece with one.

    The room that bytes, pieces, control tokens and `merges` leave goes to the most
    frequent words of the corpus; rare words are spelt by merges.
    """
    splitter = _splitter(pieces)
    learnt = tokenizers.Tokenizer(models.BPE())
    learnt.pre_tokenizer = splitter
    learnt.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=256 + merges,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    model = json.loads(learnt.to_str())["model"]
    vocab = model["vocab"]
    for spelling in [_spelling(splitter, piece) for piece in pieces]:
        vocab.setdefault(spelling, len(vocab))
    for word in _words(splitter, corpus):
        if len(vocab) < vocab_size - len(CONTROL):
            vocab.setdefault(word, len(vocab))
    # A stretch that is in the vocabulary as a whole needs no merges to get there.
    whole = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=[tuple(pair) for pair in model["merges"]],
            ignore_merges=True,
        )
    )
    whole.pre_tokenizer = splitter
    whole.decoder = decoders.ByteLevel()
    whole.add_tokens(
        [
            tokenizers.AddedToken(text, special=is_special, normalized=False)
            for text, is_special in CONTROL.items()
        ]
    )
    return whole


def piece_id(tokenizer: tokenizers.Tokenizer, piece: str) -> int:
    """The one id that spells `piece`."""
    ids = tokenizer.encode(piece, add_special_tokens=False).ids
    if len(ids) != 1:
        raise ValueError(f"{piece!r} costs {len(ids)} tokens, it must be one")
    return ids[0]


def name_ids(
    config: Mapping[str, Any], tokenizer: tokenizers.Tokenizer, multiple: int = 64
) -> dict[str, Any]:
    """A model's `config.json` with this tokenizer's ids and its padded size.

    Rows of the table are padded to a multiple, so that devices can share them evenly.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = {
        f"{name}_token_id": tokenizer.token_to_id(f"<|{marker}|>")
        for name, marker in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    text = {
        **config["text_config"],
        "vocab_size": -(-size // multiple) * multiple,
        "bos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
    }
    return {**config, **ids, "text_config": text}


def save(folder: str | pathlib.Path, tokenizer: tokenizers.Tokenizer) -> None:
    """Writes the files by which `transformers.AutoTokenizer` knows a tokenizer."""
    folder = pathlib.Path(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _splitter(pieces: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    """Cuts text into pieces, numbers and words, then spells their bytes."""
    fixed = [
        re.escape(piece)
        for piece in sorted(pieces, key=len, reverse=True)
        if not piece.isdigit()  # a number is cut out by itself
    ]
    pattern = tokenizers.Regex("|".join([*fixed, _FREE]))
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _words(splitter: pre_tokenizers.PreTokenizer, corpus: Sequence[str]) -> list[str]:
    """The words of the corpus, the most frequent first."""
    counts = collections.Counter(
        word for text in corpus for word, _ in splitter.pre_tokenize_str(text)
    )
    return sorted(counts, key=lambda word: (-counts[word], word))


def _spelling(splitter: pre_tokenizers.PreTokenizer, piece: str) -> str:
    """The piece in the letters that stand for bytes."""
    ((spelling, _),) = splitter.pre_tokenize_str(piece)
    return spelling
