"""Pages that never answer again (microsoft/playwright#13253)."""

import asyncio
import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from tests.web import toys

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FULL = "position:fixed; inset:0"
BUDGET_S = 9.0  # two unanswered calls of 3 s, a new tab and a capture


@pytest.fixture
def prompt(config):
    """A second less to wait for a page that will never answer."""
    with config.unlocked():
        config.action_timeout_s, whole_s = 1.0, config.action_timeout_s
    yield
    with config.unlocked():
        config.action_timeout_s = whole_s


async def within(work, limit_s=BUDGET_S):
    begun = time.monotonic()
    made = await work
    assert time.monotonic() - begun < limit_s
    return made


async def test_a_busy_loop_by_a_click(surf, prompt):
    await surf.open(
        f"<title>start</title><p style='{FULL}' onclick='while (1) {{}}'>x</p>"
    )
    state, text = await within(surf.click(50, 50))
    assert state == "failed" and "did not answer in time" in text
    assert surf.seen.tabs[0].title == "start" and not surf.seen.is_stale
    assert (await within(surf.do("wait", seconds=0), 3.0))[0] == "no_effect"


async def test_a_busy_loop_by_a_timer_between_two_steps(surf, prompt):
    await surf.open(
        """<title>start</title><script>if (!sessionStorage.n) setTimeout(
        () => { sessionStorage.n = 1; while (1) {} }, 700)</script><p>x</p>"""
    )
    await asyncio.sleep(0.8)
    state, text = await within(surf.click(50, 20))
    assert state == "failed" and "did not answer in time" in text
    assert surf.seen.tabs[0].title == "start"
    assert (await within(surf.click(390, 290), 3.0))[0] == "no_effect"


async def test_a_busy_loop_when_the_page_loads_in_an_episode(surf, site, prompt):
    site.pages["/busy"] = (
        "<title>Busy</title><script>onload = () => { while (1) {} }</script>"
    )
    await surf.open("<title>start</title><p>x</p>")
    state, text = await within(surf.do("goto_url", url="http://site.test/busy"))
    assert state == "failed" and "did not answer in time" in text
    assert surf.seen.tabs[0].title == "start"


async def test_a_busy_loop_when_the_start_page_loads(surf, site, prompt):
    site.pages["/busy"] = (
        "<title>Busy</title><script>onload = () => { while (1) {} }</script>"
    )
    with pytest.raises(Failure) as caught:
        await within(surf.env.reset(toys.make_task("/busy")))
    assert caught.value.cause is Cause.SITE_TIMEOUT
    await surf.open("<title>start</title><p>x</p>")


async def test_a_page_that_reloads_without_end_is_bounded(surf, site, prompt):
    site.pages["/again"] = """<title>Again</title><script>
      setInterval(() => location.reload(), 5)</script>"""
    await surf.open("<title>start</title><p>x</p>")
    await within(surf.do("goto_url", url="http://site.test/again"))
    await within(surf.click(50, 50))
    state, text = await within(surf.do("goto_url", url="http://site.test/page"))
    assert state == "effect", text
    assert surf.seen.tabs[0].title == "start"


async def test_a_busy_page_is_left_by_an_address(surf, site, prompt):
    site.pages["/other"] = "<title>other</title>"
    await surf.open(
        "<title>start</title><script>setTimeout(() => { while (1) {} }, 700)</script>"
    )
    await asyncio.sleep(0.8)
    state, text = await within(surf.do("goto_url", url="http://site.test/other"))
    assert state == "effect", text
    assert surf.seen.tabs[0].title == "other"


async def test_a_chain_of_redirects_is_no_page_that_goes_on_for_ever(surf, site):
    for n in range(8):
        site.pages[f"/hop{n}"] = (302, {"Location": f"/hop{n + 1}"}, "")
    site.pages["/hop8"] = "<title>end</title>"
    await surf.open("<title>start</title><p>x</p>")
    for path in ("/hop0", "/page"):
        await surf.do("goto_url", url=f"http://site.test{path}")
    assert (await surf.do("go_back"))[0] == "effect"
    assert surf.seen.tabs[0].title == "end"


# Its title is read last when an action has settled; then comes the capture.
BUSY_AFTER = f"""<title>start</title><script>
  const own = Object.getOwnPropertyDescriptor(Document.prototype, 'title');
  Object.defineProperty(document, 'title', {{get() {{
    if (self.armed && !sessionStorage.n) {{
      sessionStorage.n = 1;
      setTimeout(() => {{ while (1) {{}} }}, 0);
    }}
    return own.get.call(document);
  }}}});</script><p style='{FULL}' onclick='armed = 1'>x</p>"""


async def test_a_busy_loop_before_the_capture_is_told(surf, prompt):
    await surf.open(BUSY_AFTER)
    state, text = await within(surf.click(50, 50))
    assert (state, text) == (
        "no_effect",
        "clicked p 'x': nothing changed; "
        "the page did not answer in time, the last page was opened again",
    )
    assert surf.seen.tabs[0].title == "start" and not surf.seen.is_stale
    assert surf.step.facts == {"page_breaks": 1}


async def test_nothing_is_left_waiting(surf, prompt, caplog):
    await surf.open(f"<button style='{FULL}' onclick='while (1) {{}}'>x</button>")
    before = asyncio.all_tasks()
    await surf.click(50, 50)
    await surf.env.close()
    await asyncio.sleep(0.1)
    assert [t for t in asyncio.all_tasks() - before if "Page" in repr(t)] == []
    assert not caplog.records
