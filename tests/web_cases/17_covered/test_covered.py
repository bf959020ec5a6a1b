"""A click that something else swallows (vercel-labs/agent-browser#58, sakuli#332)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_what_covers_the_button_is_named(surf):
    await surf.open()
    state, text = await surf.click(50, 125)
    assert state == "no_effect"
    assert "covers button 'Buy'" in text
    assert await surf.js("document.title") == "start"
