"""Addresses as people write them, and those that open what they must not
(doc-detective#700, browser-use#1120, #5099, #5110)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

OPENED = {
    " HTTP://SITE.TEST/page2 ": "http://site.test/page2",
    "http://site.test/page2#part": "http://site.test/page2#part",
    "about:blank": "about:blank",
    "ABOUT:BLANK": "about:blank",
}
REFUSED = {
    "data:text/html,x": "data: is not allowed",
    "javascript:alert(1)": "javascript: is not allowed",
    "  JaVaScRiPt:alert(1)": "javascript: is not allowed",
    "file:///etc/hostname": "file: is not allowed",
    "chrome://version": "chrome: is not allowed",
    "view-source:http://site.test/page": "view-source: is not allowed",
    "blob:http://site.test/1": "blob: is not allowed",
    "http://": "the URL has no host",
    "": "the URL is empty",
    "  ": "the URL is empty",
    "http://site.test/a b": "spaces in it",
    "localhost:80/x": "private address",
    "//127.0.0.1/p": "private address",
}


@pytest.mark.parametrize("url", OPENED)
async def test_an_address_is_opened(surf, site, url):
    site.pages["/page2"] = "<title>Two</title>"
    await surf.open("<title>start</title>")
    state, text = await surf.do("goto_url", url=url)
    assert state == "effect", text
    assert surf.seen.tabs[0].url == OPENED[url]


async def test_an_address_is_refused_in_one_short_line(surf):
    await surf.open("<title>start</title>")
    for url, part in REFUSED.items():
        state, text = await surf.do("goto_url", url=url)
        assert state == "failed" and part in text and len(text) < 160, url
        assert surf.seen.tabs[0].title == "start", url
        assert surf.step.cause is None


@pytest.mark.parametrize(
    "url", ["nowhere.invalid", "nowhere.invalid:8081/x?a=b", "bücher.invalid"]
)
async def test_what_has_no_scheme_is_https(surf, url):
    await surf.open("<title>start</title>")
    state, text = await surf.do("goto_url", url=url)
    assert state == "failed" and "ERR_NAME_NOT_RESOLVED" in text
    assert surf.seen.tabs[0].title == "start"
