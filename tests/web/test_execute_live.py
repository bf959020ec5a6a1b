"""Tools on a real Chromium: clicks, text, keys, scrolling, addresses."""

import asyncio
import io
import time

import pytest
from PIL import Image

from tests.web.toys import BLOCK, CLICK, TOP, call, said

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_click_says_what_was_hit_and_what_changed(surf):
    page = f"""<button style="{BLOCK}" onclick="out.textContent='hello'">OK</button>
      <p id=out style="margin-top:90px"></p>"""
    step = await surf(page, CLICK)
    assert said(step) == (
        "effect",
        "clicked button 'OK': focus is on button 'OK'; appeared: 'hello'",
    )
    assert step.cause is None and step.observation.tabs[0].url.endswith("/page")


async def test_click_on_nothing_is_no_effect(surf):
    step = await surf("<p>text</p>", call("click", point_2d=[900, 900]))
    assert said(step) == ("no_effect", "clicked page: nothing changed")


async def test_click_tells_disabled_covered_and_checked(surf):
    button = f'<button style="{BLOCK}" disabled>Buy</button>'
    assert said(await surf(button, CLICK)) == (
        "no_effect",
        "clicked button 'Buy': it is disabled, nothing changed",
    )
    cover = f'<button style="{BLOCK}">Buy</button><div id=ov style="{BLOCK}"></div>'
    assert said(await surf(cover, CLICK)) == (
        "no_effect",
        "clicked div 'ov': nothing changed, it covers button 'Buy'",
    )
    box = f'<label style="{BLOCK}"><input type=checkbox>Agree</label>'
    state, text = said(await surf(box, call("click", point_2d=[60, 50])))
    assert state == "effect" and "checked is now true" in text


async def test_click_reaches_into_shadow_roots_and_frames(surf):
    shadow = f"""<x-y style="{BLOCK}"></x-y><script>
      document.querySelector('x-y').attachShadow({{mode:'open'}}).innerHTML =
        '<button style="{BLOCK}">Deep</button>'</script>"""
    assert "clicked button 'Deep'" in said(await surf(shadow, CLICK))[1]
    inner = "&lt;button style=width:150px;height:40px>Inner&lt;/button>"
    frame = f'<iframe style="{BLOCK}border:0" srcdoc="{inner}"></iframe>'
    assert "clicked button 'Inner'" in said(await surf(frame, CLICK))[1]


HOVERED = [  # page, a part of the text
    (
        f"""<style>#sub {{ display: none }} #top:hover #sub {{ display: block }}</style>
        <div id=top style="{BLOCK}">Menu<a id=sub href=x>Deeper</a></div>""",
        "appeared: 'Deeper'",
    ),
    (
        f"""<style>i {{ opacity: 0; transition: opacity .2s; position: absolute;
        top: 60px }} b:hover + i {{ opacity: 1 }}</style><b style="{BLOCK}">Help</b>
        <i>Tip</i>""",
        "appeared: 'Tip'",
    ),
    (
        f"""<button style="{BLOCK}" onmouseenter="p.textContent='in'">B</button><p id=p
        style="margin-top:90px">""",
        "hovered over button 'B': appeared: 'in'",
    ),
    (f'<a href=x title="A story" style="{BLOCK}">A</a>', "its tip says 'A story'"),
]


@pytest.mark.parametrize("page, part", HOVERED)
async def test_hover_shows_what_it_opens(surf, page, part):
    state, text = said(await surf(page, call("hover", point_2d=TOP)))
    assert state == "effect" and part in text, text


LATE_MENUS = {
    "transition": "b:hover + i { opacity: 1; transition: opacity 300ms }",
    "delayed transition": "b:hover + i { opacity: 1; transition: opacity 100ms 300ms }",
    "timer": "",
    "timers": "",
}
LATE_SCRIPTS = {
    "timer": "b.onmouseenter = () => setTimeout(open, 300)",
    "timers": "b.onmouseover = () => setTimeout(() => setTimeout(open, 200), 100)",
}


@pytest.mark.parametrize("kind", LATE_MENUS)
async def test_hover_waits_for_a_menu_that_opens_late(surf, kind):
    page = f"""<style>i {{ position: absolute; left: 0; top: 60px; width: 160px;
        height: 100px; background: red; opacity: 0 }} {LATE_MENUS[kind]}</style>
        <b id=b style="{BLOCK}">Menu</b><i id=i>Entry</i><script>{{
        const open = () => {{ i.style.opacity = 1 }}; {LATE_SCRIPTS.get(kind, "")}
        }}</script>"""
    step = await surf(page, call("hover", point_2d=TOP))
    assert said(step) == ("effect", "hovered over b 'Menu': appeared: 'Entry'")
    image = Image.open(io.BytesIO(step.observation.screenshot)).convert("RGB")
    assert image.getpixel((100, 130)) == (255, 0, 0)


async def test_hover_over_what_does_not_react_is_quick(surf):
    await surf(f"<p style='{BLOCK}'>text</p>")
    begun = time.monotonic()
    for _ in range(5):
        await surf.env.step((call("hover", point_2d=TOP),))
    assert time.monotonic() - begun < 1.5


async def test_hover_over_nothing_is_no_effect(surf):
    state, text = said(await surf("<p>text</p>", call("hover", point_2d=[900, 900])))
    assert (state, text) == ("no_effect", "hovered over page: nothing changed")


DRAG = call("drag", start_point_2d=[125, 100], end_point_2d=[875, 800])
ITEM = "style='position:absolute;left:0;top:0;width:40px;height:44px' id=a"
SLOT = "<div id=b style='position:absolute;left:100px;top:150px;width:60px;height:60px'"
DRAGGED = {
    "html5": f"""<div draggable=true {ITEM} ondragstart="event.dataTransfer.setData(
      'text', 'a')">A</div>{SLOT} ondragover="event.preventDefault()" ondrop="event
      .preventDefault(); this.append(document.getElementById(event.dataTransfer
      .getData('text'))); a.style.position = 'static'; out = 1">B</div>""",
    "pointer": f"""<div {ITEM}>A</div>{SLOT}>B</div><script>
      a.onpointerdown = (e) => {{ a.setPointerCapture(e.pointerId); a.onpointermove =
        (m) => {{ a.style.left = m.x + 'px'; a.style.top = m.y + 'px'; out = 1 }} }};
      a.onpointerup = () => {{ a.onpointermove = null }}</script>""",
    "mouse": f"""<div {ITEM}>A</div>{SLOT}>B</div><script>
      onmousedown = () => onmousemove =
      (m) => {{ a.style.left = m.x + 'px'; out = 1 }}; onmouseup = () =>
        onmousemove = null</script>""",
}


@pytest.mark.parametrize("kind", DRAGGED)
async def test_drag_moves_things(surf, kind):
    state, text = said(await surf(DRAGGED[kind], DRAG))
    assert (state, "dragged div 'A' to div 'B': " in text) == ("effect", True), text
    assert "it moved" in text and await surf.env.facts("() => out") == 1


async def test_drag_of_a_slider_and_of_nothing(surf):
    slider = f"<input type=range name=r value=0 style='margin:0;{BLOCK}'>"
    right = call("drag", start_point_2d=[50, 100], end_point_2d=[950, 100], steps=1)
    state, text = said(await surf(slider, right))
    assert state == "effect" and "value is now " in text
    assert (
        float(await surf.env.facts("() => document.querySelector('input').value")) > 80
    )
    step = await surf("<p>x", DRAG)
    assert said(step) == ("no_effect", "dragged p 'x' to page: nothing changed")


async def test_buttons_and_clicks(surf, site):
    site.pages["/next"] = "<title>Next</title>"
    link = f'<title>Here</title><a href="/next" style="{BLOCK}">Go</a>'
    step = await surf(link, call("click", point_2d=TOP, button="middle"))
    assert (
        "middle-clicked link 'Go': new tab 1 opened in the background" in said(step)[1]
    )
    assert [tab.title for tab in step.observation.tabs][0] == "Here"
    assert len(step.observation.tabs) == 2 and step.observation.active_tab == 0
    step = await surf(link, call("click", point_2d=TOP, button="right"), CLICK)
    assert "own context menu is not available" in step.feedback[0].text
    assert "the page is now 'Next'" in step.feedback[1].text
    own = f"""<p style="{BLOCK}" oncontextmenu="event.preventDefault();
      out.textContent='Copy'" ondblclick="out.textContent='double'">Row</p><p id=out
      style="margin-top:90px"></p>"""
    step = await surf(own, call("click", point_2d=TOP, button="right"))
    assert said(step) == ("effect", "right-clicked p 'Row': appeared: 'Copy'")
    step = await surf(own, call("click", point_2d=TOP, clicks=2))
    assert "double-clicked p 'Row': appeared: 'double'" in said(step)[1]


SHOWN = [  # what a click does, a part of the text
    (
        "out.innerHTML = '<p>Sure?</p><button>Yes</button><button>No</button>'",
        "appeared: 'Sure?', 'Yes', 'No'",
    ),
    (
        "out.innerHTML = 'abcdefgh'.replace(/./g, '<button>$&</button>')",
        "appeared: 'a', 'b', 'c', 'd', 'e' and 3 more",
    ),
    ("gone.remove()", "1 vanished"),
    ("gone.hidden = true", "1 vanished"),
    ("box.className = 'on'", "appeared: 'Saved'"),
    ("gone.outerHTML = gone.outerHTML", "the page changed"),
]


@pytest.mark.parametrize("act, part", SHOWN)
async def test_what_came_and_went(surf, act, part):
    page = f"""<style>#box {{ display: none }} #box.on {{ display: block }}</style>
      <button style="{BLOCK}" onclick="{act}">Do</button><div style="margin-top:50px">
      <p id=out></p><p id=gone>Old</p><div id=box>Saved</div></div>"""
    state, text = said(await surf(page, CLICK))
    assert state == "effect" and part in text, text


CHURN = {
    "clock": "setInterval(() => { x.textContent = n++ }, 50)",
    "spinner": "setInterval(() => { x.style.rotate = n++ + 'deg' }, 50)",
    "frames": """const turn = () => { x.style.left = n++ % 9 + 'px';
      requestAnimationFrame(turn) }; turn()""",
    "banner": "setInterval(() => { x.innerHTML = `<b>Ad ${n++}</b>` }, 60)",
    "chain": "const go = () => { x.textContent = n++; setTimeout(go, 40) }; go()",
}


@pytest.mark.parametrize("kind", CHURN)
async def test_background_churn_is_not_the_actions_doing(surf, kind):
    page = (
        f"<p id=x style='position:relative'>0</p><script>n = 0; {CHURN[kind]}</script>"
    )
    click = call("click", point_2d=[900, 900])
    await surf(page)
    await asyncio.sleep(0.4)  # as long as nobody thinks
    for _ in range(2):
        step = await surf.env.step((click,))
        assert said(step) == ("no_effect", "clicked page: nothing changed")
    page += f"<button style='{BLOCK}' onclick='out.textContent=1'>OK</button><p id=out>"
    await surf(page)
    await asyncio.sleep(0.4)
    assert "appeared: '1'" in said(await surf.env.step((CLICK,)))[1]


async def test_a_looping_timer_is_not_the_actions_doing(surf):
    clock = """<p id=clock>0</p><script>n = 0;
      setInterval(() => { clock.textContent = n++ }, 20)</script>"""
    await surf(clock, call("wait", seconds=0))
    await asyncio.sleep(0.3)
    step = await surf.env.step((call("click", point_2d=[900, 900]),))
    assert said(step) == ("no_effect", "clicked page: nothing changed")


FIELDS = [  # field, message, state, a part of the text
    ("<input name=a>", "hello", "effect", "text field 'a': the text is in it"),
    ("<input name=a value=old>", "new", "effect", "the text is in it"),
    ("<input name=a maxlength=3>", "hello", "effect", "it holds 'hel'"),
    ("<input name=a type=number>", "12abc", "effect", "it holds '12'"),
    ("<input name=a value=x>", "x", "no_effect", "it held that text already"),
    ("<input name=a readonly>", "x", "failed", "it cannot be edited"),
    ("<input name=a type=password>", "abc", "effect", "it holds 3 characters"),
    ("<input name=a type=date>", "2024-03-05", "effect", "the text is in it"),
    ("<input name=a type=date>", "5 March", "failed", "takes YYYY-MM-DD"),
    ("<input name=a>", "x\ny", "effect", "its line breaks: the text is in it"),
    ("<textarea name=a></textarea>", "x\ny", "effect", "the text is in it"),
    ("<input name=a>", "漢字 שלום é 🎉", "effect", "the text is in it"),
    ("<input name=a>", "long " * 60, "effect", "the text is in it"),
    ("<p>no field</p>", "x", "failed", "no text field has focus"),
]


async def test_write_tells_accepted_text_from_typed(surf, site):
    await surf("<p>start")
    for number, (field, message, state, part) in enumerate(FIELDS):
        page = field.replace("name=a", f'name=a style="{BLOCK}"')
        site.pages[f"/field{number}"] = page
        there = call("goto_url", url=f"http://site.test/field{number}")
        step = await surf.env.step((there, CLICK, call("write", message=message)))
        line = step.feedback[2]
        assert (line.state, part in line.text) == (state, True), line.text


async def test_a_native_list_is_chosen_by_writing(surf):
    page = f"""<select name=s style="{BLOCK}" onchange="n = (window.n || 0) + 1">
      <option>alpha<option>beta</select>"""
    step = await surf(page, CLICK, call("write", message="beta"), CLICK)
    first, second, third = (line.text for line in step.feedback)
    assert "write one of: alpha, beta" in first and "(now 'alpha')" in first
    assert step.feedback[1].state == "effect" and "'beta' is chosen" in second
    assert "(now 'beta')" in third
    assert await surf.env.facts("() => n") == 1


async def test_keys(surf):
    page = f"<input id=a style='{BLOCK}' onkeydown='k = event.key + event.ctrlKey'>"
    step = await surf(page, CLICK, call("press_keys", keys=["q", "é"]))
    assert "it holds 'qé'" in step.feedback[1].text
    hotkey = call("press_keys", keys=["ctrl", "A"], is_hotkey=True)
    step = await surf.env.step((hotkey, call("press_keys", keys=["BackSpace"])))
    assert await surf.env.facts("() => k") == "Backspacefalse"
    assert "it holds ''" in step.feedback[1].text


async def test_scroll_names_the_container_and_its_end(surf):
    page = f"""<div id=box style="{BLOCK}overflow:auto"><div style="height:400px"></div>
      </div><div style="height:2000px"></div>"""
    inside = call("scroll", direction="down", amount=0.5, point_2d=TOP)
    state, text = said(await surf(page, inside))
    assert state == "effect" and "div 'box' is at 31%" in text
    step = await surf.env.step((call("scroll", direction="down"),))
    assert "the page is at" in said(step)[1]
    step = await surf.env.step((call("scroll", direction="right"),))
    assert said(step)[0] == "no_effect" and "no more right" in said(step)[1]


async def test_goto_url_and_go_back(surf, site):
    site.pages["/two"] = "<title>Two</title>"
    step = await surf("<p>one", call("go_back"))
    assert said(step) == ("failed", "went back: there is no earlier page")
    there = call("goto_url", url=" HTTP://site.test/two ")
    step = await surf.env.step((there, call("go_back")))
    assert [line.state for line in step.feedback] == ["effect", "effect"]
    assert "the page is now 'Two'" in step.feedback[0].text
    assert step.observation.tabs[0].url == "http://site.test/page"
    missing = call("goto_url", url="http://site.test/missing")
    assert "HTTP 404" in said(await surf.env.step((missing,)))[1]
    assert step.asked_s > 0


FORBIDDEN = ["file:///etc/hostname", "chrome://version", "javascript:alert(1)", ""]
FORBIDDEN += ["http://localhost:80/", "http://127.1/", "http://other.test/"]


async def test_goto_url_refuses(surf):
    step = await surf("<p>x", *(call("goto_url", url=url) for url in FORBIDDEN))
    for line in step.feedback:
        assert line.state == "failed" and "refused" in line.text
    assert step.observation.tabs[0].url == "http://site.test/page"


WRONG = (
    call("click"),
    call("click", point_2d=[float("nan"), 3]),
    call("click", point_2d=[1, 1001]),
    call("hover"),
    call("drag", start_point_2d=[1, 1]),
    call("click", point_2d=[1, 1], button=["left"]),
    call("write", message=3),
    call("press_keys", keys=["hyper"]),
    call("press_keys", keys=["ctrl+w"]),
    call("scroll", direction="sideways"),
    call("wait", seconds="3"),
    call("done"),
    call("goto_url", url=None),
    call("fly", height=3),
)


async def test_wrong_arguments_are_failed_feedback(surf):
    step = await surf("<p>x", *WRONG)
    assert [line.state for line in step.feedback] == ["failed"] * len(WRONG)
    assert step.cause is None


async def test_a_fade_is_waited_for(surf):
    page = (
        "<style>p { margin-top: 80px; opacity: 0; transition: opacity 300ms }</style>"
        f"<div style='{BLOCK}' onclick='p.style.opacity = 1'></div><p id=p>Menu</p>"
    )
    step = await surf(page, CLICK)
    assert await surf.env.facts("() => getComputedStyle(p).opacity") == "1", said(step)
