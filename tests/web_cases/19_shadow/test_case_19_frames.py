"""Frames: what was hit, what changed and what has focus, also on another site."""

import asyncio

import pytest
import pytest_asyncio

from tests.web_cases.conftest import FRAME_HOST

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

INNER = """<body style="margin:0"><button style="width:150px;height:40px"
  onclick="out.textContent='done'">Inner</button><p id=out></p>
  <input name=q style="position:absolute;left:0;top:80px;width:150px;height:40px">
  <select name=s style="position:absolute;left:0;top:130px;width:150px"><option>alpha
  <option>beta</select><button style="position:absolute;left:0;top:160px;height:30px;
  width:150px">Idle</button>"""
HOLD = """<iframe style="border:5px solid;width:300px;height:250px" src="%s"
  onload="self.came = 1"></iframe>"""
HOSTS = {"same": "", "other": f"http://{FRAME_HOST}"}


@pytest_asyncio.fixture(params=HOSTS, loop_scope="session")
async def framed(surf, request):
    surf.site.pages["/inner"] = INNER
    await surf.open("<body style=margin:0>" + HOLD % f"{HOSTS[request.param]}/inner")
    while not await surf.env.facts("() => self.came || 0"):  # maybe after its page
        await asyncio.sleep(0.02)
    await surf.do("wait", seconds=0.1)
    return surf


async def test_hit_and_change_in_a_frame(framed):
    state, text = await framed.click(80, 25)
    assert state == "effect"
    assert "clicked button 'Inner'" in text and "appeared: 'done'" in text
    assert "focus is on button 'Inner'" in text
    await framed.click(80, 180)
    state, text = await framed.click(80, 180)
    assert (state, text) == ("no_effect", "clicked button 'Idle': nothing changed")


async def test_a_frame_whose_empty_window_was_touched(surf):
    """The page takes over that window, with our names in it, without our listeners."""
    surf.site.pages["/inner"] = INNER
    frame = HOLD % "/inner" + "<script>frames[0].document.title</script>"
    await surf.open("<body style=margin:0>" + frame)
    state, text = await surf.click(80, 25)
    assert state == "effect"
    assert "clicked button 'Inner'" in text and "appeared: 'done'" in text


async def test_write_in_a_frame(framed):
    _, text = await framed.click(80, 105)
    assert "focus is on text field 'q'" in text
    for message in ("hello", "world", "漢字" * 80):
        state, text = await framed.do("write", message=message)
        assert state == "effect" and "into text field 'q': the text is in it" in text
    state, text = await framed.do("press_keys", keys=["BackSpace"])
    assert state == "effect" and "it holds '漢字" in text


async def test_a_list_in_a_frame(framed):
    _, text = await framed.click(80, 145)
    assert "(now 'alpha'), write one of: alpha, beta" in text
    state, text = await framed.do("write", message="beta")
    assert state == "effect" and "'beta' is chosen" in text


async def test_frames_in_frames(surf):
    surf.site.pages["/inner"] = INNER
    surf.site.pages["/middle"] = (
        "<body style=margin:0>" + HOLD % "http://site.test/inner"
    )
    await surf.open("<body style=margin:0>" + HOLD % f"http://{FRAME_HOST}/middle")
    state, text = await surf.click(80, 30)
    assert state == "effect" and "clicked button 'Inner'" in text
    assert "appeared: 'done'" in text


async def test_a_frame_that_goes_elsewhere(surf):
    surf.site.pages["/two"] = "<title>Two</title><p>second"
    surf.site.pages["/one"] = '<a href="/two" style="font-size:40px">Next</a>'
    await surf.open("<body style=margin:0>" + HOLD % f"http://{FRAME_HOST}/one")
    state, text = await surf.click(40, 35)
    assert state == "effect" and "the frame is now 'Two'" in text
