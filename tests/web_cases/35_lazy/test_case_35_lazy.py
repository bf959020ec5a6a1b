"""Pages that are never quiet, and pages that answer late (actionbook PR#557,
puppeteer#3202, playwright-python#1262)."""

import io
import time

import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FULL = "position:fixed; inset:0; opacity:0"
SVG = """<svg xmlns="http://www.w3.org/2000/svg">
  <rect fill="red" width="100%" height="100%"/></svg>"""


def button(script, more=""):
    return f"""<title>start</title><p id=out>empty</p><script>act = () => {{ {script} }}
      say = (text) => {{ out.textContent = text }}</script>
      <button onclick="act()" style="{FULL}">Go</button>{more}"""


@pytest.fixture
def polls(site):
    site.pages["/poll"] = (200, {"Sleep": "4"}, "x")


ENDLESS = {
    "long polling": ("fetch('/poll')", "the page is still loading"),
    "spinner": ("setInterval(() => say(Math.random()), 30)", "still changing"),
    "frames": (
        "(f = () => { say(Math.random()); requestAnimationFrame(f) })()",
        "still",
    ),
    "image": (
        "document.body.append(Object.assign(new Image(), {src: '/poll'}))",
        "still",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_what_never_ends_is_waited_for_so_long_and_told(
    surf, polls, config, kind
):
    script, told = ENDLESS[kind]
    await surf.open(button(script))
    begun = time.monotonic()
    state, text = await surf.click(50, 50)
    assert time.monotonic() - begun < config.settle_cap_s + 1.0
    assert told in text and not surf.seen.is_stale


async def test_a_web_socket_is_not_waited_for(surf):
    await surf.open(button("new WebSocket('ws://site.test/poll'); say('open')"))
    begun = time.monotonic()
    assert "still" not in (await surf.click(50, 50))[1]
    assert time.monotonic() - begun < 1.0


async def test_polling_that_began_with_the_page_does_not_slow_a_click(surf, polls):
    await surf.open(button("say('done')", "<script>fetch('/poll')</script>"))
    begun = time.monotonic()
    assert (await surf.click(50, 50))[0] == "effect"
    assert time.monotonic() - begun < 1.0


LATE = {
    "timer": "setTimeout(() => say('late words'), 100)",
    "slow timer": "setTimeout(() => say('late words'), 450)",
    "timers": "setTimeout(() => setTimeout(() => say('late words'), 200), 200)",
    "text timer": "setTimeout(\"say('late words')\", 20)",
    "fetch": "fetch('/data').then(() => say('late words'))",
    "both": "setTimeout(() => fetch('/data').then(() => say('late words')), 90)",
}


@pytest.mark.parametrize("kind", LATE)
async def test_what_an_action_brings_late_is_seen(surf, site, kind):
    site.pages["/data"] = (200, {"Sleep": "0.3"}, "x")
    await surf.open(button(LATE[kind]))
    state, text = await surf.click(50, 50)
    assert state == "effect" and "late words" in text


async def test_a_clock_of_the_page_is_not_waited_for(surf):
    tick = "<script>tick = () => setTimeout(tick, 100); tick()</script>"
    await surf.open(button("", tick))
    begun = time.monotonic()
    await surf.click(50, 50)
    state, text = await surf.click(50, 50)
    assert state == "no_effect" and time.monotonic() - begun < 1.2


async def test_timers_still_look_and_work_as_they_were(surf):
    await surf.open(
        """<script>seen = []; setTimeout((...a) => seen.push(a), 0, 1, 2);
        id = setInterval(() => { seen.push('tick'); clearInterval(id) }, 20);
        clearTimeout(setTimeout(() => seen.push('never'), 10))</script>"""
    )
    await surf.do("wait", seconds=0.2)
    assert await surf.js("seen") == [[1, 2], "tick"]
    assert await surf.js("String(setTimeout)") == "function () { [native code] }"
    assert await surf.js("setTimeout.name + setTimeout.length") == "setTimeout1"


async def test_a_request_of_a_frame_of_another_site_is_waited_for(surf, site):
    site.pages["/data"] = (200, {"Sleep": "0.4"}, "x")
    site.pages["/foreign"] = f"""<p id=p>empty</p><button style="{FULL}" onclick="fetch(
      '/data').then(() => {{ document.body.style.background = 'red' }})">Go</button>"""
    await surf.open(
        """<iframe src=http://frame.test/foreign style="position:fixed; inset:0;
        width:400px; height:300px; border:0"></iframe>"""
    )
    await surf.do("wait", seconds=0.2)
    begun = time.monotonic()
    await surf.click(350, 250)
    assert time.monotonic() - begun > 0.4
    assert color(surf.seen) == (255, 0, 0)


async def test_a_list_that_loads_after_a_scroll(surf):
    await surf.open(
        """<div style="height:2000px">x</div><script>onscroll = () => setTimeout(() => {
        const line = document.createElement('p');
        line.style = 'position:fixed; top:0'; line.textContent = 'more lines';
        document.body.append(line) }, 300)</script>"""
    )
    state, text = await surf.do("scroll", direction="down")
    assert state == "effect" and "more lines" in text


async def test_images_that_load_when_they_come_into_view(surf, site):
    site.pages["/red.svg"] = (
        200,
        {"Content-Type": "image/svg+xml", "Sleep": "0.4"},
        SVG,
    )
    await surf.open(
        """<div style="height:5000px">x</div><img loading=lazy src=/red.svg
        width=400 height=600 style="display:block">"""
    )
    for _ in range(25):
        state, text = await surf.do("scroll", direction="down", amount=1)
        if "the page is at 100%" in text:
            break
    assert color(surf.seen) == (255, 0, 0) and "still loading" not in text


BEHIND = {
    "a background": "#x { background: url(/red.svg) }",
    "a part": "#x::after { content: ''; position: absolute; inset: 0;"
    " background: url(/red.svg) }",
}


@pytest.mark.parametrize("kind", BEHIND)
async def test_an_image_behind_what_is_in_view_is_waited_for(surf, site, kind):
    site.pages["/red.svg"] = (
        200,
        {"Content-Type": "image/svg+xml", "Sleep": "0.5"},
        SVG,
    )
    style = f"<style>#x {{ position: fixed; inset: 0 }} {BEHIND[kind]}</style>"
    await surf.open(f"<title>start</title>{style}<div id=x></div>", path="/first")
    assert color(surf.seen) == (255, 0, 0)
    late = style.replace("/red.svg", "/red.svg?late")
    await surf.open(
        late.replace("#x", "#x.on") + button("x.className = 'on'", "<div id=x></div>")
    )
    state, text = await surf.click(50, 50)
    assert color(surf.seen) == (255, 0, 0) and "still loading" not in text


async def test_an_image_that_only_counts_visits_is_not_waited_for(surf, polls):
    await surf.open(button("self.hit = Object.assign(new Image(), {src: '/poll'})"))
    begun = time.monotonic()
    state, text = await surf.click(50, 50)
    assert time.monotonic() - begun < 0.8 and "still" not in text


async def test_a_background_that_never_comes_is_told(surf, polls, config):
    await surf.open(
        button("document.body.style.background = 'url(/poll)'", "<p>words</p>")
    )
    begun = time.monotonic()
    _, text = await surf.click(50, 50)
    assert time.monotonic() - begun < config.settle_cap_s + 1.0
    assert text.endswith("the page is still loading")


def color(seen):
    image = Image.open(io.BytesIO(seen.screenshot)).convert("RGB")
    return image.getpixel((200, 150))
