"""A native list by pixels: its popup is no part of the page (BrowserGym#375)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LIST = """<style>select { position: absolute; left: 100px; top: 100px; width: 200px }
  </style><script>n = {input: 0, change: 0}</script>
  <select id=s name=fruit oninput="n.input++" onchange="n.change++" %s>%s</select>"""
THREE = "<option>alpha<option>beta<option>gamma"
HERE = (150, 110)


async def value(surf):
    return await surf.js("[s.value, n.input, n.change]")


async def test_a_click_lists_the_options_and_write_chooses(surf):
    await surf.open(LIST % ("", THREE))
    state, text = await surf.click(*HERE)
    assert "(now 'alpha'), write one of: alpha, beta, gamma" in text
    state, text = await surf.click(150, 150)  # where a popup would have its second row
    assert await value(surf) == ["alpha", 0, 0]
    await surf.click(*HERE)
    state, text = await surf.do("write", message="Beta")
    assert (state, "'beta' is chosen" in text) == ("effect", True), text
    assert await value(surf) == ["beta", 1, 1]
    state, text = await surf.do("write", message="beta")
    assert (state, "'beta' was chosen already" in text) == ("no_effect", False) or (
        state == "no_effect"
    )
    assert await value(surf) == ["beta", 1, 1]
    state, text = await surf.do("write", message="delta")
    assert state == "failed" and "no such option, it has alpha, beta, gamma" in text


async def test_arrow_keys_choose_and_no_popup_swallows_the_next_click(surf):
    await surf.open(
        LIST % ("", THREE) + "<button style='position:absolute;left:0;"
        "top:0;width:90px;height:50px' onclick='s.title=1'>Go</button>"
    )
    await surf.click(*HERE)
    state, text = await surf.do("press_keys", keys=["Down"])
    assert state == "effect" and "'beta' is chosen" in text
    assert await value(surf) == ["beta", 1, 1]
    for keys in (["space"], ["F4"], ["alt+Down"]):
        await surf.do("press_keys", keys=keys)
    state, text = await surf.click(45, 25)
    assert "clicked button 'Go'" in text
    assert await surf.js("s.title") == "1"


async def test_many_disabled_and_grouped_options(surf):
    many = "".join(f"<option>o{number}" for number in range(300))
    await surf.open(LIST % ("", many))
    _, text = await surf.click(*HERE)
    assert "o8, o9 and 290 more" in text and "o10" not in text
    grouped = "<optgroup label=G><option>x<option disabled>y</optgroup>"
    grouped += "<optgroup label=H disabled><option>z</optgroup>"
    await surf.open(LIST % ("", grouped))
    _, text = await surf.click(*HERE)
    assert "write one of: x: " in text
    for name in "yz":
        state, text = await surf.do("write", message=name)
        assert state == "failed" and f"'{name}' is disabled" in text
    await surf.open(LIST % ("disabled", THREE))
    state, text = await surf.click(*HERE)
    assert state == "no_effect" and "disabled" in text


ODD = """<option value=0><option value=1>x<option value=2>x<option hidden>h
  <option value=4>Paris, France<optgroup label=G><option value=5>y</optgroup>
  <optgroup label=H><option value=6>y</optgroup><option value=7 label=z>text
  <option value=8>a label that is longer than is told"""
ASKED = {
    "x (2)": ("2", "'x (2)' is chosen"),
    "x": ("1", "'x' is chosen"),
    "h / Y": ("6", "'H / y' is chosen"),
    "y": ("5", "'G / y' is chosen"),
    "'Paris, France'": ("4", "'Paris, France' is chosen"),
    "": ("0", "'' is chosen"),
    "Z": ("7", "'z' is chosen"),
    "''": ("0", "'' is chosen"),
    "a label that is lon…": ("8", "'a label that is longer than i…' is chosen"),
}


async def test_options_that_are_empty_alike_or_hidden(surf):
    await surf.open(LIST % ("", ODD))
    _, text = await surf.click(*HERE)
    assert "(now ''), write one of: '', x, x (2), 'Paris, France', G / y, H / y" in text
    assert ", z, a label that is lon…: " in text
    for message, (held, told) in ASKED.items():
        state, text = await surf.do("write", message=message)
        assert (state, text.endswith(told)) == ("effect", True), text
        assert await surf.js("s.value") == held
    state, text = await surf.do("write", message="h")
    assert state == "failed" and "no such option, it has ''" in text
    await surf.open(LIST % ("", ""))
    _, text = await surf.click(*HERE)
    assert "it has no option to choose" in text
    state, text = await surf.do("write", message="x")
    assert state == "failed" and text.endswith("no such option, it has none")


@pytest.mark.parametrize("kind", ["multiple", "size=5", "multiple size=5"])
async def test_open_lists_are_clicked(surf, kind):
    await surf.open(LIST % (kind, THREE))
    x, y = await surf.js(
        "(b => [b.x + b.width / 2, b.y + b.height / 2])"
        "(s.options[1].getBoundingClientRect())"
    )
    state, text = await surf.click(x, y)
    assert state == "effect" and "clicked option 'beta'" in text
    assert "selected is now true" in text
    assert await value(surf) == ["beta", 1, 1]
    state, text = await surf.do("write", message="gamma")
    assert state == "effect" and "'gamma' is chosen" in text


async def test_the_page_has_the_last_word(surf):
    back = "onchange=\"this.value='gamma'\""
    await surf.open(f"<select id=s style=width:200px {back}>{THREE}</select>")
    await surf.click(100, 18)
    state, text = await surf.do("write", message="beta")
    assert state == "effect" and "'gamma' is chosen" in text


async def test_a_framework_that_watches_the_value_is_told(surf):
    await surf.open(
        LIST % ("", THREE)
        + """<script>
      const own = Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, 'value');
      Object.defineProperty(s, 'value', {get() { return own.get.call(this) },
        set(v) { throw Error('set by script') }, configurable: true});</script>"""
    )
    await surf.click(*HERE)
    state, text = await surf.do("write", message="gamma")
    assert state == "effect" and "'gamma' is chosen" in text, text


async def test_in_frames_and_shadow_roots(surf):
    inner = "<body style=margin:0><select style=width:200px onchange=top.c=1>" + THREE
    await surf.open(f'<iframe style="border:0" srcdoc="{inner}"></iframe>')
    _, text = await surf.click(60, 18)
    assert "write one of: alpha, beta" in text
    state, text = await surf.do("write", message="beta")
    assert state == "effect" and "'beta' is chosen" in text
    assert await surf.js("c") == 1
    for mode in ("open", "closed"):
        await surf.open(
            f"""<x-y></x-y><script>const root = document.querySelector('x-y')
            .attachShadow({{mode: '{mode}'}}); root.innerHTML =
            `<select style="width:200px">{THREE}</select>`</script>"""
        )
        _, text = await surf.click(60, 18)
        assert "write one of: alpha, beta" in text
        state, text = await surf.do("write", message="gamma")
        assert state == "effect" and "'gamma' is chosen" in text
