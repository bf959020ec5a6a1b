"""Servers that want a login (playwright-python#1106, puppeteer#9856)."""

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from tests.web import toys

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def login(site):
    site.pages["/basic"] = (401, {"WWW-Authenticate": 'Basic realm="x"'}, "")
    site.pages["/digest"] = (
        401,
        {"WWW-Authenticate": 'Digest realm="x", nonce="1"'},
        "",
    )
    site.pages["/form"] = (401, {}, "<title>Log in</title><p>please")
    site.pages["/bare"] = (401, {}, "")
    site.pages["/ok"] = "<title>Fine</title>"


@pytest.mark.parametrize("path", ["/basic", "/digest", "/bare"])
@pytest.mark.parametrize("way", ["goto", "click"])
async def test_no_prompt_no_hang_and_the_next_goto_works(surf, login, path, way):
    await surf.open(
        f"<title>start</title><a href={path} style='position:fixed; inset:0'>Go</a>"
    )
    if way == "goto":
        state, text = await surf.do("goto_url", url=f"http://site.test{path}")
    else:
        state, text = await surf.click(50, 50)
    assert state == "failed" and "login required (HTTP 401)" in text
    assert surf.step.cause is None
    assert surf.seen.tabs[0].title == "start" and len(surf.seen.tabs) == 1
    state, text = await surf.do("goto_url", url="http://site.test/ok")
    assert state == "effect" and surf.seen.tabs[0].title == "Fine"


async def test_a_page_that_comes_with_401_is_shown_with_its_status(surf, login):
    await surf.open(
        "<title>start</title><a href=/form style='position:fixed; inset:0'>x"
    )
    for step in (surf.click(50, 50), surf.do("goto_url", url="http://site.test/form")):
        state, text = await step
        assert state == "effect" and "HTTP 401" in text
        assert surf.seen.tabs[0].title == "Log in"


@pytest.mark.parametrize("path", ["/basic", "/form", "/bare"])
async def test_a_start_that_wants_a_login_is_its_own_cause(surf, login, path):
    with pytest.raises(Failure) as caught:
        await surf.env.reset(toys.make_task(path))
    assert caught.value.cause is Cause.LOGIN_REQUIRED
