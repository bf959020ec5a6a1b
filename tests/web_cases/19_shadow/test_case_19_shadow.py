"""Inside shadow roots: the click works, and the inner thing is named."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AT = "position:absolute;left:0;top:0;width:200px;height:40px"
NEST = """<title>start</title><x-0></x-0><script>
  let at = document.querySelector('x-0');
  for (const mode of %s) {
    const root = at.attachShadow({mode});
    root.innerHTML = '<x-y></x-y>';
    at = root.firstChild;
  }
  at.outerHTML = `%s`;</script>"""
OPEN, CLOSED = "['open', 'open', 'open']", "['closed']"
BUTTON = f"<button style='{AT}' onclick=\"%s\">Deep</button>"
FIELD = f"<input name=q style='{AT}'>"


async def test_three_open_roots(surf):
    await surf.open(NEST % (OPEN, BUTTON % "document.title='hit'"))
    state, text = await surf.click(100, 20)
    assert state == "effect" and "clicked button 'Deep'" in text
    assert await surf.js("document.title") == "hit"


async def test_a_closed_root_is_told_with_its_host(surf):
    await surf.open(NEST % (CLOSED, BUTTON % "document.title='hit'"))
    state, text = await surf.click(100, 20)
    assert state == "effect" and "clicked button 'Deep' in closed x-0" in text
    assert await surf.js("document.title") == "hit"


async def test_changes_inside_are_seen(surf):
    for roots in (OPEN, CLOSED):
        await surf.open(
            NEST
            % (roots, BUTTON % "this.insertAdjacentHTML('afterend', '<p>fresh text')")
        )
        _, text = await surf.click(100, 20)
        assert "appeared: 'fresh text'" in text
        await surf.open(NEST % (roots, BUTTON % "void 0"))
        await surf.click(100, 20)
        state, text = await surf.click(100, 20)
        assert state == "no_effect"


async def test_focus_and_value_are_read_inside(surf):
    for roots in (OPEN, CLOSED, "['open', 'closed']"):
        await surf.open(NEST % (roots, FIELD))
        _, text = await surf.click(100, 20)
        assert "focus is on text field 'q'" in text
        state, text = await surf.do("write", message="hello")
        assert state == "effect" and "the text is in it" in text
        state, text = await surf.do("write", message="world")
        assert state == "effect" and "the text is in it" in text


async def test_roots_declared_in_the_source_and_slots(surf):
    await surf.open(f"""<x-y><template shadowrootmode=open><p style="{AT}">
      <slot></slot></p></template><button style="width:90px;height:30px"
      onclick="this.textContent='Now'">Slot</button></x-y>""")
    state, text = await surf.click(40, 30)
    assert state == "effect" and "button 'Slot'" in text and "'Now'" in text


async def test_the_page_does_not_see_that_we_look(surf):
    await surf.open("<p>x")
    native = "[Element.prototype.attachShadow, setTimeout, HTMLElement.prototype.click]"
    texts = await surf.js(f"{native}.map(String)")
    assert all("[native code]" in text for text in texts)
    assert "__probe" not in await surf.js("Object.keys(window)")
