"""File choosers never open, and are told of (browser-use PR#4681)."""

import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AT = "style='position:absolute;left:0;top:0;width:200px;height:40px'"
PAGES = {
    "a field": f"<input type=file {AT}>",
    "a label": f"<label {AT}>Upload<input type=file hidden></label>",
    "a label for": f"<label for=i {AT}>Upload</label><input id=i type=file hidden>",
    "detached": f"""<button {AT} onclick="const i = document.createElement('input');
      i.type = 'file'; i.click()">Up</button>""",
    "a hidden one": f"<button {AT} onclick='i.click()'>Up</button>"
    "<input id=i type=file style='display:none'>",
    "a picker": f"""<input id=i type=file style='display:none'>
      <button {AT} onclick='i.showPicker()'>Up</button>""",
}


@pytest.mark.parametrize("kind", PAGES)
async def test_a_file_is_asked_for_and_the_tab_goes_on(surf, kind):
    await surf.open(PAGES[kind] + "<p id=p style='margin-top:80px'>")
    start = time.monotonic()
    state, text = await surf.click(100, 20)
    assert "file upload is not available" in text and text.count("file upload") == 1
    assert state == ("effect" if "focus is on" in text else "no_effect")
    assert not surf.seen.is_stale and time.monotonic() - start < 2
    assert (await surf.do("wait", seconds=0))[0] == "no_effect"
