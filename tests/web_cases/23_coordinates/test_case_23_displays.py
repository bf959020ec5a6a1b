"""Other displays: dense ones (slicc#3296, browser-use#4571), and a window of its own,
where what the browser draws beside the page would be windows too (browser-use#4681).
"""

import io
import time

import pytest
import pytest_asyncio
from PIL import Image

from openwebrl_jax.web import browser
from tests.web import toys
from tests.web_cases.conftest import FRAME_HOST, Surf, at

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# With a window Chromium wants a display; this one is drawn nowhere.
HEADED = "--ozone-platform=headless"
DISPLAYS = {
    "dense": ["--force-device-scale-factor=2.5"],
    "headed and dense": [HEADED, "--force-device-scale-factor=2"],
}
WRAPPER = """#!/bin/bash
for word; do
  shift
  case "$word" in --headless*) [ -n "{is_headed}" ] || set -- "$@" "$word" ;;
    *) set -- "$@" "$word" ;; esac
done
exec "{chromium}" {switches} "$@"
"""


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=DISPLAYS.values(), ids=DISPLAYS
)
async def display(request, config, site, chromium, tmp_path_factory):
    """A pool whose Chromium has such a display."""
    wrapper = tmp_path_factory.mktemp("display") / "chromium"
    is_headed = "yes" if HEADED in request.param else ""
    switches = " ".join(request.param)
    wrapper.write_text(
        WRAPPER.format(is_headed=is_headed, chromium=chromium, switches=switches)
    )
    wrapper.chmod(0o755)
    own = config.copy_and_resolve_references()
    with own.unlocked():
        own.chromium = str(wrapper)
    pool = browser.Pool(
        own, {toys.HOST: site.server_port, FRAME_HOST: site.server_port}
    )
    await pool.start()
    assert pool._current is not None
    with open(f"/proc/{pool._current.pid}/cmdline") as file:
        words = file.read().split("\0")
    assert any(word.startswith("--headless") for word in words) != bool(is_headed)
    assert set(request.param) <= set(words)
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="session")
async def surf(display, site, request):
    made = Surf(display, site, request.path.parent)
    yield made
    await made.env.close()


MARKS = """<title>start</title><body style="margin:0;height:300px"><script>
  addEventListener('mousedown', (e) => { const spot = document.createElement('b');
    spot.style = `position:fixed;width:8px;height:8px;background:red;
      left:${e.clientX - 4}px;top:${e.clientY - 4}px`;
    document.body.append(spot) })</script>"""


async def test_a_pixel_of_the_picture_is_a_pixel_of_the_page(surf):
    await surf.open(MARKS)
    for x, y in ((20, 30), (390, 290), (250, 75)):
        await surf.click(x, y)
        image = Image.open(io.BytesIO(surf.seen.screenshot)).convert("RGB")
        assert image.size == (surf.seen.width_px, surf.seen.height_px) == (400, 300)
        assert image.getpixel((x, y)) == (255, 0, 0)
        assert image.getpixel((x - 10, y)) == (255, 255, 255)
    size = await surf.js("[devicePixelRatio, innerWidth, innerHeight]")
    assert size == [1, 400, 300]
    state, text = await surf.do("drag", start_point_2d=at(5, 5), end_point_2d=at(9, 9))
    assert await surf.js("document.querySelectorAll('b').length") == 4


NATIVE = """<title>start</title><style>
  body > * { position: absolute; left: 10px; width: 200px; height: 24px }</style>
  <input type=file style="top:10px"><button style="top:50px" onclick="
    const input = document.createElement('input'); input.type = 'file'; input.click()
  ">pick</button><select id=s style="top:90px"><option>alpha<option>beta</select>
  <input type=date id=d style="top:130px"><input type=color style="top:170px">
  <button style="top:210px" onclick="this.textContent = confirm('sure?')">ask</button>
  """


async def test_what_would_be_a_window_beside_the_page_does_not_open(surf):
    await surf.open(NATIVE)
    for y in (22, 62):
        state, text = await surf.click(30, y)
        assert "file upload is not available" in text
    _, text = await surf.click(30, 102)
    assert "write one of: alpha, beta" in text
    await surf.click(30, 182)
    begun = time.monotonic()
    _, text = await surf.click(30, 222)
    assert "it asked 'sure?', answered with cancel" in text
    await surf.click(205, 142)  # where a date field has its calendar
    await surf.do("press_keys", keys=["alt+Down"])
    await surf.do("write", message="2024-03-05")
    assert await surf.js("d.value") == "2024-03-05"
    assert time.monotonic() - begun < 6 and not surf.seen.is_stale


async def test_tabs_come_into_view_and_paint(surf, site):
    site.pages["/red"] = "<title>Red</title><body style='background:red'>"
    await surf.open("<title>start</title><a href=/red target=_blank>open it here</a>")
    await surf.click(30, 18)
    assert [tab.title for tab in surf.seen.tabs] == ["start", "Red"]
    assert Image.open(io.BytesIO(surf.seen.screenshot)).convert("RGB").getpixel(
        (200, 150)
    ) == (255, 0, 0)
    await surf.do("close_tab")
    assert surf.seen.tabs[surf.seen.active_tab].title == "start"
    state, _ = await surf.do("scroll", direction="down")
    assert state == "no_effect" and not surf.seen.is_stale


ZOOMED = """<title>start</title><style>html { zoom: 2 } body { margin: 0 }
  button, iframe { position: absolute; left: 10px; width: 60px; height: 20px }
  iframe { top: 60px; height: 60px; border: 3px solid; transform: scale(1.5);
    transform-origin: 0 0 }</style><button onclick="this.textContent='hit'"
  style="top:10px">one</button><iframe srcdoc="<body style='margin:0'><button
  style='position:absolute; inset:0; height:50px' onclick=this.textContent='hit'
  >two</button>"></iframe>"""


async def test_a_page_that_is_zoomed_is_hit_where_it_is_seen(surf):
    await surf.open(ZOOMED)
    state, text = await surf.click(40, 40)
    assert text.startswith("clicked button 'one'") and "appeared: 'hit'" in text, text
    state, text = await surf.click(100, 200)
    assert text.startswith("clicked button 'two'") and "appeared: 'hit'" in text, text
