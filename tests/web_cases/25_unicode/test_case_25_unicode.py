"""Text of any script arrives as it was written."""

import io
import shutil
import subprocess
import unicodedata

import pytest
from PIL import Image, ImageChops

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AT = "style='position:absolute;left:0;top:0;width:300px;height:90px'"
FIELDS = {
    "textarea": f"<textarea id=a {AT}></textarea>",
    "input": f"<input id=a {AT}>",
    "rich": f"<div id=a contenteditable {AT}></div>",
}
TEXTS = [
    "漢字 🎉👨‍👩‍👧 שלום é",
    "عربي",
    "e\u0301o\u0302",
    "ไทย हिन्दी",
    "“quoted” – 10 €",
]


@pytest.mark.parametrize("kind", FIELDS)
async def test_any_text_is_in_it(surf, kind):
    await surf.open(FIELDS[kind])
    await surf.click(100, 40)
    for text in [*TEXTS, " ".join(TEXTS) * 4]:
        state, told = await surf.do("write", message=text)
        assert state == "effect" and told.endswith("the text is in it"), told
        held = await surf.js("a.value ?? a.innerText")
        normal = [unicodedata.normalize("NFC", one) for one in (held, text)]
        assert normal[0].replace("\xa0", " ") == normal[1]


async def test_line_breaks_and_tabs_in_a_text_area(surf):
    await surf.open(FIELDS["textarea"])
    await surf.click(100, 40)
    text = "漢字\n\tשלום é\n"
    state, told = await surf.do("write", message=text)
    assert state == "effect" and "the text is in it" in told
    assert await surf.js("a.value") == text


async def test_the_page_may_compose_what_was_typed_apart(surf):
    body = FIELDS["input"].replace(
        "<input", "<input oninput='this.value = this.value.normalize(\"NFD\")'"
    )
    await surf.open(body)
    await surf.click(100, 40)
    state, told = await surf.do("write", message="é")
    assert state == "effect" and "the text is in it" in told


LETTERS = ["漢字", "한국", "🎉🎈"]


def is_known(letter):
    """True iff some font of this machine has it; `scripts/setup` sees to that."""
    asked = ["fc-list", f":charset={ord(letter):x}"]
    return bool(subprocess.run(asked, capture_output=True, check=True).stdout)


@pytest.mark.skipif(not shutil.which("fc-list"), reason="fontconfig is not installed")
async def test_letters_are_drawn_and_are_not_all_the_same_box(surf):
    if missing := [letter for letter in "".join(LETTERS) if not is_known(letter)]:
        pytest.skip(f"no font of this machine has {missing}")
    style = "<style>p { position: fixed; margin: 0; font: 40px sans-serif }</style>"
    await surf.open(
        style
        + "".join(
            f"<p style='left:{60 * column}px; top:{60 * row}px'>{letter}"
            for column, pair in enumerate(LETTERS)
            for row, letter in enumerate(pair)
        )
    )
    image = Image.open(io.BytesIO(surf.seen.screenshot)).convert("RGB")
    for x in (0, 60, 120):
        upper, lower = (image.crop((x, y, x + 60, y + 60)) for y in (0, 60))
        assert ImageChops.difference(upper, lower).getbbox() is not None
