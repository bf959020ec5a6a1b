"""Key names: what models write for a key -> what Playwright calls it."""

_ALIASES = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "windows": "Meta",
    "meta": "Meta",
    "super": "Meta",
    "alt": "Alt",
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
    "del": "Delete",
    "delete": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pgup": "PageUp",
    "pagedown": "PageDown",
    "pgdn": "PageDown",
    "up": "ArrowUp",
    "arrowup": "ArrowUp",
    "down": "ArrowDown",
    "arrowdown": "ArrowDown",
    "left": "ArrowLeft",
    "arrowleft": "ArrowLeft",
    "right": "ArrowRight",
    "arrowright": "ArrowRight",
    "plus": "+",
    "minus": "-",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
_MODIFIERS = {"Control", "Meta", "Alt", "Shift"}
_BROWSER_OWN = {"w", "t", "n", "q", "f4"}  # with a modifier they are not the page's


def combo(name: object) -> str:
    """One key or a combination. Example: "ctrl+A" -> "Control+a"."""
    return "+".join(_split(name))


def _split(name: object) -> list[str]:
    """The keys of a combination. Example: "ctrl+a" -> ["Control", "a"]."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a key is named by a text, got {name!r}")
    parts = name.split("+")
    if parts[-1] == "":  # the key + itself, alone or at the end
        parts = [part for part in parts if part] + ["+"]
    if len(name) == 1 or len(parts) == 1:
        return [_key(name)]
    *held, last = [_key(part) for part in parts]
    if not set(held) <= _MODIFIERS:
        raise ValueError(f"{name!r} is no combination of modifiers and one key")
    if len(last) == 1:
        last = last.upper() if "Shift" in held else last.lower()
    if set(held) - {"Shift"} and last.lower() in _BROWSER_OWN:
        raise ValueError(f"{name!r} belongs to the browser, not to the page")
    return [*held, last]


def _key(name: str) -> str:
    name = name if len(name) == 1 else name.strip()
    if name == " ":
        return "Space"
    if len(name) == 1 and name.isprintable():
        return name
    alias = _ALIASES.get(name.lower().replace("_", "").replace("-", ""))
    if alias is None:
        raise ValueError(f"unknown key {name!r}; for text use write")
    return alias
