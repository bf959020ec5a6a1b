"""Disabled and inert things are told as such; the click came to nothing."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AT = "style='position:absolute;left:0;top:0;width:200px;height:40px'"
PAGES = {
    "button": f"<button {AT} disabled onclick='k=1'>Save</button>",
    "fieldset": f"<fieldset disabled><button {AT}>Save</button></fieldset>",
    "aria": f"<div role=button aria-disabled=true {AT}>Save</div>",
    "aria above": f"<div aria-disabled=true><div role=button {AT}>Save</div></div>",
    "inert": f"<div inert><button {AT} onclick='k=1'>Save</button></div>",
    "field": f"<input name=Save disabled {AT}>",
    "no pointer": "<style>button { pointer-events: none }</style>"
    f"<button {AT} onclick='k=1'>Save</button>",
    "shadow": f"""<x-y aria-disabled=true></x-y><script>document.querySelector('x-y')
      .attachShadow({{mode: 'open'}}).innerHTML = "<button {AT}>Save</button>"
      </script>""".replace('"<button', "`<button").replace('button>"', "button>`"),
}


@pytest.mark.parametrize("kind", PAGES)
async def test_it_is_disabled(surf, kind):
    await surf.open("<body>" + PAGES[kind])
    state, text = await surf.click(100, 20)
    is_focused = "focus is on" in text  # a host that is disabled only by its word
    assert state == ("effect" if is_focused else "no_effect"), text
    assert "'Save'" in text and ("disabled" in text or "inert" in text)
    assert await surf.js("window.k") is None


async def test_what_only_looks_disabled_is_not_told_so(surf):
    await surf.open(
        f"<button {AT} class=disabled onclick='p.textContent=1'>Save</button>"
        "<p id=p style='margin-top:80px'></p>"
    )
    state, text = await surf.click(100, 20)
    assert state == "effect" and "disabled" not in text and "appeared: '1'" in text
