"""Dialogs that hang everything (openai/codex#24087, browser-use#2951)."""

import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ANSWERS = {
    "alert('hi')": ("it showed the message 'hi', now closed", None),
    "confirm('Delete?')": ("it asked 'Delete?', answered with cancel", False),
    "prompt('Name', 'x')": ("it asked for text 'Name', answered with cancel", None),
    "print()": (None, None),
}


def button(script):
    """A page that is one button."""
    return f"""<title>start</title>
      <script>r = 'none'; act = () => {{ {script} }}</script>
      <button onclick="act()" style="position:fixed; inset:0">Go</button>"""


@pytest.mark.parametrize("script", ANSWERS)
async def test_each_kind_is_answered_at_once_and_told(surf, script):
    told, result = ANSWERS[script]
    await surf.open(
        button(
            f"t = performance.now(); r = {script} ?? null; t = performance.now() - t"
        )
    )
    state, text = await surf.click(50, 50)
    if told:
        assert state == "effect" and text.count(told) == 1
    assert await surf.js("r") == result
    assert await surf.js("t") < 500


async def test_the_answer_reaches_the_page(surf):
    await surf.open(button("document.title = confirm('Delete?')"))
    await surf.click(50, 50)
    assert surf.seen.tabs[0].title == "false"


async def test_many_alerts_in_a_row_do_not_hang(surf):
    """R44."""
    await surf.open(button("for (i = 0; i < 30; i++) alert(i); document.title = i"))
    begun = time.monotonic()
    state, text = await surf.click(50, 50)
    assert state == "effect" and "message '0'" in text and len(text) <= 512
    assert surf.seen.tabs[0].title == "30"
    assert time.monotonic() - begun < 6


async def test_alerts_without_end_are_a_page_that_does_not_answer(surf):
    await surf.open(button("for (;;) alert('again')"))
    begun = time.monotonic()
    state, text = await surf.click(50, 50)
    assert state == "failed" and "did not answer in time" in text
    assert time.monotonic() - begun < 10 and surf.seen.tabs[0].title == "start"


async def test_a_dialog_of_the_start_page_does_not_hold_the_start(surf):
    seen = await surf.open("<title>start</title><script>alert('welcome')</script>")
    assert seen.tabs[0].title == "start"
    state, text = await surf.do("wait", seconds=0)
    assert state == "no_effect" and "before that: it showed the message 'welc" in text


async def test_a_dialog_in_a_frame(surf, site):
    site.pages["/inner"] = button("parent.postMessage(confirm('Sure?'), '*')")
    await surf.open(
        """<script>onmessage = (e) => { document.title = e.data }</script>
        <iframe src=/inner style="position:fixed; inset:0; width:400px; height:300px">
        </iframe>"""
    )
    state, text = await surf.click(50, 50)
    assert state == "effect" and "it asked 'Sure?', answered with cancel" in text
    assert surf.seen.tabs[0].title == "false"


async def test_a_dialog_that_a_frame_of_another_site_may_not_show(surf, site):
    site.pages["/foreign"] = button("document.title = 'x'; alert('boo'); n = 1")
    await surf.open(
        """<iframe src=http://frame.test/foreign
        style="position:fixed; inset:0; width:400px; height:300px"></iframe>"""
    )
    begun = time.monotonic()
    await surf.click(50, 50)
    assert time.monotonic() - begun < 5 and not surf.seen.is_stale


async def test_a_dialog_of_a_popup(surf, site):
    site.pages["/popup"] = "<title>Popup</title><script>alert('from popup')</script>"
    await surf.open(button("window.open('/popup')"))
    state, text = await surf.click(50, 50)
    assert state == "effect" and "it showed the message 'from popup'" in text
    assert surf.seen.active_tab == 1 and surf.seen.tabs[1].title == "Popup"


async def test_a_dialog_between_two_steps_is_told_but_is_no_effect(surf):
    await surf.open("<p>x</p><script>setTimeout(() => alert('later'), 900)</script>")
    await surf.do("wait", seconds=0)
    assert await surf.js("new Promise((done) => setTimeout(done, 1000))") is None
    state, text = await surf.click(390, 290)
    assert state == "no_effect" and "before that: it showed the message 'later'" in text
