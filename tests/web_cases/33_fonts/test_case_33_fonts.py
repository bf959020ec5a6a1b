"""Fonts that never come hold the capture (playwright#35972, #35200, #28995)."""

import io
import time

import pytest
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGE = """<title>start</title><style>
  @font-face { font-family: late; src: url(/font.woff2); font-display: %s }
  body { font: 60px late, sans-serif; margin: 0 }</style><p>HHHHHHHH</p>"""


@pytest.mark.parametrize("display", ["swap", "fallback", "optional"])
async def test_the_text_is_there_in_another_font(surf, site, display):
    site.pages["/font.woff2"] = (200, {"Sleep": "4"}, "")
    begun = time.monotonic()
    await surf.open(PAGE % display)
    state, text = await surf.do("wait", seconds=0.2)
    assert time.monotonic() - begun < 3 and not surf.seen.is_stale
    image = Image.open(io.BytesIO(surf.seen.screenshot)).convert("L")
    assert image.getextrema()[0] < 80  # ink


async def test_a_font_that_hides_its_text_does_not_hold_the_step(surf, site):
    site.pages["/font.woff2"] = (200, {"Sleep": "4"}, "")
    await surf.open(PAGE % "block")
    begun = time.monotonic()
    await surf.click(50, 50)
    assert time.monotonic() - begun < 1.5 and not surf.seen.is_stale
