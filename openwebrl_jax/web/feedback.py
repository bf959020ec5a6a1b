"""What an action did, in one line, from what the page was before and after it.

The line says what was hit and what changed, never that something "succeeded" because
it was sent. It is deterministic, at most 300 characters, and can hold no control
token, whatever the page calls its buttons.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from openwebrl_jax.core.types import Feedback

LIMIT = 300
_QUOTE = 60  # characters quoted of a text that was typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What was done. Made by `web.execute`, eaten by `line`.

    Example: Deed(text="clicked button 'OK'") or Deed(text="clicked", problem=
    "point_2d is missing").
    """

    text: str
    problem: str = ""  # "" = it was done
    typed: str | None = None  # of `write`; None = any other tool
    scrolled: str = ""  # direction of `scroll`; "" = any other tool
    is_final: bool = False  # `done`
    answer: str = ""
    asked_s: float = 0.0  # browser time that the policy asked for


def line(
    tool: str, deed: Deed, before: dict, after: dict, notes: Sequence[str]
) -> Feedback:
    """The feedback of one call. `before` and `after` are reports of probe.js."""
    if deed.problem:
        told = [deed.problem, *notes]
        state = "failed"
    else:
        told = [*notes, *_changes(deed, before, after)]
        state = "effect" if told or deed.is_final else "no_effect"
        told = told or ([] if deed.is_final else [_nothing(deed, before)])
    text = deed.text + (": " + "; ".join(told) if told else "")
    return Feedback(tool=tool, state=state, text=shorten(escape(text), LIMIT))


def failed(tool: str, problem: str) -> Feedback:
    """The feedback of a call that came to nothing."""
    return Feedback(
        tool=tool, state="failed", text=shorten(escape(f"failed: {problem}"), LIMIT)
    )


def happened(tool: str, told: Sequence[str]) -> Feedback:
    """The feedback of a call after which there is no page to compare with."""
    text = shorten(escape("; ".join(told)), LIMIT)
    return Feedback(tool=tool, state="effect", text=text)


def add(line: Feedback, more: str) -> Feedback:
    """The line with something told beside what the call did; "" = nothing."""
    if not more:
        return line
    text = shorten(f"{line.text}; {escape(more)}", LIMIT)
    return Feedback(tool=line.tool, state=line.state, text=text)


def escape(text: str) -> str:
    """Text of a page as one line that can never be a control token or a tag."""
    text = text.replace("<", "‹").replace(">", "›")
    kept = (
        " " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter
        for letter in text
        if unicodedata.category(letter) not in ("Cf", "Cs", "Co", "Cn")
    )
    return re.sub(r"\s+", " ", "".join(kept)).strip()


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, the cut shown by an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _changes(deed: Deed, before: dict, after: dict) -> list[str]:
    if before.get("document") != after.get("document"):
        return [f"the page is now '{after['title']}' {shorten(after['url'], 100)}"]
    told = []
    if before["url"] != after["url"]:
        told.append(f"the address is now {shorten(after['url'], 100)}")
    told += _scroll_changes(before, after)
    told += _state_changes(before, after)
    told += _focus_changes(deed, before, after)
    if after.get("appeared"):
        told.append(f"appeared: {_listed(after['appeared'], after['more'])}")
    elif after.get("changes"):
        told.append("the page changed")
    elif after.get("styles") and not told:
        told.append("its looks changed")
    return told


def _state_changes(before: dict, after: dict) -> list[str]:
    hit = before.get("hit")
    if not hit or after.get("state") is None:
        return []
    was, now = hit["state"], after["state"]
    return [
        f"{key} is now {now.get(key, 'false')}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]


def _focus_changes(deed: Deed, before: dict, after: dict) -> list[str]:
    was, now = before.get("focus"), after.get("focus")
    if now is None:
        return ["nothing has focus now"] if was else []
    is_same = was is not None and was["name"] == now["name"]
    told = [] if is_same else [f"focus is on {now['name']}"]
    if not now["text"]:
        return told
    if now["secret"]:
        is_changed = was is None or was["length"] != now["length"]
        return told + ([f"it holds {now['length']} characters"] if is_changed else [])
    is_changed = is_same and was is not None and was["value"] != now["value"]
    if is_changed and normal(now["value"]) != normal(deed.typed or "\0"):
        told.append(f"it holds '{shorten(now['value'], _QUOTE)}'")
    elif is_changed:
        told.append("the text is in it")
    return told


def _scroll_changes(before: dict, after: dict) -> list[str]:
    told = []
    pairs = zip(before.get("scrolls", ()), after.get("scrolls", ()), strict=False)
    for was, now in pairs:
        for axis, end in (("y", "deepest"), ("x", "widest")):
            if was[axis] != now[axis]:
                share = round(100 * now[axis] / max(1, now[end]))
                told.append(f"{now['name']} is at {min(100, share)}%")
    return told


def _nothing(deed: Deed, before: dict) -> str:
    """Why nothing changed, as far as that can be known."""
    hit, focus = before.get("hit") or {}, before.get("focus") or {}
    if deed.scrolled:
        return f"nothing moved, there is no more {deed.scrolled}"
    if deed.typed is not None and normal(focus.get("value", "")) == normal(deed.typed):
        return "it held that text already"
    if hit.get("disabled"):
        return "it is disabled, nothing changed"
    if hit.get("covers"):
        return f"nothing changed, it covers {hit['covers']}"
    return "nothing changed"


def _listed(names: Sequence[str], more: int) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{listed} and {more} more" if more else listed


def normal(text: str) -> str:
    """Text as it is compared: what one cannot see makes no difference."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\xa0", " ")
    return re.sub("[\u200b\ufeff]", "", text)
