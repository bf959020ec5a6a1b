"""After a goto that timed out nothing answers (playwright#13253, puppeteer#2395)."""

import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from tests.web import toys

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def slow(site, config):
    site.pages["/sleeps"] = (200, {"Sleep": "8"}, "late")
    site.pages["/next"] = "<title>Next</title>"
    with config.unlocked():
        config.navigate_timeout_s, whole_s = 1.0, config.navigate_timeout_s
    yield
    with config.unlocked():
        config.navigate_timeout_s = whole_s


async def test_the_old_page_is_there_and_everything_answers(surf, slow):
    await surf.open("<title>start</title><p>x</p><script>kept = 5</script>")
    begun = time.monotonic()
    state, text = await surf.do("goto_url", url="http://site.test/sleeps")
    assert state == "failed" and "did not answer in time" in text
    assert surf.step.asked_s >= 1.0 and time.monotonic() - begun < 5
    assert surf.seen.tabs[0].title == "start" and not surf.seen.is_stale
    assert await surf.js("kept") == 5
    assert (await surf.click(50, 20))[0] == "no_effect"
    await surf.do("goto_url", url="http://site.test/next")
    assert surf.seen.tabs[0].title == "Next"


async def test_a_link_that_leads_nowhere_in_time(surf, slow):
    await surf.open(
        "<title>start</title><a href=/sleeps style='position:fixed; inset:0'>Go</a>"
    )
    begun = time.monotonic()
    state, text = await surf.click(50, 50)
    assert state == "failed"
    assert "the page did not answer in time, the page stayed" in text
    state, text = await surf.do("wait", seconds=0)
    assert time.monotonic() - begun < 8 and not surf.seen.is_stale
    assert await surf.js("document.title") == "start"
    await surf.do("goto_url", url="http://site.test/next")
    assert surf.seen.tabs[0].title == "Next"


async def test_at_the_start_it_is_a_site_timeout(surf, slow):
    with pytest.raises(Failure) as caught:
        await surf.env.reset(toys.make_task("/sleeps"))
    assert caught.value.cause is Cause.SITE_TIMEOUT
    await surf.open("<title>start</title>")
