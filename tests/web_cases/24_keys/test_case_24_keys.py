"""Key names as models write them (browser-use#1040)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGE = """<input id=a style="position:absolute;left:0;top:0;width:200px;height:40px">
  <script>keys = []; addEventListener('keydown', (e) => keys.push(
    (e.ctrlKey ? 'C-' : '') + (e.metaKey ? 'M-' : '') + e.key))</script>"""
NAMES = {
    "ctrl+a": "C-a",
    "Ctrl+A": "C-a",
    "CTRL+A": "C-a",
    "ctrl-a": "C-a",
    "Return": "Enter",
    "enter": "Enter",
    "Enter\n": "Enter",
    "space": " ",
    "Down": "ArrowDown",
    "page_down": "PageDown",
    "Page Down": "PageDown",
    "Cmd+A": "M-a",
    "Control++": "C-+",
    "+": "+",
}


async def test_names_of_keys(surf):
    await surf.open(PAGE)
    for name, key in NAMES.items():
        await surf.click(100, 20)
        state, text = await surf.do("press_keys", keys=[name])
        assert state != "failed", (name, text)
        assert (await surf.js("keys.splice(0)"))[-1] == key, name
    await surf.do("press_keys", keys=["ctrl", "a"])
    assert (await surf.js("keys.splice(0)"))[-1] == "C-a"
    await surf.do("press_keys", keys="Tab")
    assert await surf.js("keys") == ["Tab"]


async def test_letters_that_no_keyboard_has(surf):
    await surf.open(PAGE)
    await surf.click(100, 20)
    for letter in ("é", "漢", "🚀", "👨‍👩‍👧", "ש"):
        state, text = await surf.do("press_keys", keys=[letter])
        assert state == "effect", (letter, text)
    assert await surf.js("a.value") == "é漢🚀👨‍👩‍👧ש"


WRONG = {
    "F13": "did you mean F",
    "hyper": "unknown key 'hyper'",
    "Entre": "did you mean Enter",
    "hello": "for text use write",
    "ctrl+w": "belongs to the browser",
    "Control+T": "belongs to the browser",
    "alt+F4": "belongs to the browser",
}


async def test_unknown_and_refused_keys_fail_with_a_hint(surf):
    await surf.open(PAGE)
    for name, part in WRONG.items():
        state, text = await surf.do("press_keys", keys=[name])
        assert (state, part in text) == ("failed", True), text
    for keys in ([], None, 5, [None], [["a"]], "", {"a": 1}):
        state, text = await surf.do("press_keys", keys=keys)
        assert state == "failed", keys
    assert await surf.js("keys") == []
