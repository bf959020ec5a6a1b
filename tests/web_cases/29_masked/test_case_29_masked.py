"""Fields that change what is typed: accepted beside typed (playwright#9894)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FIELD = """<style>#a { position: absolute; left: 0; top: 0; width: 200px; height: 40px }
  </style><input id=a name=a %s><button id=b style="position:absolute;left:0;top:60px;
  width:200px;height:40px">Other</button>%s"""
PHONE = """oninput="const d = this.value.replace(/[^0-9]/g, '').slice(0, 10);
  this.value = d.replace(/^(...)(...)?(.*)/, (_, x, y, z) =>
    [x, y, z].filter(Boolean).join('-'))" """
LATER = """oninput="clearTimeout(window.t); t = setTimeout(() =>
  { this.value = this.value.trim() + '!' }, 300)" """
CASES = {  # attributes -> typed, state, a part of the text
    "maxlength=5": ("hello world", "effect", "it holds 'hello'"),
    "type=number": ("12abc", "effect", "it holds '12'"),
    PHONE: ("5551234567", "effect", "it holds '555-123-4567'"),
    LATER: ("soon", "effect", "it holds 'soon!'"),
    "readonly value=old": ("new", "failed", "it cannot be edited"),
    "oninput='this.value = this.value.toUpperCase()'": ("abc", "effect", "'ABC'"),
    "oninput='this.value = \"fixed\"'": ("abc", "effect", "it holds 'fixed'"),
    "type=email": ("nobody", "effect", "the text is in it; it says 'Please include"),
    "pattern=[0-9]+": ("abc", "effect", "it says 'Please match"),
    "value=old": ("new", "effect", "the text is in it"),
}


@pytest.mark.parametrize("kind", CASES)
async def test_accepted_beside_typed(surf, kind):
    typed, state, part = CASES[kind]
    await surf.open(FIELD % (kind, ""))
    await surf.click(100, 20)
    told_state, told = await surf.do("write", message=typed)
    assert (told_state, part in told) == (state, True), told
    assert f"typed '{typed}'" in told


async def test_a_controlled_input_that_refuses(surf):
    keep = """<script>a.addEventListener('input', () => queueMicrotask(() =>
      { a.value = 'kept' })); a.value = 'kept'</script>"""
    await surf.open(FIELD % ("", keep))
    await surf.click(100, 20)
    state, told = await surf.do("write", message="new")
    assert state == "no_effect" and "the text is in it" not in told, told


async def test_rewritten_when_it_loses_focus(surf):
    await surf.open(FIELD % ("onblur='this.value = this.value.toUpperCase()'", ""))
    await surf.click(100, 20)
    state, told = await surf.do("write", message="abc")
    assert "the text is in it" in told
    state, told = await surf.click(100, 80)
    assert state == "effect" and "text field 'a' holds 'ABC' now" in told


async def test_writing_where_nothing_takes_text_fails(surf):
    await surf.open(FIELD % ("type=checkbox", ""))
    state, told = await surf.do("write", message="x")
    assert (state, "no text field has focus" in told) == ("failed", True)
    for y, name in ((20, "checkbox 'a'"), (80, "button 'Other'")):
        await surf.click(100, y)
        state, told = await surf.do("write", message="x")
        assert state == "failed" and f"focus is on {name}, which takes no text" in told
