"""Downloads and PDFs (playwright-mcp#1395, #1768, #430)."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FULL = "position:fixed; inset:0"
TOLD = "download 'a.bin' (1234 bytes) discarded, files are not kept"
PDF = """%PDF-1.1
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj
trailer<</Root 1 0 R>>"""


@pytest.fixture
def files(site):
    attachment = {"Content-Disposition": "attachment; filename=a.bin"}
    site.pages["/file"] = (200, attachment, "x" * 1234)
    site.pages["/slow"] = (200, {"Sleep": "0.5"}, "x" * 1234)
    site.pages["/paper.pdf"] = (200, {"Content-Type": "application/pdf"}, PDF)


async def is_usable(surf):
    """The page is as it was, and answers."""
    assert [tab.title for tab in surf.seen.tabs] == ["start"]
    assert surf.seen.active_tab == 0
    return await surf.js("kept")


LINKS = {
    "link": f"<a href=/file style='{FULL}'>x</a>",
    "tab": f"<a href=/file target=_blank style='{FULL}'>x</a>",
    "attribute": f"<a href=/page download=a.bin style='{FULL}'>x</a>",
    "slow": f"<a href=/slow download=a.bin style='{FULL}'>x</a>",
    "slow and a message": f"""<a href=/slow download=a.bin onclick="alert('m')"
      style='{FULL}'>x</a>""",
    "slow and an address": f"""<a id=a href=/slow download=a.bin></a><button onclick="
      a.click(); history.replaceState(0, '', '#done')" style='{FULL}'>x</button>""",
    "slow in a frame": f"""<iframe style='{FULL}' srcdoc="<a href=/slow download=a.bin
      style='{FULL}'>x</a>"></iframe>""",
    "script": f"<button style='{FULL}' onclick=\"location.href = '/file'\">x</button>",
}


@pytest.mark.parametrize("kind", LINKS)
async def test_a_click_that_downloads(surf, files, kind):
    await surf.open(f"<title>start</title><script>kept = 7</script>{LINKS[kind]}")
    state, text = await surf.click(50, 50)
    assert state == "effect" and "download 'a.bin' (" in text and "discarded" in text
    if kind in ("link", "script"):
        assert TOLD in text
    assert await is_usable(surf) == 7


async def test_what_a_page_makes_itself(surf):
    await surf.open(
        f"""<title>start</title><a id=a download=b.txt style='{FULL}'>x</a><script>
        kept = 1; a.href = URL.createObjectURL(new Blob(['x'.repeat(77)]))</script>"""
    )
    state, text = await surf.click(50, 50)
    assert state == "effect" and "download 'b.txt' (" in text
    assert await is_usable(surf) == 1


async def test_a_goto_that_downloads(surf, files):
    await surf.open("<title>start</title><script>kept = 3</script>")
    state, text = await surf.do("goto_url", url="http://site.test/file")
    assert state == "failed" and TOLD in text and "the page stayed" in text
    assert await is_usable(surf) == 3
    await surf.do("goto_url", url="http://nowhere.invalid/")
    state, text = await surf.do("goto_url", url="http://site.test/file")
    assert state == "failed" and TOLD in text
    assert surf.seen.tabs[0].title == "start"


async def test_a_start_that_downloads_is_the_sites_fault(surf, files, site):
    from openwebrl_jax.core.causes import Failure, Owner
    from tests.web import toys

    with pytest.raises(Failure) as caught:
        await surf.env.reset(toys.make_task("/file"))
    assert caught.value.cause.owner is Owner.SITE


async def test_a_pdf_is_shown_and_told(surf, files):
    await surf.open(f"<title>start</title><a href=/paper.pdf style='{FULL}'>x</a>")
    state, text = await surf.click(50, 50)
    assert state == "effect" and "it is a PDF" in text
    assert surf.seen.tabs[0].url == "http://site.test/paper.pdf"
    assert (await surf.do("go_back"))[0] == "effect"
    assert surf.seen.tabs[0].title == "start"
    state, text = await surf.do("goto_url", url="http://site.test/paper.pdf")
    assert state == "effect" and "it is a PDF" in text
