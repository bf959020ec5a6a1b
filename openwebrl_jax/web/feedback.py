"""What an action did, in one line, from what the page was before and after it.

The line says what was hit and what changed, never that something "succeeded" because
it was sent. It is deterministic, at most 512 characters, and can hold no control
token, whatever the page calls its buttons.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from openwebrl_jax.core.types import Feedback

LIMIT = 512
_HEAD = 0.7  # of a line that is cut; the rest is its end, where the changes stand
_QUOTE = 60  # characters quoted of a text that was typed
_NO_FILES = "it asks for a file, file upload is not available"
_NO_MENU = "the browser's own context menu is not available"


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
    is_choosing: bool = False  # a click that would open a native list
    is_drag: bool = False
    tip: str = ""  # what the browser shows when the pointer rests there
    is_final: bool = False  # `done`
    answer: str = ""
    asked_s: float = 0.0  # browser time that the policy asked for


def line(
    tool: str, deed: Deed, before: dict, after: dict, notes: Sequence[str]
) -> Feedback:
    """The feedback of one call. `before` and `after` are the probe's reports."""
    if deed.problem:
        told = [deed.problem, *notes]
        state = "failed"
    else:
        told = [*notes, *_changes(deed, before, after)]
        state = "effect" if told or deed.is_final else "no_effect"
        if not told and not deed.is_final:
            told = [_nothing(deed, before, after)]
        elif not deed.is_final:
            told = [*_warnings(before, after), *told]
    text = deed.text + _choices(deed, after)
    return _feedback(tool, state, text + (": " + "; ".join(told) if told else ""))


def failed(tool: str, problem: str) -> Feedback:
    """The feedback of a call that came to nothing."""
    return _feedback(tool, "failed", f"failed: {problem}")


def happened(tool: str, told: Sequence[str]) -> Feedback:
    """The feedback of a call after which there is no page to compare with."""
    return _feedback(tool, "effect", "; ".join(told))


def shown(told: Sequence[Feedback], is_on: bool) -> tuple[Feedback, ...]:
    """What the policy is told; off (config.web.feedback), only that calls were run."""
    if is_on:
        return tuple(told)
    return tuple(dataclasses.replace(line, text="") for line in told)


def _feedback(tool: str, state, text: str) -> Feedback:
    return Feedback(tool=tool, state=state, text=shorten(escape(text), LIMIT, _HEAD))


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


def shorten(text: str, limit: int, head: float = 1.0) -> str:
    """At most `limit` characters: the head and the tail of it, with an ellipsis."""
    if len(text) <= limit:
        return text
    first = round((limit - 1) * head)
    return text[:first] + "…" + text[len(text) - (limit - 1 - first) :]


def _changes(deed: Deed, before: dict, after: dict) -> list[str]:
    if before.get("document") != after.get("document"):
        return [f"the page is now '{after['title']}' {shorten(after['url'], 100)}"]
    told = []
    if before["url"] != after["url"]:
        told.append(f"the address is now {shorten(after['url'], 100)}")
    if after.get("frame"):
        told.append(f"the frame is now '{after['frame']}'")
    moved = _scroll_changes(deed, before, after)
    states = _state_changes(before, after)
    told += (
        moved
        + states
        + _focus_changes(
            deed, before, after, any(text.startswith("value ") for text in states)
        )
    )
    if deed.is_drag and after.get("moved"):
        told.append("it moved")
    if deed.tip:
        told.append(f"its tip says '{deed.tip}'")
    is_explained = bool(moved) or (deed.typed is not None and bool(told))
    return told + _dom_changes(after, bool(told), bool(moved), is_explained)


def _dom_changes(
    after: dict, is_told: bool, is_moved: bool, is_explained: bool
) -> list[str]:
    """What came and went. A list that is drawn anew as it scrolls is only scrolled."""
    told = []
    names, gone = after.get("appeared", ()), after.get("vanished", 0)
    if not (is_moved and names and gone):
        told += [f"appeared: {_listed(names, after['more'])}"] if names else []
        told += [f"{gone} vanished"] if gone else []
    if after.get("changes") and not told and not is_explained:
        told.append("the page changed")
    elif after.get("styles") and not told and not is_told:
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


def _focus_changes(deed: Deed, before: dict, after: dict, is_told: bool) -> list[str]:
    """Where the focus went, and what the fields hold that had it before and have it."""
    was, now = before.get("focus"), after.get("focus")
    told = []
    left = after.get("left")
    if left and was and left["value"] != was["value"]:
        told.append(f"{left['name']} holds '{shorten(left['value'], _QUOTE)}' now")
    if now is None:
        return [*told, "nothing has focus now"] if was else told
    is_same = was is not None and after.get("stays", was["name"] == now["name"])
    if not is_same:
        told.append(f"focus is on {now['name']}")
    if not now["text"] or was is None or not is_same or is_told:
        return told
    if now["secret"]:
        is_changed = was["length"] != now["length"]
        told += [f"it holds {now['length']} characters"] if is_changed else []
    elif was["value"] != now["value"]:
        told.append(_holding(deed, now))
    is_news = now.get("says") and now["says"] != was.get("says")
    return [*told, f"it says '{now['says']}'"] if is_news else told


def _holding(deed: Deed, now: dict) -> str:
    """The accepted text; it is quoted where it is not what was typed."""
    if now.get("list"):
        return f"'{now['value']}' is chosen"
    if deed.typed is not None and normal(now["value"]) == normal(deed.typed):
        return "the text is in it"
    return f"it holds '{shorten(now['value'], _QUOTE)}'"


def _scroll_changes(deed: Deed, before: dict, after: dict) -> list[str]:
    pairs = list(zip(before.get("scrolls", ()), after.get("scrolls", ()), strict=False))
    told = []
    for was, now in pairs:
        for axis, most in (("y", "deepest"), ("x", "widest")):
            if was[axis] != now[axis]:
                told.append(f"{now['name']} is at {_place(now, axis, most)}")
    if told and len(pairs) > 1 and deed.scrolled:
        (was, now), *_ = pairs
        if (was["x"], was["y"]) == (now["x"], now["y"]):
            told.insert(0, f"{now['name']} has no more {deed.scrolled}")
    return told


def _place(now: dict, axis: str, most: str) -> str:
    share = min(100, round(100 * abs(now[axis]) / max(1, now[most])))
    ends = ("the top", "the bottom") if axis == "y" else ("the left", "the right")
    if abs(now[axis]) + 1 >= now[most]:
        return f"{share}%, {ends[1]}"
    return f"{share}%, {ends[0]}" if now[axis] == 0 else f"{share}%"


def _choices(deed: Deed, after: dict) -> str:
    """The options of a native list that was clicked: its popup does not open."""
    found = after.get("list")
    if not found or not deed.is_choosing:
        return ""
    if not found["options"]:
        return ", it has no option to choose"
    return f" (now '{found['chosen']}'), write one of: {found['options']}"


def _warnings(before: dict, after: dict) -> list[str]:
    """What stands beside an effect."""
    is_disabled = (before.get("hit") or {}).get("disabled")
    return [*(["it is disabled"] if is_disabled else []), *_refusals(after)]


def _refusals(after: dict) -> list[str]:
    """What the browser would have shown that is no part of the page."""
    told = [_NO_FILES] if after.get("files") else []
    is_menu = after.get("menu") == "native" and not after.get("appeared")
    return told + ([_NO_MENU] if is_menu else [])


def _nothing(deed: Deed, before: dict, after: dict) -> str:
    """Why nothing changed, as far as that can be known."""
    hit, focus = before.get("hit") or {}, before.get("focus") or {}
    if deed.scrolled:
        if after.get("wheel"):
            return "nothing moved, the page keeps the wheel to itself"
        return f"nothing moved, there is no more {deed.scrolled}"
    if deed.typed is not None and normal(focus.get("value", "")) == normal(deed.typed):
        return "it held that text already"
    if deed.typed is not None and focus.get("list"):
        return f"'{focus['value']}' was chosen already"
    refusals = _refusals(after)
    if refusals:
        return f"nothing changed, {', '.join(refusals)}"
    if hit.get("disabled"):
        return "it is disabled, nothing changed"
    if hit.get("covers"):
        return f"nothing changed, it covers {hit['covers']}"
    if hit.get("blocked"):
        return f"nothing changed, {hit['blocked']} at that point is disabled or inert"
    return "nothing changed"


def _listed(names: Sequence[str], more: int) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{listed} and {more} more" if more else listed


def normal(text: str) -> str:
    """Text as it is compared: what one cannot see makes no difference."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\xa0", " ")
    return re.sub("[\u200b\ufeff]", "", text)
