"""Chat messages with pictures -> Segments, the form that a model of ours is asked in.

A Segment holds one picture. A question with several is put as a talk: each picture
with the words before it is said by the user, to which the assistant says `NEXT`; the
words after the last one stand with it, and the reply to that is the answer.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from openwebrl_jax.core.types import IMAGE_MARK, Segment

NEXT = "next"


def segments(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[tuple[Segment, ...], dict[str, bytes]]:
    """The segments of a system and a user message, and their PNGs by sha256."""
    system, user = messages
    said, images = pieces(user["content"]), {}
    talk = [Segment(role="system", text=system["content"])]
    for words, png in said:
        if len(talk) > 1:
            talk.append(Segment(role="assistant", text=NEXT))
        talk.append(user_segment(words, png))
        if png is not None:
            images[talk[-1].image or ""] = png
    return tuple(talk), images


def pieces(content: Sequence[Mapping[str, Any]]) -> list[tuple[str, bytes | None]]:
    """What the user says one after another: words with a picture; None = without."""
    said: list[tuple[str, bytes | None]] = []
    words = ""
    for part in content:
        if part["type"] == "text":
            words += part["text"]
            continue
        data = part["image_url"]["url"].partition(",")[2]
        said.append((f"{words}{IMAGE_MARK}\n", base64.b64decode(data)))
        words = ""
    if not said:
        return [(words, None)]
    last, png = said[-1]
    return [*said[:-1], (last + words, png)]


def user_segment(words: str, png: bytes | None) -> Segment:
    """What the user says, seen and remembered."""
    return Segment(
        role="user",
        text=words,
        image=None if png is None else hashlib.sha256(png).hexdigest(),
        remembered_text=words.replace(IMAGE_MARK, ""),
    )
