"""The agent stays on the old tab (browser-use#3657, #4136), or is torn from it."""

import asyncio
import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FULL = "position:fixed; inset:0; font-size:40px"
SHOWN = "it opened new tab 1, which is in view now"


@pytest.fixture
def popup(site):
    site.pages["/popup"] = "<title>Popup</title><p>here</p>"
    site.pages["/slow"] = (200, {"Sleep": "0.6"}, "<title>Slow</title>")


def button(script, more=""):
    return f"""<title>start</title><script>act = () => {{ {script} }}</script>
      <button onclick="act()" style="{FULL}">Go</button>{more}"""


def titles(seen):
    return [tab.title for tab in seen.tabs], seen.active_tab


ASKED = {
    "blank": f"<a href=/popup target=_blank style='{FULL}'>Go</a>",
    "noopener": f"<a href=/popup target=_blank rel=noopener style='{FULL}'>Go</a>",
    "opener": f"<a href=/popup target=_blank rel=opener style='{FULL}'>Go</a>",
    "named": f"<a href=/popup target=other style='{FULL}'>Go</a>",
    "form": f"<form action=/popup target=_blank><button style='{FULL}'>Go</button>",
    "script": button("window.open('/popup')"),
    "window": button("window.open('/popup', '', 'width=300,height=200')"),
    "timer": button("setTimeout(() => window.open('/popup'), 200)"),
}


@pytest.mark.parametrize("kind", ASKED)
async def test_a_tab_that_the_action_asked_for_is_shown(surf, popup, kind):
    await surf.open(f"<title>start</title>{ASKED[kind]}")
    state, text = await surf.click(50, 50)
    assert state == "effect" and SHOWN in text, text
    assert titles(surf.seen) == (["start", "Popup"], 1)
    assert surf.seen.tabs[1].url.startswith("http://site.test/popup")
    assert await surf.js("document.body.textContent.trim()") == "here"


async def test_a_tab_that_loads_slowly_is_waited_for(surf, popup):
    await surf.open(button("window.open('/slow')"))
    assert SHOWN in (await surf.click(50, 50))[1]
    assert titles(surf.seen) == (["start", "Slow"], 1)


async def test_a_tab_that_comes_after_the_action_stays_back_and_is_told(surf, popup):
    await surf.open(button("setTimeout(() => window.open('/popup'), 800)"))
    await surf.click(50, 50)
    assert titles(surf.seen) == (["start"], 0)
    state, text = await surf.do("wait", seconds=1.2)
    assert "new tab 1 opened in the background" in text
    assert titles(surf.seen) == (["start", "Popup"], 0)
    assert await surf.js("document.title") == "start"


async def test_a_tab_that_comes_between_two_steps_stays_back_and_is_told(surf, popup):
    await surf.open(button("setTimeout(() => window.open('/popup'), 800)"))
    await surf.click(50, 50)
    await asyncio.sleep(1.3)
    state, text = await surf.do("wait", seconds=0)
    assert state == "no_effect"
    assert "before that: new tab 1 opened in the background" in text
    assert titles(surf.seen) == (["start", "Popup"], 0)


async def test_a_tab_that_nobody_asked_for_does_not_steal_the_view(surf, popup):
    await surf.open("<title>start</title><script>window.open('/popup')</script><p>x")
    state, text = await surf.click(50, 50)
    assert "new tab 1 opened in the background" in text
    assert titles(surf.seen) == (["start", "Popup"], 0)
    begun = time.monotonic()
    await surf.click(50, 50)
    assert time.monotonic() - begun < 1.5  # the tab in view is not put to sleep


async def test_a_middle_click_opens_in_the_background(surf, popup):
    await surf.open(f"<title>start</title><a href=/popup style='{FULL}'>Go</a>")
    state, text = await surf.click(50, 50, button="middle")
    assert state == "effect" and "new tab 1 opened in the background" in text
    assert titles(surf.seen) == (["start", "Popup"], 0)
    await surf.do("switch_tab", tab_index=1)
    assert titles(surf.seen) == (["start", "Popup"], 1)


async def test_a_tab_that_is_opened_and_closed_gives_the_view_back(surf, popup):
    await surf.open(
        button("w = window.open('/popup'); setTimeout(() => w.close(), 900)")
    )
    await surf.click(50, 50)
    assert titles(surf.seen) == (["start", "Popup"], 1)
    state, text = await surf.do("wait", seconds=1.2)
    assert state == "effect" and "the tab closed itself, tab 0 is in view now" in text
    assert titles(surf.seen) == (["start"], 0)
    state, text = await surf.click(50, 50)
    assert SHOWN in text


async def test_a_closed_tab_gives_the_view_to_its_opener(surf, site, popup):
    site.pages["/closes"] = (
        f"<title>C</title><button style='{FULL}' onclick='window.close()'>x</button>"
    )
    await surf.open(button("window.open('/closes')"))
    await surf.do("new_tab")
    await surf.do("switch_tab", tab_index=0)
    await surf.click(50, 50)
    assert titles(surf.seen) == (["start", "", "C"], 2)
    state, text = await surf.click(50, 50)
    assert state == "effect" and "tab 0 is in view now" in text
    assert titles(surf.seen) == (["start", ""], 0)


async def test_two_tabs_of_one_click(surf, popup):
    await surf.open(button("window.open('/popup'); window.open('/slow')"))
    await surf.click(50, 50)
    await surf.do("wait", seconds=0.8)
    assert titles(surf.seen) == (["start", "Popup", "Slow"], 1)


async def test_a_tab_in_the_background_is_listed_as_it_is_now(surf, site, popup):
    site.pages["/moves"] = """<title>Moves</title><script>
      setTimeout(() => { location.href = '/popup' }, 400)</script>"""
    await surf.open("<title>start</title><script>window.open('/moves')</script><p>x")
    await surf.do("wait", seconds=1)
    assert titles(surf.seen) == (["start", "Popup"], 0)
    assert surf.seen.tabs[1].url == "http://site.test/popup"
