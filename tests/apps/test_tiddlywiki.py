"""TiddlyWiki: a note is written, tagged, found again and corrected."""

import pathlib

import playwright
import pytest

from tests.apps.conftest import APPS

NODE = pathlib.Path(playwright.__file__).parent / "driver" / "node"
PROGRAM = APPS / "tiddlywiki" / "node_modules" / "tiddlywiki" / "tiddlywiki.js"
START = """\
"$0" "$1" "$2" --init server && exec "$0" "$1" "$2" --listen host=127.0.0.1 port="$3"
"""
SAVE = "button[aria-label^='Confirm changes']"
BODY = "iframe.tc-edit-texteditor, textarea.tc-edit-texteditor"
NOTE = "() => $tw.wiki.getTiddler('Shopping list')?.fields ?? null"


@pytest.mark.apps
async def test_a_note_is_written_and_corrected(workplace, serve, opened, port):
    wiki = workplace / "wiki"
    serve(["sh", "-c", START, NODE, PROGRAM, wiki, port])
    hand = await opened("http://wiki.test/", "Keep a shopping list")
    await hand.click("button[aria-label='new tiddler']")
    await hand.write("input.tc-titlebar", "Shopping list")
    await hand.write(BODY, "milk")
    await hand.write(".tc-edit-add-tag input", "home")
    await hand.do("press_keys", keys=["Enter"])
    await hand.click(SAVE)
    assert await hand.facts("() => document.body.innerText.includes('Shopping list')")
    await hand.write(".tc-search input", "milk")
    await hand.click(".tc-search-drop-down a", "Shopping list", may_idle=True)
    await hand.click("[data-tiddler-title='Shopping list'] button[aria-label^=Edit]")
    await hand.write(BODY, "milk, bread\n漢字 🎉")
    await hand.click(SAVE)
    note = await hand.facts(NOTE)
    assert (note["text"], note["tags"]) == ("milk, bread\n漢字 🎉", ["home"])
    (file,) = (wiki / "tiddlers").glob("Shopping list*")
    assert "milk, bread" in file.read_text()
    await hand.end("kept")
