"""Long texts are fast, and end in real keys (puppeteer#4308)."""

import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AT = "style='position:absolute;left:0;top:0;width:300px;height:90px'"
COUNT = """<script>n = {input: 0, keydown: 0}; for (const name in n)
  addEventListener(name, () => n[name]++, true)</script>"""
LONG = "lorem ipsum dolor sit " * 230  # 5 060 characters


@pytest.mark.parametrize("field", ["<textarea id=a %s></textarea>", "<input id=a %s>"])
async def test_five_thousand_characters(surf, field):
    await surf.open(field % AT + COUNT)
    await surf.click(100, 40)
    start = time.monotonic()
    state, told = await surf.do("write", message=LONG)
    assert time.monotonic() - start < 3
    assert state == "effect" and "the text is in it" in told
    assert await surf.js("a.value") == LONG
    assert await surf.js("n.input > 1 && n.keydown > 0")


async def test_suggestions_come_up_for_a_long_text(surf):
    await surf.open(f"""<input {AT} oninput="clearTimeout(window.t);
      t = setTimeout(() => {{ out.textContent = 'Lorem ipsum' }}, 250)">
      <p id=out style="margin-top:100px"></p>""")
    await surf.click(100, 40)
    state, told = await surf.do("write", message=LONG)
    assert state == "effect" and "appeared: 'Lorem ipsum'" in told


async def test_a_text_without_end_is_cut_and_said_so(surf):
    await surf.open(f"<textarea id=a {AT}></textarea>")
    await surf.click(100, 40)
    state, told = await surf.do("write", message="ab" * 15_000)
    assert state == "effect" and "the first 20000 of its 30000 characters" in told
    assert await surf.js("a.value.length") == 20_000
