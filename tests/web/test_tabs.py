"""Dialogs, popups, and what an action sets going, on a real Chromium."""

import time

import pytest

from tests.web.toys import BLOCK, CLICK, call, said

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    "script, told, result",
    [
        ("alert('hi')", "it showed the message 'hi', now closed", None),
        ("r = confirm('Delete?')", "it asked 'Delete?', answered with cancel", False),
        ("r = prompt('Name')", "it asked for text 'Name', answered with cancel", None),
    ],
)
async def test_dialogs_are_answered_and_told(surf, script, told, result):
    page = f'<script>r = null</script><div style="{BLOCK}" onclick="{script}">x</div>'
    begun = time.monotonic()
    state, text = said(await surf(page, CLICK))
    assert state == "effect" and told in text
    assert await surf.env.facts("() => r") == result
    assert time.monotonic() - begun < 4


async def test_beforeunload_does_not_keep_the_page(surf, site):
    site.pages["/next"] = "<title>Next</title>"
    page = f"""<input style="{BLOCK}"><script>
      onbeforeunload = (event) => event.preventDefault()</script>"""
    leave = call("goto_url", url="http://site.test/next")
    step = await surf(page, CLICK, call("write", message="x"), leave)
    assert step.observation.tabs[0].title == "Next"
    assert "asked whether to leave" in step.feedback[2].text


async def test_a_popup_that_was_asked_for_is_shown_until_it_closes(surf, site):
    site.pages["/popup"] = (
        "<title>Popup</title><button onclick=window.close()>Close</button>"
    )
    link = f'<a target=_blank rel=opener href=/popup style="{BLOCK}">Open</a>'
    step = await surf(link, CLICK)
    assert step.feedback[0].state == "effect" and "new tab" in step.feedback[0].text
    assert [tab.title for tab in step.observation.tabs] == ["", "Popup"]
    assert step.observation.active_tab == 1
    step = await surf.env.step((call("click", point_2d=[150, 80]),))
    assert step.observation.active_tab == 0 and len(step.observation.tabs) == 1


async def test_a_link_is_followed_before_feedback(surf, site):
    site.pages["/slow"] = (200, {"Sleep": "0.4"}, "<title>Slow</title><p>there")
    step = await surf(f'<a href=/slow style="{BLOCK}">Go</a>', CLICK)
    told = "clicked link 'Go': the page is now 'Slow' http://site.test/slow"
    assert said(step) == ("effect", told)


async def test_what_a_request_brings_is_waited_for(surf, site):
    site.pages["/data"] = (200, {"Sleep": "0.3"}, "late text")
    page = f"""<div style="{BLOCK}" onclick="fetch('/data').then((a) => a.text())
      .then((t) => {{ out.textContent = t }})">Load</div>
      <p id=out style="margin-top:90px"></p>"""
    assert "appeared: 'late text'" in said(await surf(page, CLICK))[1]
