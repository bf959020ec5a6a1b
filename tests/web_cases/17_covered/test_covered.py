"""A click that something else swallows (vercel-labs/agent-browser#58, sakuli#332)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BOX = "position:fixed;left:0;top:100px;width:100px;height:50px;"
BUY = f"<button style='{BOX}' onclick=\"document.title='bought'\">Buy</button>"


async def test_what_covers_the_button_is_named(surf):
    await surf.open()
    state, text = await surf.click(50, 125)
    assert state == "no_effect"
    assert "clicked div 'ov'" in text and "covers button 'Buy'" in text
    assert await surf.js("document.title") == "start"


async def test_an_overlay_in_a_frame_is_named(surf):
    body = BUY.replace('"', "&quot;") + f"<div id=ov style='{BOX}'></div>"
    await surf.open(
        f'<iframe style="border:9px solid;padding:3px;width:200px;height:200px;'
        f'transform:scale(.5);transform-origin:0 0" srcdoc="{body}"></iframe>'
    )
    state, text = await surf.click(8 + 6 + 25, 8 + 6 + 62)
    assert state == "no_effect" and "covers button 'Buy'" in text


CLEAR = {  # what only seems to cover
    "no pointer events": BUY + f"<div style='{BOX}pointer-events:none'></div>",
    "icon": BUY.replace(
        "Buy", "<svg width=60 height=30><rect width=60 height=30></svg> Buy"
    ),
    "header above": BUY + "<div style='position:fixed;left:0;top:0;width:400px;"
    "height:124px;background:red'>Head</div>",
    "label": f"<label style='{BOX}'>Agree<input type=checkbox style='opacity:0' "
    "onchange=\"document.title='bought'\"></label>",
    "label for": f"<label for=c style='{BOX}'>Agree</label><input type=checkbox id=c "
    "style='display:none' onchange=\"document.title='bought'\">",
}


@pytest.mark.parametrize("kind", CLEAR)
async def test_what_lets_the_click_through_is_no_cover(surf, kind):
    await surf.open("<title>start</title>" + CLEAR[kind])
    state, text = await surf.click(50, 125)
    assert state == "effect" and "cover" not in text
    if "label" in kind:
        assert "checked is now true" in text
    assert await surf.js("document.title") == "bought"


async def test_a_modal_dialog_blocks_what_is_behind_it(surf):
    await surf.open(
        BUY + "<dialog id=d style='top:0;width:60px'>Hi</dialog>"
        "<script>d.showModal()</script>"
    )
    state, text = await surf.click(50, 125)
    assert state == "no_effect" and "button 'Buy' at that point is disabled" in text
