"""A line break in a text does not send a form half typed."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FORM = """<form onsubmit="event.preventDefault(); sent = (window.sent || 0) + 1">%s
  </form><style>#a { position: absolute; left: 0; top: 0; width: 200px; height: 90px;
  white-space: pre-wrap }</style>"""
INPUT = FORM % "<input id=a name=a>"
AREA = (
    FORM
    % """<textarea id=a name=a onkeydown="if (event.key === 'Enter' &&
  !event.shiftKey) { event.preventDefault(); sent = 1; this.value = '' }"></textarea>"""
)
CHAT = (
    FORM
    % """<div id=a contenteditable onkeydown="if (event.key === 'Enter' &&
  !event.shiftKey) { event.preventDefault(); sent = 1; this.innerText = '' }"></div>"""
)


async def test_breaks_inside_are_left_out_and_told(surf):
    await surf.open(INPUT)
    await surf.click(100, 40)
    for text in ("x\ny", "x\r\ny", "x\n\ny"):
        state, told = await surf.do("write", message=text)
        assert "without its line breaks" in told
        assert await surf.js("[a.value, window.sent]") == ["x y", None]


async def test_a_break_at_the_end_is_enter(surf):
    await surf.open(INPUT)
    await surf.click(100, 40)
    state, told = await surf.do("write", message="hello\n")
    assert state == "effect" and "then pressed Enter" in told
    assert await surf.js("[a.value, sent]") == ["hello", 1]
    state, told = await surf.do("write", message="\n")
    assert "then pressed Enter" in told
    assert await surf.js("[a.value, sent]") == ["hello", 2]


@pytest.mark.parametrize("body", [AREA, CHAT], ids=["area", "chat"])
async def test_many_lines_are_kept_and_nothing_is_sent(surf, body):
    await surf.open(body)
    await surf.click(100, 40)
    for text in ("one\ntwo\n\nthree", "long line " * 15 + "\nand another"):
        state, told = await surf.do("write", message=text)
        assert state == "effect" and "the text is in it" in told, told
        held = await surf.js("a.value ?? a.innerText")
        assert held.replace("\xa0", " ") == text
        assert await surf.js("window.sent") is None


async def test_a_form_that_goes_elsewhere_on_enter(surf):
    surf.site.pages["/found"] = "<title>Found</title>"
    await surf.open(
        "<form action=/found><input name=q style='width:200px;height:40px'>"
    )
    await surf.click(100, 20)
    state, told = await surf.do("write", message="term\n")
    assert state == "effect" and "the page is now 'Found'" in told
    assert surf.seen.tabs[0].url.endswith("/found?q=term")
