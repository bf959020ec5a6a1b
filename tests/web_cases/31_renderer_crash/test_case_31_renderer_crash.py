"""A page whose process dies, and dies again (browser-use#5067)."""

import pytest

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


async def test_a_page_that_always_crashes_is_given_up_but_scored(surf, site):
    await surf.open("<title>start</title><p>x</p>")
    told = []
    for _ in range(4):
        await crash(surf)
        told.append(await surf.click(50, 20))
        assert surf.step.cause is None
    assert all(state == "failed" for state, _ in told)
    assert "the page crashed, the last page was opened again" in told[1][1]
    assert "the page crashed, the tab is empty now" in told[3][1]
    state, text = await surf.do("goto_url", url="http://site.test/page")
    assert state == "effect" and surf.seen.tabs[0].title == "start"


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
