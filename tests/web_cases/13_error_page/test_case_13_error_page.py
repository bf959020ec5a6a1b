"""An error page spoils the next goto (playwright#8958)."""

import contextlib

import pytest

from openwebrl_jax.core.causes import Failure
from openwebrl_jax.core.types import Task
from openwebrl_jax.web import browser
from tests.web.toys import call

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BAD = ["http://8.8.8.8:1/", "http://nowhere.invalid/", "https://site.test/"]


@pytest.mark.parametrize("bad", BAD)
async def test_a_good_goto_right_after_a_bad_one(surf, site, bad):
    site.pages["/good"] = "<title>Good</title>"
    await surf.open("<title>start</title>")
    good = call("goto_url", url="http://site.test/good")
    step = await surf.env.step((call("goto_url", url=bad), good))
    assert [line.state for line in step.feedback] == ["failed", "effect"]
    assert step.observation.tabs[0].title == "Good"


async def test_bad_addresses_never_wear_the_tab_out_and_keep_its_history(surf, site):
    site.pages["/second"] = "<title>Second</title>"
    await surf.open("<title>start</title>")
    await surf.do("goto_url", url="http://site.test/second")
    for _ in range(5):
        state, text = await surf.do("goto_url", url="http://nowhere.invalid/")
        assert state == "failed" and "the last page was opened again" in text
        assert surf.seen.tabs[0].title == "Second"
    assert (await surf.do("go_back"))[0] == "effect"
    assert surf.seen.tabs[0].title == "start"


async def test_a_try_that_an_error_page_cuts_short_is_not_the_pages_doing(surf, site):
    site.pages["/second"] = "<title>Second</title>"
    await surf.open("<title>start</title>")
    await surf.do("goto_url", url="http://site.test/second")
    raw, cuts = surf.env._active.raw, []
    go = raw.goto

    async def cut_short(url, **options):
        cuts.append(url)
        if len(cuts) > 1:
            return await go(url, **options)
        with contextlib.suppress(browser.Error):
            await go(url, **options)
        await raw.wait_for_url("chrome-error://**", wait_until="load")
        raise browser.Error("Navigation is interrupted by another navigation")

    raw.goto = cut_short
    for _ in range(2):
        assert (await surf.do("goto_url", url="http://nowhere.invalid/"))[0] == "failed"
    assert len(cuts) >= 3
    assert (await surf.do("go_back"))[0] == "effect"
    assert surf.seen.tabs[0].title == "start"


async def test_a_reset_right_after_a_bad_one(surf):
    with pytest.raises(Failure):
        await surf.env.reset(
            Task(id="t", intent="", start_url="http://nowhere.invalid/", max_turns=1)
        )
    seen = await surf.open("<title>start</title>")
    assert seen.tabs[0].title == "start"
