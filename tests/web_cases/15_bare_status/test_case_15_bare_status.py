"""Answers without a page: 204, an empty 500, and a 404 that has one."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# path -> (answer, state, what is told, title after)
ANSWERS = {
    "/204": ((204, {}, ""), "failed", "HTTP 204 without a page", "start"),
    "/500": ((500, {}, ""), "failed", "HTTP 500", "start"),
    "/404": ((404, {}, "<title>Lost</title>"), "effect", "HTTP 404", "Lost"),
    "/503": ((503, {}, "<title>Busy</title>"), "effect", "HTTP 503", "Busy"),
}


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("way", ["goto", "click"])
async def test_the_status_is_told_and_never_ends_the_episode(surf, site, path, way):
    site.pages[path], state, told, title = ANSWERS[path]
    await surf.open(
        f"<title>start</title><a href={path} style='position:fixed; inset:0'>Go</a>"
    )
    if way == "goto":
        said = await surf.do("goto_url", url=f"http://site.test{path}")
    else:
        said = await surf.click(50, 50)
        state = "effect" if path == "/204" else state  # the link took the focus
    assert said[0] == state and told in said[1], said
    assert said[1].count("HTTP") == 1
    assert surf.step.cause is None and surf.seen.tabs[0].title == title
