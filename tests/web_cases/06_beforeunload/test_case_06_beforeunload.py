"""Pages that ask whether to leave (microsoft/playwright#14431, #20624, #37597)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ASKED = "it asked whether to leave the page, answered with leave"


async def touch(surf):
    """Types into the page, without which Chromium does not let it ask."""
    await surf.click(50, 20)
    await surf.do("write", message="x")


async def test_goto_leaves_and_tells(surf, site):
    site.pages["/next"] = "<title>Next</title>"
    await surf.open()
    await touch(surf)
    state, text = await surf.do("goto_url", url="http://site.test/next")
    assert state == "effect" and ASKED in text and surf.seen.tabs[0].title == "Next"


async def test_going_back_leaves_and_tells(surf, site):
    site.pages["/second"] = (surf.folder / "page.html").read_text()
    await surf.open("<title>First</title>")
    await surf.do("goto_url", url="http://site.test/second")
    await touch(surf)
    state, text = await surf.do("go_back")
    assert state == "effect" and ASKED in text and surf.seen.tabs[0].title == "First"


async def test_closing_a_tab_leaves_and_tells(surf, site):
    site.pages["/second"] = (surf.folder / "page.html").read_text()
    await surf.open("<title>First</title>")
    await surf.do("new_tab")
    await surf.do("goto_url", url="http://site.test/second")
    await touch(surf)
    state, text = await surf.do("close_tab")
    assert state == "effect" and ASKED in text
    assert [tab.title for tab in surf.seen.tabs] == ["First"]


async def test_a_reload_of_its_own_leaves_and_tells(surf):
    await surf.open(
        (surf.folder / "page.html").read_text() + "<button style='position:fixed; "
        "left:200px; top:0; height:40px' onclick='location.reload()'>Again</button>"
    )
    await touch(surf)
    state, text = await surf.click(210, 20)
    assert state == "effect" and ASKED in text
    assert await surf.js("document.querySelector('input').value") == ""
