"""Segments become ids: the one place where text turns into tokens.

In: Segments of a prompt, or the ids that a sampler spoke. Out: ids that concatenate
exactly, since each piece is encoded alone between control tokens. Control tokens come
from the format and from nowhere else: whatever a page or a user writes is encoded as
plain text, even if it spells `<|im_end|>`. Sampled ids are cut and joined, never
decoded and encoded again.

Deviation from Qwen's template: an opened thought begins with `<think>` alone, where
the template writes a line end after it.
"""

import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from openwebrl_jax.core import types

Ids = tuple[int, ...]

HISTORY_MODES = ("full", "hide_thinking", "action_only")
_FORMAT = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
# The fixed borders of a written reply: an opening thought at its very beginning, the
# first end of a thought, and behind it call markers at the ends of lines. A call's
# JSON stands on one line, so that what it holds is never such a border. A text that
# begins with a call is what `action_only` left of a reply: it has no thought.
_THOUGHT = re.compile(r"\A(?!<tool_call>\n)(<think>)?(.*?)(</think>)", re.DOTALL)
_CALL_BORDER = re.compile(
    r"((?:\A|(?<=\n)|(?<=</tool_call>))<tool_call>(?=\n)"
    r"|(?<=\n)</tool_call>(?=\n|\Z|<tool_call>))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A checkpoint's chat format. Made by `load_chat`, eaten by sampler and demos."""

    history: str  # full | hide_thinking | action_only
    open_think: bool
    vocab_size: int  # of the model: rows of its table, padding included
    control: Mapping[str, int]  # every added token of the tokenizer
    plain: tokenizers.Tokenizer  # knows no control token
    whole: tokenizers.Tokenizer

    @property
    def end_id(self) -> int:
        """The id that ends a turn."""
        return self.control["<|im_end|>"]

    @property
    def image_id(self) -> int:
        """The id of which an image has one for each of its merged patches."""
        return self.control["<|image_pad|>"]

    def rule(self, temperature: float) -> types.SamplingRule:
        """The distribution to sample from: no markers but the end, no unused ids."""
        markers = {
            token_id
            for text, token_id in self.control.items()
            if text.startswith("<|") and token_id != self.end_id
        }
        known = {*self.whole.get_vocab(with_added_tokens=True).values()}
        forbidden = sorted({*range(self.vocab_size)} - (known - markers))
        return types.SamplingRule(
            temperature=temperature, forbidden_ids=tuple(forbidden)
        )

    def system(self, segment: types.Segment) -> Ids:
        """The ids of the system segment."""
        return (
            self.control["<|im_start|>"],
            *self._encode(f"system\n{segment.text}"),
            self.end_id,
            *self._encode("\n"),
        )

    def user(self, segment: types.Segment, image_tokens: int = 0) -> tuple[Ids, Ids]:
        """The ids of a user segment as it is seen, and as it is remembered.

        Both go up to where the reply begins. `image_tokens` is the number of image
        pads, 0 for a segment without an image.
        """
        seen = self._user(self._with_image(segment, image_tokens))
        return seen, self._user(self._encode(f"user\n{segment.remembered_text}"))

    def thought(self, response_ids: Sequence[int]) -> int:
        """How many ids of a reply are its thought, the closing tag included."""
        end = _find(tuple(response_ids), self.control["</think>"])
        return 0 if end is None else end + 1

    def closing(self, response_ids: Sequence[int]) -> Ids:
        """The fixed ids that end a turn after what was sampled."""
        is_ended = len(response_ids) > 0 and response_ids[-1] == self.end_id
        return (*(() if is_ended else (self.end_id,)), *self._encode("\n"))

    def remembered_reply(self, response_ids: Sequence[int]) -> Ids:
        """What later turns keep of a reply: slices of its ids, without the end."""
        ids = self._without_end(response_ids)
        if self.history == "full":
            return ids
        thought_end = _find(ids, self.control["</think>"])
        if self.history == "hide_thinking":
            return ids if thought_end is None else ids[thought_end:]
        return self._calls(ids, 0 if thought_end is None else thought_end + 1) or ids

    def remembered(
        self, remembered_user_ids: Sequence[int], response_ids: Sequence[int]
    ) -> Ids:
        """A whole turn as later turns keep it."""
        reply = self.remembered_reply(response_ids)
        return (*remembered_user_ids, *reply, self.end_id, *self._encode("\n"))

    def encode_reply(self, text: str) -> Ids:
        """The ids of a reply that no sampler of ours spoke, its end included."""
        ids, rest = [], text
        if thought := _THOUGHT.match(text):
            opening, inner, closing = thought.groups()
            ids += [self.control[opening]] if opening else []
            ids += [*self._encode(inner), self.control[closing]]
            rest = text[thought.end() :]
        for index, piece in enumerate(_CALL_BORDER.split(rest)):
            # split() alternates between plain text and the markers that it caught.
            ids += [self.control[piece]] if index % 2 else self._encode(piece)
        return (*ids, self.end_id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a reply, without its end; tags of thought and calls stay."""
        return self.whole.decode(
            list(self._without_end(ids)), skip_special_tokens=False
        )

    def prompt(
        self,
        segments: Sequence[types.Segment],
        image_tokens: Callable[[str], int],
    ) -> Ids:
        """The ids of a whole prompt; `image_tokens` counts the pads of an image.

        Known ids are taken as they are. Of user segments without ids the last one and
        those with an image are in their seen form, the others in their remembered
        form; a reply without ids follows the form of the user segment before it.
        """
        ids: list[int] = []
        users = [n for n, segment in enumerate(segments) if segment.role == "user"]
        is_seen = True
        for n, segment in enumerate(segments):
            if segment.role == "user":
                is_seen = segment.image is not None or n == users[-1]
            if segment.ids:
                ids += segment.ids
            elif segment.role == "system":
                ids += self.system(segment)
            elif segment.role == "user":
                count = image_tokens(segment.image) if segment.image else 0
                seen, remembered = self.user(segment, count)
                ids += seen if is_seen else remembered
            else:
                response = self.encode_reply(segment.text)
                if is_seen:
                    ids += (*response, *self.closing(response))
                else:
                    ids += self.remembered((), response)
        return tuple(ids)

    def _encode(self, text: str) -> list[int]:
        # A page may hold half a surrogate pair, which no encoder takes.
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self.plain.encode(clean, add_special_tokens=False).ids

    def _with_image(self, segment: types.Segment, image_tokens: int) -> list[int]:
        """The ids of `user` and the segment's text, its mark replaced by pads."""
        text = f"user\n{segment.text}"
        if segment.image is None:
            return self._encode(text)
        before, *after = text.split(types.IMAGE_MARK)
        if len(after) != 1 or image_tokens < 1:
            raise ValueError(
                f"a segment with an image needs {types.IMAGE_MARK} once and its pads; "
                f"got {len(after)} marks and {image_tokens} pads"
            )
        return [
            *self._encode(before),
            self.control["<|vision_start|>"],
            *[self.image_id] * image_tokens,
            self.control["<|vision_end|>"],
            *self._encode(after[0]),
        ]

    def _user(self, body: list[int]) -> Ids:
        start = self.control["<|im_start|>"]
        return (
            start,
            *body,
            self.end_id,
            *self._encode("\n"),
            start,
            *self._encode("assistant\n"),
            *((self.control["<think>"],) if self.open_think else ()),
        )

    def _without_end(self, ids: Sequence[int]) -> Ids:
        is_ended = len(ids) > 0 and ids[-1] == self.end_id
        return tuple(ids[:-1] if is_ended else ids)

    def _calls(self, ids: Ids, start: int) -> Ids:
        """The blocks of calls from `start` on; () if there is none or one is open."""
        blocks: list[int] = []
        while (opening := _find(ids, self.control["<tool_call>"], start)) is not None:
            closing = _find(ids, self.control["</tool_call>"], opening)
            if closing is None:
                return ()
            start = closing + 1
            blocks += ids[opening:start]
        return tuple(blocks)


def load_chat(folder: str | pathlib.Path, *, history: str, open_think: bool) -> Chat:
    """The chat format of a checkpoint folder: `tokenizer.json` and `config.json`."""
    if history not in HISTORY_MODES:
        raise ValueError(f"history={history!r} is none of {', '.join(HISTORY_MODES)}")
    folder = pathlib.Path(folder)
    for name in ("tokenizer.json", "config.json"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing: a checkpoint has it")
    raw = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    control = {token["content"]: token["id"] for token in raw["added_tokens"]}
    if missing := [token for token in _FORMAT if token not in control]:
        raise ValueError(f"{folder}: the tokenizer lacks {', '.join(missing)}")
    plain = tokenizers.Tokenizer.from_str(json.dumps({**raw, "added_tokens": []}))
    _refuse_leaks(plain, control)
    return Chat(
        history=history,
        open_think=open_think,
        vocab_size=config.get("text_config", config)["vocab_size"],
        control=control,
        plain=plain,
        whole=tokenizers.Tokenizer.from_str(json.dumps(raw)),
    )


def _refuse_leaks(plain: tokenizers.Tokenizer, control: Mapping[str, int]) -> None:
    """A tokenizer whose merges alone spell a control token cannot be made safe."""
    for text, token_id in control.items():
        if token_id in plain.encode(text, add_special_tokens=False).ids:
            raise ValueError(f"plain text can spell the control token {text}")


def _find(ids: Ids, wanted: int, start: int = 0) -> int | None:
    """The first place of `wanted` at or after `start`, None if there is none."""
    return ids.index(wanted, start) if wanted in ids[start:] else None
