"""Key names: what models write for a key -> what Playwright calls it."""

import difflib
import re
import unicodedata
from collections.abc import Sequence

_ALIASES = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "windows": "Meta",
    "meta": "Meta",
    "super": "Meta",
    "controlormeta": "Control",
    "alt": "Alt",
    "opt": "Alt",
    "option": "Alt",
    "shift": "Shift",
    "esc": "Escape",
    "escape": "Escape",
    "return": "Enter",
    "enter": "Enter",
    "tab": "Tab",
    "space": "Space",
    "spacebar": "Space",
    "backspace": "Backspace",
    "bksp": "Backspace",
    "del": "Delete",
    "delete": "Delete",
    "ins": "Insert",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pgup": "PageUp",
    "prior": "PageUp",
    "pagedown": "PageDown",
    "pgdn": "PageDown",
    "pgdown": "PageDown",
    "next": "PageDown",
    "up": "ArrowUp",
    "arrowup": "ArrowUp",
    "down": "ArrowDown",
    "arrowdown": "ArrowDown",
    "left": "ArrowLeft",
    "arrowleft": "ArrowLeft",
    "right": "ArrowRight",
    "arrowright": "ArrowRight",
    "capslock": "CapsLock",
    "contextmenu": "ContextMenu",
    "plus": "+",
    "minus": "-",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
_MODIFIERS = {"Control", "Meta", "Alt", "Shift"}
_BROWSER_OWN = {"w", "t", "n", "q", "f4"}  # with a modifier they are not the page's
# What joins several code points to one letter: marks, skin tones, flags, joiners.
_JOINED = re.compile(
    "\u200d.|[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff]"
    "|(?<=[\U0001f1e6-\U0001f1ff])[\U0001f1e6-\U0001f1ff]"
)


def combo(names: Sequence[object]) -> str:
    """One key or a combination. Example: ["ctrl+A"] or ["ctrl", "A"] -> "Control+a"."""
    keys = [key for name in names for key in _split(name)]
    *held, last = keys
    if not held:
        return last
    shown = "+".join(map(str, names))
    if not set(held) <= _MODIFIERS:
        raise ValueError(f"{shown!r} is no combination of modifiers and one key")
    if len(last) == 1:
        last = last.upper() if "Shift" in held else last.lower()
    if set(held) - {"Shift"} and last.lower() in _BROWSER_OWN:
        raise ValueError(f"{shown!r} belongs to the browser, not to the page")
    return "+".join([*held, last])


def is_combo(names: Sequence[object]) -> bool:
    """True iff all but the last of several keys are modifiers, and the last is none."""
    *held, last = (_known(name) if isinstance(name, str) else "" for name in names)
    return bool(held) and set(held) <= _MODIFIERS and last not in _MODIFIERS


def is_text(key: str) -> bool:
    """True iff no keyboard has the key: it is entered as text."""
    return not key.isascii()


def _split(name: object) -> list[str]:
    """The keys of a combination. Example: "ctrl-a" -> ["Control", "a"]."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a key is named by a text, got {name!r}")
    name = unicodedata.normalize("NFC", name)
    if len(name) == 1 or _known(name):
        return [_key(name)]
    name = name.strip()
    mark = "-" if "+" not in name and _known(name.split("-")[0]) in _MODIFIERS else "+"
    parts = name.split(mark)
    if parts[-1] == "":  # the mark itself, at the end
        parts = [part for part in parts if part] + [mark]
    return [_key(part.strip() or part) for part in parts]


def _known(name: str) -> str:
    """The name of a key in Playwright's words; "" = no alias is known."""
    return _ALIASES.get(re.sub(r"[\s_-]", "", name).lower(), "")


def _key(name: str) -> str:
    if name in (" ", "\n", "\t"):
        return {" ": "Space", "\n": "Enter", "\t": "Tab"}[name]
    if len(name) == 1 and name.isprintable():
        return name
    known = _known(name)
    if known:
        return known
    if not name.isascii() and len(_JOINED.sub("", name)) == 1:
        return name
    near = difflib.get_close_matches(name.lower(), _ALIASES, n=3)
    names = dict.fromkeys(_ALIASES[alias] for alias in near)
    hint = f", did you mean {' or '.join(names)}?" if names else ""
    raise ValueError(f"unknown key {name!r}{hint}; for text use write")
