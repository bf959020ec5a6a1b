"""Fields with a format: dates, times, colours, ranges (browser-use#2948)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FIELD = """<style>input { position: absolute; left: 0; top: 0; width: 200px;
  height: 40px }</style><input id=f name=f %s onchange="n = (window.n || 0) + 1">"""

TAKEN = [  # type and limits, text, value
    ("type=date", "2024-03-05", "2024-03-05"),
    ("type=time", "13:45", "13:45"),
    ("type=datetime-local", "2024-03-05T13:45", "2024-03-05T13:45"),
    ("type=month", "2024-03", "2024-03"),
    ("type=week", "2024-W10", "2024-W10"),
    ("type=color", "#FF8000", "#ff8000"),
    ("type=range min=0 max=10", "7", "7"),
    ("type=date min=2024-01-01 max=2024-12-31", "2024-12-31", "2024-12-31"),
]
REFUSED = [  # type and limits, text, a part of what is told
    ("type=date", "5 March 2024", "takes YYYY-MM-DD"),
    ("type=date", "2024-02-30", "takes YYYY-MM-DD"),
    ("type=time", "1:45 pm", "takes HH:MM"),
    ("type=datetime-local", "2024-03-05", "takes YYYY-MM-DDTHH:MM"),
    ("type=month", "March", "takes YYYY-MM"),
    ("type=week", "10", "takes YYYY-Www"),
    ("type=color", "orange", "takes #rrggbb"),
    ("type=range min=0 max=10", "much", "takes a number from 0 to 10"),
    ("type=date min=2024-01-01", "2023-12-31", "YYYY-MM-DD from 2024-01-01"),
    ("type=date max=2024-01-01", "2024-01-02", "YYYY-MM-DD to 2024-01-01"),
    ("type=time min=09:00 max=17:00 step=1800", "09:10", "to 17:00 in steps of 1800"),
]


def stacked(kinds) -> str:
    """A page of one field below the other, each counting its changes."""
    fields = "".join(
        f"<input {kind} style='display:block;width:200px;height:24px;margin:0 0 1px;"
        f"padding:0;border:0' onchange='this.n = (this.n || 0) + 1'>"
        for kind in kinds
    )
    return "<body style=margin:0>" + fields


async def held(surf, number: int):
    field = f"document.querySelectorAll('input')[{number}]"
    return await surf.js(f"[{field}.value, {field}.n || 0]")


async def test_iso_values_are_taken(surf):
    await surf.open(stacked(kind for kind, *_ in TAKEN))
    for number, (kind, text, value) in enumerate(TAKEN):
        await surf.click(50, 25 * number + 12)
        before = await held(surf, number)
        state, told = await surf.do("write", message=text)
        assert state == "effect", (kind, told)
        assert await held(surf, number) == [value, before[1] + 1], kind


async def test_other_texts_are_refused_with_the_format(surf):
    dated = " value=2024-06-06"
    await surf.open(stacked(k + dated * ("date " in k) for k, *_ in REFUSED))
    for number, (kind, text, part) in enumerate(REFUSED):
        await surf.click(50, 25 * number + 12)
        before = await held(surf, number)
        state, told = await surf.do("write", message=text)
        assert (state, part in told) == ("failed", True), (kind, told)
        assert await held(surf, number) == before, kind


async def test_a_range_rounds_and_says_so(surf):
    await surf.open(FIELD % "type=range min=0 max=100 step=10 value=0")
    await surf.click(20, 20)
    state, told = await surf.do("write", message="57")
    assert state == "effect" and "value is now 60" in told or "'60'" in told, told


async def test_pickers_do_not_open_over_the_page(surf):
    for kind in ("date", "color", "time"):
        await surf.open(
            FIELD % f"type={kind}" + "<button style='position:absolute;left:0;top:60px;"
            "width:200px;height:200px' onclick='k=1'>Below</button>"
        )
        await surf.click(190, 20)  # on the picker's own button
        await surf.do("press_keys", keys=["alt+Down"])
        state, told = await surf.click(100, 160)
        assert "clicked button 'Below'" in told
        assert await surf.js("k") == 1, kind


async def test_a_readonly_date_picker_cannot_be_typed_in(surf):
    await surf.open(FIELD % "readonly value=2024-01-01")
    await surf.click(100, 20)
    state, told = await surf.do("write", message="2024-03-05")
    assert state == "failed" and "cannot be edited" in told
