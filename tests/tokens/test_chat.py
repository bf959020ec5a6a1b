"""The chat format, with a tokenizer that writes one string in several ways."""

import dataclasses
import json

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.core.types import IMAGE_MARK, Segment
from openwebrl_jax.tokens import bpe, chat, images

PIECES = ["user\n", "assistant\n", "system\n", "\n", "ab", "click"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
HOSTILE = [*bpe.CONTROL, "\ud83d", "é", '"', "\n", "a", "b", "ab", "</", "<|", "\n\n"]
VOCAB_SIZE = 384  # padded, as checkpoints are


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint's tokenizer; ("ab") and ("a", "b") both spell "ab"."""
    folder = tmp_path_factory.mktemp("toy")
    bpe.save(folder, bpe.train(["ab abc click"] * 5, 300, PIECES))
    config = {"model_type": "qwen3_vl", "text_config": {"vocab_size": VOCAB_SIZE}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def toy(folder):
    return chat.load_chat(folder, history="full", open_think=True)


def _mode(toy, history):
    return dataclasses.replace(toy, history=history)


def _plain(toy, text):
    return toy.plain.encode(text, add_special_tokens=False).ids


def _user(text, **more):
    return Segment(role="user", text=text, remembered_text=text, **more)


REPLY = (
    'the ab</think>\n<tool_call>\n{"name": "click"}\n</tool_call>'
    '\n<tool_call>\n{"name": "wait"}\n</tool_call>'
)


def test_a_prompt_is_what_the_reference_makes_of_the_written_template(folder, toy):
    written = (
        "<|im_start|>system\nclick ab<|im_end|>\n"
        "<|im_start|>user\nab\n<|vision_start|><|image_pad|><|image_pad|>"
        "<|image_pad|><|vision_end|>\nabc<|im_end|>\n<|im_start|>assistant\n<think>"
        f"{REPLY}<|im_end|>\n"
        "<|im_start|>user\nclick<|im_end|>\n<|im_start|>assistant\n<think>"
    )
    segments = [
        Segment(role="system", text="click ab"),
        _user(f"ab\n{IMAGE_MARK}\nabc", image="9f"),
        Segment(role="assistant", text=REPLY),
        _user("click"),
    ]
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    assert list(toy.prompt(segments, {"9f": 3}.get)) == reference(written)["input_ids"]


def test_segments_concatenate_exactly(toy):
    system = Segment(role="system", text="ab")
    first = Segment(
        role="user",
        text=f"ab{IMAGE_MARK}\n",
        image="9f",
        remembered_text="ab\n",
    )
    last = _user("click")
    response = toy.encode_reply(REPLY)
    seen, remembered = toy.user(first, 2)
    dropped = dataclasses.replace(first, text="ab\n", image=None)
    for segments, wanted in [
        ([system], toy.system(system)),
        ([system, first], (*toy.system(system), *seen)),
        ([first, last], (*seen, *toy.user(last)[0])),
        ([dropped, last], (*remembered, *toy.user(last)[0])),
        (
            [first, Segment(role="assistant", text=REPLY), last],
            (*seen, *response, *toy.closing(response), *toy.user(last)[0]),
        ),
        (
            [dropped, Segment(role="assistant", text=REPLY), last],
            (*toy.remembered(remembered, response), *toy.user(last)[0]),
        ),
    ]:
        assert toy.prompt(segments, {"9f": 2}.__getitem__) == wanted


def test_known_ids_are_never_encoded_again(toy):
    """R18."""
    spoken = (*_plain(toy, "a"), *_plain(toy, "b"), toy.end_id)
    assert toy.decode(spoken) == "ab"
    assert toy.encode_reply("ab") != spoken  # the tokenizer itself writes one id
    segments = [
        Segment(role="user", text="x", image="gone", ids=(5, 6)),
        Segment(role="assistant", text="ab", ids=spoken),
        Segment(role="user", text="y", ids=(7,)),
    ]
    assert toy.prompt(segments, {}.__getitem__) == (5, 6, *spoken, 7)
    kept = toy.remembered((1,), spoken)
    assert kept == (1, *spoken, *_plain(toy, "\n"))


@given(st.lists(st.sampled_from(HOSTILE), max_size=8).map("".join), st.data())
def test_text_never_becomes_a_control_token(toy, text, data):
    if IMAGE_MARK in text:
        return
    cut = data.draw(st.integers(0, len(text)))
    seen, remembered = toy.user(
        Segment(
            role="user",
            text=text[:cut] + IMAGE_MARK + text[cut:],
            image="9f",
            remembered_text=text,
        ),
        3,
    )
    control = set(toy.control.values())
    start, end, think = (
        toy.control[t] for t in ("<|im_start|>", "<|im_end|>", TAGS[0])
    )
    vision = [toy.control[t] for t in ("<|vision_start|>", "<|vision_end|>")]
    borders = [start, vision[0], *[toy.image_id] * 3, vision[1], end, start, think]
    assert [i for i in seen if i in control] == borders
    assert [i for i in remembered if i in control] == [start, end, start, think]
    system = toy.system(Segment(role="system", text=text))
    assert [i for i in system if i in control] == [start, end]


@given(st.lists(st.sampled_from([*HOSTILE, *TAGS * 3]), max_size=12).map("".join))
def test_a_written_reply_is_read_back(toy, text):
    text = text.replace("\ud83d", "")
    ids = toy.encode_reply(text)
    assert ids[-1] == toy.end_id
    assert toy.decode(ids) == text
    inside = {i for i in ids[:-1] if i in toy.control.values()}
    assert inside <= {toy.control[tag] for tag in TAGS}


def test_tags_inside_a_call_stay_text(toy):
    call = json.dumps({"name": "write", "arguments": {"message": "".join(TAGS)}})
    ids = toy.encode_reply(f"a <tool_call></think>\n<tool_call>\n{call}\n</tool_call>")
    borders = [toy.control[tag] for tag in TAGS[1:]]
    assert [i for i in ids[:-1] if i in toy.control.values()] == borders


def test_without_an_open_thought_the_reply_opens_it(toy):
    closed = dataclasses.replace(toy, open_think=False)
    assert closed.user(_user("ab"))[0] == toy.user(_user("ab"))[0][:-1]
    assert closed.encode_reply(f"<think>{REPLY}") == (
        toy.control["<think>"],
        *toy.encode_reply(REPLY),
    )


def test_remembered_forms_are_slices(toy):
    def piece(text):
        return toy.encode_reply(text)[:-1]

    thought, calls = REPLY[: REPLY.index("</think>")], REPLY[REPLY.index("</think>") :]
    ids = toy.encode_reply(REPLY)
    first, second = REPLY.split("</think>\n")[1].split("</tool_call>\n")
    assert toy.remembered_reply(ids) == ids[:-1]
    hidden = ids[len(_plain(toy, thought)) : -1]
    assert _mode(toy, "hide_thinking").remembered_reply(ids) == hidden
    assert toy.decode(hidden) == calls
    assert _mode(toy, "action_only").remembered_reply(ids) == (
        *piece(f"{first}</tool_call>"),
        *piece(second),
    )


@pytest.mark.parametrize("history", chat.HISTORY_MODES)
@pytest.mark.parametrize(
    "text", ["no border at all", "", '</think>\n<tool_call>\n{"a": 1}', "a</tool_call>"]
)
def test_a_malformed_reply_is_remembered_whole(toy, history, text):
    ids = toy.encode_reply(text)
    kept = _mode(toy, history).remembered_reply(ids)
    if history == "hide_thinking" and "</think>" in text:
        assert toy.decode(kept) == text
    assert kept == ids[:-1]


@pytest.mark.parametrize("history", chat.HISTORY_MODES)
def test_an_end_that_was_not_sampled_is_appended_once(toy, history):
    mode = _mode(toy, history)
    line_end = tuple(_plain(toy, "\n"))
    ended, cut = toy.encode_reply(REPLY), toy.encode_reply(REPLY)[:-1]
    assert mode.closing(ended) == line_end
    assert mode.closing(cut) == mode.closing(()) == (toy.end_id, *line_end)
    assert mode.remembered((1, 2), ended) == mode.remembered((1, 2), cut)
    assert mode.remembered((1, 2), ended)[-2:] == (toy.end_id, *line_end)


@pytest.mark.parametrize("history", chat.HISTORY_MODES)
def test_what_is_remembered_is_remembered_as_it_is(toy, history):
    mode = _mode(toy, history)
    kept = mode.remembered_reply(mode.encode_reply(REPLY))
    assert mode.remembered_reply(kept) == kept
    # A teacher's turn comes back as text that was cut in the same way.
    assert mode.remembered_reply(mode.encode_reply(mode.decode(kept))) == kept


def test_the_rule_forbids_markers_and_ids_without_a_text(toy):
    rule = toy.rule(0.8)
    allowed = set(range(VOCAB_SIZE)) - set(rule.forbidden_ids)
    assert rule.temperature == 0.8
    assert toy.end_id in allowed
    assert {toy.control[tag] for tag in TAGS} <= allowed
    markers = {i for text, i in toy.control.items() if text.startswith("<|")}
    assert markers - {toy.end_id} <= set(rule.forbidden_ids)
    assert max(allowed) == max(toy.whole.get_vocab().values()) < VOCAB_SIZE - 1
    assert list(rule.forbidden_ids) == sorted(set(rule.forbidden_ids))


@pytest.mark.parametrize("size", [(1, 1), (27, 1003), (1000, 75), (160, 224)])
def test_pads_are_as_many_as_the_image_has_merged_patches(toy, size):
    spec = images.ImageSpec(
        patch_px=16,
        merge=2,
        temporal=2,
        pixels_min=1024,
        pixels_max=262_144,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        rescale=1 / 255,
        resample=3,
    )
    count = images.token_count(spec, *size)
    seen, _ = toy.user(_user(IMAGE_MARK, image="9f"), count)
    rows, cols = images.grid(spec, *size)
    assert seen.count(toy.image_id) == count == rows * cols // 4


@pytest.mark.parametrize(
    ("text", "pads"), [("no mark", 3), (IMAGE_MARK * 2, 3), (IMAGE_MARK, 0)]
)
def test_an_image_without_its_one_mark_or_its_pads_is_refused(toy, text, pads):
    with pytest.raises(ValueError, match="needs .* once"):
        toy.user(_user(text, image="9f"), pads)


def test_a_faulty_folder_is_named(folder, tmp_path):
    with pytest.raises(ValueError, match="history='all' is none of full"):
        chat.load_chat(folder, history="all", open_think=True)
    with pytest.raises(ValueError, match="tokenizer.json is missing"):
        chat.load_chat(tmp_path, history="full", open_think=True)
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["added_tokens"] = [t for t in raw["added_tokens"] if "call" not in t["content"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="lacks <tool_call>, </tool_call>"):
        chat.load_chat(tmp_path, history="full", open_think=True)


def test_a_tokenizer_whose_text_spells_a_marker_is_refused(folder, tmp_path):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    raw = json.loads(tokenizer.to_str())
    vocab = raw["model"]["vocab"]
    vocab["<think>"] = len(vocab)
    raw["added_tokens"] = [
        {**t, "id": vocab["<think>"]} if t["content"] == "<think>" else t
        for t in raw["added_tokens"]
    ]
    raw["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="plain text can spell .* <think>"):
        chat.load_chat(tmp_path, history="full", open_think=True)
