"""One conversion of coordinates: what the model writes -> CSS pixels."""

import copy

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGE = """<body style="margin:0;height:300px"><script>downs = [];
  addEventListener('mousedown', (e) => downs.push([e.clientX, e.clientY]))</script>"""
SAME = [[500, 100], [500.0, 100.0], ["500", "100"], "500,100", "[500, 100]", "500 100"]
SAME += [{"x": 500, "y": 100}, {"x": "500", "y": "100"}, [[500, 100]], "(500, 100)"]
WRONG = [None, "", "500", [500], [500, 100, 600, 200], [[1, 2], [3, 4]], {"x": 5}]
WRONG += [[float("nan"), 5], [5, float("inf")], ["a", "b"], [None, None], [True, False]]
OUTSIDE = [[-1, 5], [5, 1001], [1e9, 5], [1280, 720], "5,-5"]


async def test_every_form_of_a_pair_is_the_same_pixel(surf):
    await surf.open(PAGE)
    for point in SAME:
        given = copy.deepcopy(point)
        state, text = await surf.do("click", point_2d=point)
        assert state == "no_effect" and point == given
    assert await surf.js("downs") == [[200, 30]] * len(SAME)


async def test_corners_are_on_the_page_and_axes_are_not_swapped(surf):
    await surf.open(PAGE)
    for point in ([0, 0], [1000, 1000], [1000, 0], [250, 750]):
        await surf.do("click", point_2d=point)
    assert await surf.js("downs") == [[0, 0], [399, 299], [399, 0], [100, 225]]
    size = (surf.seen.width_px, surf.seen.height_px)
    assert size == (400, 300) and await surf.js("devicePixelRatio") == 1


async def test_what_is_no_point_of_the_screen_fails_and_is_not_clicked(surf):
    await surf.open(PAGE)
    for point in WRONG + OUTSIDE:
        given = repr(point)
        for _ in range(2):
            state, text = await surf.do("click", point_2d=point)
            assert state == "failed" and "from 0 to 1000" in text, point
            assert ("400x300" in text) == (point in OUTSIDE)
        assert repr(point) == given
    state, text = await surf.do("drag", start_point_2d=[1, 1], end_point_2d=[1, 2000])
    assert state == "failed" and "end_point_2d is outside" in text
    for name in ("hover", "drag"):
        state, text = await surf.do(name)
        assert state == "failed" and "missing" in text
    assert await surf.js("downs") == []
