"""What the policy sees: one PNG of the viewport, and the list of tabs."""

import base64

from openwebrl_jax.core.types import Observation, Tab
from openwebrl_jax.web import feedback
from openwebrl_jax.web.page import Page, Trouble
from openwebrl_jax.web.tabs import Tabs


async def capture(page: Page, limit_s: float) -> bytes:
    """The viewport as PNG, straight from Chromium.

    Playwright's own screenshot waits for fonts that may never come. The faster
    compression is lossless too.
    """
    answer = await page.send(
        "Page.captureScreenshot", limit_s, format="png", optimizeForSpeed=True
    )
    screenshot = base64.b64decode(answer["data"])
    if not screenshot:
        raise Trouble("hung", "the capture is empty")
    return screenshot


def observation(tabs: Tabs, screenshot: bytes, config, is_stale: bool) -> Observation:
    """The record of one capture; names that come from pages are escaped."""
    shown = tabs.shown
    return Observation(
        screenshot=screenshot,
        width_px=config.width_px,
        height_px=config.height_px,
        tabs=tuple(
            Tab(url=feedback.escape(page.url), title=feedback.escape(page.title))
            for page in shown
        ),
        active_tab=shown.index(tabs.active),
        is_stale=is_stale,
    )
