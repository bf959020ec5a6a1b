"""Scrolling names what moved, how far, and where it ends (browser-use#1481)."""

import pytest

from tests.web_cases.conftest import FRAME_HOST, at

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TWO = """<style>html, body { margin: 0; height: 100%%; overflow: hidden }
  #side, #main { position: absolute; top: 0; height: 300px; overflow: auto %s }
  #side { left: 0; width: 100px } #main { left: 100px; width: 300px }
  div > p { margin: 0; height: 900px; width: 700px; scroll-snap-align: start }</style>
  <div id=side><p>side</p></div><div id=main><p>main</p></div>"""


async def scroll(surf, x, y, direction="down", amount=0.5):
    return await surf.do(
        "scroll", direction=direction, amount=amount, point_2d=at(x, y)
    )


async def test_the_scroller_at_the_point_is_named(surf):
    await surf.open(TWO % "")
    state, text = await scroll(surf, 50, 150)
    assert (state, text) == ("effect", "scrolled down by 50%: div 'side' is at 25%")
    state, text = await scroll(surf, 250, 150, amount=1)
    assert "div 'main' is at 50%" in text and "side" not in text
    _, text = await scroll(surf, 250, 150, amount=1)
    assert "div 'main' is at 100%, the bottom" in text
    state, text = await scroll(surf, 250, 150)
    assert state == "no_effect" and "there is no more down" in text
    state, text = await scroll(surf, 250, 150, "right", 1)
    assert state == "effect" and "div 'main' is at 100%, the right" in text
    state, text = await surf.do("scroll", direction="up", amount=1)
    assert state == "effect" and "div 'main'" in text


async def test_body_may_be_the_scroller(surf):
    await surf.open(
        "<style>html { overflow: hidden; height: 100% } body { margin: 0;"
        "height: 100%; overflow: auto } p { height: 900px }</style><p>x"
    )
    state, text = await scroll(surf, 50, 150)
    assert state == "effect" and "is at 2" in text


async def test_the_page_moves_when_the_inner_is_at_its_end(surf):
    await surf.open("""<body style="margin:0;height:2000px"><div id=box style="height:
      100px;overflow:auto"><p style="height:150px;margin:0">x""")
    _, text = await scroll(surf, 50, 50, amount=1)
    assert "div 'box' is at 100%, the bottom" in text
    state, text = await scroll(surf, 50, 50)
    assert state == "effect"
    assert "div 'box' has no more down; the page is at" in text


@pytest.mark.parametrize("host", ["", f"http://{FRAME_HOST}"])
async def test_in_a_frame(surf, host):
    surf.site.pages["/long"] = "<body style=margin:0><p style='height:900px'>x"
    await surf.open(f"""<body style="margin:0;height:1000px"><iframe src="{host}/long"
      style="border:0;width:200px;height:200px"></iframe>""")
    state, text = await scroll(surf, 100, 100)
    assert state == "effect" and "the frame is at" in text and "the page" not in text
    for _ in range(4):
        await scroll(surf, 100, 100, amount=1)
    assert await surf.js("scrollY") > 0


@pytest.mark.parametrize(
    "style", ["; scroll-snap-type: y mandatory", "; scroll-behavior: smooth"]
)
async def test_snapping_and_smooth_scrollers(surf, style):
    await surf.open(TWO % style)
    state, text = await scroll(surf, 250, 150, amount=1)
    top = await surf.js("main.scrollTop")
    assert state == ("effect" if top else "no_effect"), text
    if top:
        assert f"div 'main' is at {round(top / 6)}%" in text


async def test_a_page_that_scrolls_by_itself_smoothly(surf):
    await surf.open("""<body style="margin:0;height:3000px"><script>
      addEventListener('wheel', (e) => { e.preventDefault();
        scrollBy({top: 600, behavior: 'smooth'}) }, {passive: false})</script>""")
    state, text = await scroll(surf, 50, 150)
    assert state == "effect" and "the page is at 22%" in text
    assert await surf.js("scrollY") == 600


async def test_a_page_that_keeps_the_wheel(surf):
    await surf.open("""<body style="height:3000px"><script>addEventListener('wheel',
      (e) => e.preventDefault(), {passive: false})</script>""")
    state, text = await scroll(surf, 50, 150)
    assert state == "no_effect" and "keeps the wheel to itself" in text


async def test_lists_drawn_anew_and_lists_that_grow(surf):
    rows = """<div id=box style="height:200px;overflow:auto"><div style="height:4000px">
      <p id=row style="position:sticky;top:0">row 0</p></div></div><script>
      box.onscroll = () => { row.outerHTML =
        `<p id=row style="position:sticky;top:0">row ${box.scrollTop}</p>` }</script>"""
    await surf.open(rows)
    state, text = await scroll(surf, 50, 100)
    assert state == "effect" and "div 'box' is at 4%" in text and "vanished" not in text
    grows = """<div id=box style="height:200px;overflow:auto"><p style="height:300px">a
      </p></div><script>box.onscroll = () => { box.onscroll = null;
      setTimeout(() => box.insertAdjacentHTML('beforeend', '<p>more rows</p>'), 300)
      </script>""".replace("300)\n", "300) }\n")
    await surf.open(grows)
    state, text = await scroll(surf, 50, 100, amount=1)
    assert state == "effect" and "appeared: 'more rows'" in text
