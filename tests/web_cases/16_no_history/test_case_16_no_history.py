"""Back and forward where there is nothing, and inside one document."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SPA = """<title>start</title><button style="position:fixed; inset:0"
  onclick="n++; history.pushState(n, '', '#' + n); show()">Go</button><script>
  n = 0; show = () => { document.title = 'view ' + (history.state || 0) };
  onpopstate = show;</script>"""


@pytest.fixture
def forward(config):
    with config.unlocked():
        config.go_forward = True
    yield
    with config.unlocked():
        config.go_forward = False


async def test_back_from_the_start_is_refused(surf):
    await surf.open("<title>start</title>")
    state, text = await surf.do("go_back")
    assert (state, text) == ("failed", "went back: there is no earlier page")
    assert surf.seen.tabs[0].title == "start"
    await surf.do("new_tab")
    state, text = await surf.do("go_back")
    assert state == "failed" and "there is no earlier page" in text


async def test_forward_is_a_tool_only_where_it_is_switched_on(surf):
    await surf.open("<title>start</title>")
    state, text = await surf.do("go_forward")
    assert state == "failed" and "there is no tool 'go_forward'" in text
    assert "go_forward" not in text.partition("the tools are")[2]


async def test_forward_where_there_is_nothing_and_where_there_is(surf, site, forward):
    site.pages["/second"] = "<title>Second</title>"
    await surf.open("<title>start</title>")
    state, text = await surf.do("go_forward")
    assert (state, text) == ("failed", "went forward: there is no later page")
    await surf.do("goto_url", url="http://site.test/second")
    await surf.do("go_back")
    state, text = await surf.do("go_forward")
    assert state == "effect" and surf.seen.tabs[0].title == "Second"


async def test_back_inside_one_document(surf, forward):
    await surf.open(SPA)
    await surf.click(50, 50)
    await surf.click(50, 50)
    assert surf.seen.tabs[0].title == "view 2"
    state, text = await surf.do("go_back")
    assert state == "effect" and "the address is now http://site.test/page#1" in text
    assert surf.seen.tabs[0].title == "view 1"
    assert (await surf.do("go_forward"))[0] == "effect"
    assert surf.seen.tabs[0].title == "view 2"
    await surf.do("go_back")
    await surf.do("go_back")
    assert (await surf.do("go_back"))[0] == "failed"


async def test_the_page_that_comes_back_is_still_watched(surf, site):
    site.pages["/second"] = "<title>Second</title>"
    await surf.open(
        "<title>start</title><button style='position:fixed; inset:0' "
        "onclick=\"document.body.append('new words')\">Go</button>"
    )
    await surf.do("goto_url", url="http://site.test/second")
    await surf.do("go_back")
    state, text = await surf.click(50, 50)
    assert state == "effect" and "the page changed" in text or "new words" in text
