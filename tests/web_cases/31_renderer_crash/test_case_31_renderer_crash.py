"""A page whose process dies, and dies again (browser-use#5067)."""

import pytest

from openwebrl_jax.core.causes import Cause
from openwebrl_jax.web import browser
from tests.web.toys import CLICK

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def crash(surf):
    """Kills the process of the tab in view."""
    with pytest.raises(browser.Error):
        await surf.env._active.raw.goto("chrome://crash", timeout=3000)


async def test_the_page_is_opened_again_with_the_other_tabs_as_they_were(surf, site):
    site.pages["/other"] = "<title>Other</title>"
    await surf.open("<title>start</title><script>document.cookie = 'a=1'</script><p>x")
    await surf.do("new_tab")
    await surf.do("goto_url", url="http://frame.test/other")
    await surf.do("switch_tab", tab_index=0)
    await crash(surf)
    state, text = await surf.click(50, 20)
    assert state == "failed" and "the page crashed, the last page was opened" in text
    assert surf.step.cause is None
    assert [tab.title for tab in surf.seen.tabs] == ["start", "Other"]
    assert surf.seen.active_tab == 0 and not surf.seen.is_stale
    assert await surf.js("document.cookie") == "a=1"
    assert (await surf.click(50, 20))[0] == "no_effect"


async def test_a_crash_during_the_calls_of_a_reply_fails_that_call_alone(surf):
    await surf.open("<title>start</title><p>x</p>")
    await crash(surf)
    step = await surf.env.step((CLICK, CLICK))
    assert [line.state for line in step.feedback] == ["failed", "no_effect"]


async def test_a_page_that_always_crashes_is_opened_anew_each_time_and_scored(surf):
    await surf.open("<title>start</title><p>x</p>")
    for number in range(1, 7):
        await crash(surf)
        state, text = await surf.click(50, 20)
        assert state == "failed"
        assert text.endswith("the page crashed, the last page was opened again")
        assert surf.step.cause is None
        assert surf.step.facts == {"page_breaks": number}
        assert surf.seen.tabs[0].title == "start" and not surf.seen.is_stale
    assert (await surf.click(50, 20))[0] == "no_effect"
    await surf.open("<title>start</title><p>x</p>")
    await surf.do("wait", seconds=0)
    assert surf.step.facts == {}


async def test_a_page_that_crashes_again_at_once_is_left_for_the_first_one(surf, site):
    site.pages["/other"] = "<title>Other</title>"
    await surf.open("<title>start</title><p>x</p>")
    told = []
    for crashes_first in (True, False, True, True):
        await surf.do("goto_url", url="http://site.test/other")
        for _ in range(crashes_first):
            await crash(surf)
            told.append((await surf.click(50, 20))[1])
    assert all(text.endswith(", the last page was opened again") for text in told)
    await crash(surf)
    state, text = await surf.click(50, 20)
    assert state == "failed" and text.endswith(
        "the page crashed, the task's first page was opened instead"
    )
    assert surf.seen.tabs[0].title == "start"


async def test_what_does_not_open_any_more_leaves_a_tab_that_can_be_used(surf, site):
    site.pages["/other"] = "<title>Other</title>"
    await surf.open("<title>start</title><p>x</p>")
    start = site.pages["/page"]
    await surf.do("goto_url", url="http://site.test/other")
    site.pages["/other"] = (204, {}, "")
    await crash(surf)
    _, text = await surf.click(50, 20)
    assert text.endswith("the task's first page was opened instead")
    assert surf.seen.tabs[0].title == "start"
    site.pages["/page"] = (500, {}, "<title>no</title>")
    await crash(surf)
    _, text = await surf.click(50, 20)
    assert text.endswith("the tab is empty now") and surf.step.cause is None
    assert surf.seen.tabs[0].url == "about:blank"
    site.pages["/page"] = start
    state, _ = await surf.do("goto_url", url="http://site.test/page")
    assert state == "effect" and surf.seen.tabs[0].title == "start"
    await crash(surf)
    _, text = await surf.click(50, 20)
    assert text.endswith("the last page was opened again")
    assert surf.step.facts == {"page_breaks": 3}


async def test_who_breaks_pages_again_and_again_has_asked_for_the_time(surf):
    await surf.open("<title>start</title><p>x</p>")
    asked = []
    for _ in range(3):
        await crash(surf)
        await surf.click(50, 20)
        asked.append(surf.step.asked_s)
    assert asked[0] == 0.0 and min(asked[1:]) > 0.05


async def test_done_needs_no_page(surf):
    await surf.open("<title>start</title><p>x</p>")
    await crash(surf)
    state, text = await surf.do("done")
    assert state == "failed" and surf.step.cause is None
    await crash(surf)
    state, text = await surf.do("done", response="42")
    assert state == "effect" and text.startswith("marked as done; the page crashed")
    assert (surf.step.cause, surf.step.answer) == (Cause.DONE, "42")


async def test_a_tab_that_crashes_in_the_background_leaves_the_list(surf):
    await surf.open("<title>start</title><p>x</p>")
    await surf.do("new_tab")
    with pytest.raises(browser.Error):
        await surf.env._shown.pages[0].raw.goto("chrome://crash", timeout=3000)
    state, text = await surf.do("wait", seconds=0.3)
    assert "tab 'start' in the background" in text
    assert [tab.url for tab in surf.seen.tabs] == ["about:blank"]
    state, text = await surf.do("close_tab")
    assert state == "failed" and "the last tab cannot be closed" in text
