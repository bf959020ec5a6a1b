"""Pages and windows of extreme size (playwright-mcp#817, playwright#42717)."""

import io
import time

import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LONG = """<title>start</title><div style="height:40000px; width:100%;
  background:linear-gradient(red, blue)"></div>"""


def size(seen):
    return Image.open(io.BytesIO(seen.screenshot)).size


@pytest.mark.parametrize(
    "more", ["", "<style>div { width: 40000px !important }</style>"]
)
async def test_only_the_viewport_is_captured(surf, more):
    await surf.open(LONG + more)
    begun = time.monotonic()
    state, text = await surf.do("scroll", direction="down", amount=1)
    assert state == "effect" and size(surf.seen) == (400, 300)
    assert await surf.js("void scrollTo(0, 1e9)") is None
    await surf.do("wait", seconds=0)
    assert time.monotonic() - begun < 3 and not surf.seen.is_stale
    blue = Image.open(io.BytesIO(surf.seen.screenshot)).getpixel((5, 290))
    assert isinstance(blue, tuple) and blue[2] > 200


@pytest.mark.parametrize("width_px, height_px", [(1, 1), (32, 2000)])
async def test_a_window_of_odd_size(surf, config, width_px, height_px):
    whole = config.width_px, config.height_px
    with config.unlocked():
        config.width_px, config.height_px = width_px, height_px
    try:
        await surf.open("<title>start</title><p>x</p>")
        state, text = await surf.do("click", point_2d=[500, 500])
    finally:
        with config.unlocked():
            config.width_px, config.height_px = whole
    assert state in ("effect", "no_effect") and not surf.seen.is_stale
    assert size(surf.seen) == (width_px, height_px)


async def test_a_document_without_anything_in_it(surf):
    await surf.open("")
    state, text = await surf.click(50, 50)
    assert state == "no_effect" and size(surf.seen) == (400, 300)
