"""A contact sheet: some episodes as one PNG, a row or more of frames for each.

In: (Trajectory, Reward) pairs. Out: a picture to look at without a browser, and to
put into a README. Everything is a small picture; the sheet is pictures below and
beside one another.
"""

import functools
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from openwebrl_jax.evals import gallery

ACROSS = 6  # frames side by side, of one episode or of several
FRAME_PX = 250
PICTURE_PX = 320  # greatest height of a screenshot
GAP_PX = 18
NOTE_LINES = 4  # of one note, the rest is cut

INK, SOFT, WHITE, PAPER, MARK = "#1c2430", "#667085", "#ffffff", "#eef0f4", "#e0218a"
GREEN, GREY, RED = "#1a7f4b", "#8a94a3", "#c0392b"
COLOURS = {
    "success": GREEN,
    "failure": RED,
    "void": GREY,
    "thought": SOFT,
    "call": INK,
    "effect": GREEN,
    "no_effect": GREY,
    "failed": RED,
    "error": RED,
}
SIGNS = {"effect": "✓ ", "no_effect": "– ", "failed": "✗ ", "error": "✗ "}
FACES = {
    "plain": "DejaVuSans.ttf",
    "bold": "DejaVuSans-Bold.ttf",
    "thought": "DejaVuSans-Oblique.ttf",
    "call": "DejaVuSansMono.ttf",
}


def write_sheet(
    path: str | os.PathLike[str], episodes: Iterable[gallery.Episode]
) -> Path:
    """Writes the episodes as one PNG, short ones beside one another."""
    rows: list[list[Image.Image]] = []
    left = 0  # columns that the last row still has
    for story in map(gallery.tell, episodes):
        columns = min(max(len(story.frames), 2), ACROSS)
        if columns > left:
            rows.append([])
            left = ACROSS
        rows[-1].append(strip(story, columns))
        left -= columns
    whole = below([beside(row, GAP_PX, PAPER) for row in rows], GAP_PX, PAPER)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    margin(whole, GAP_PX, PAPER).save(path, optimize=True)
    return path


def strip(story: gallery.Story, columns: int, frame_px: int = FRAME_PX) -> Image.Image:
    """One episode: what it was, how it ended, its frames in rows."""
    colour = COLOURS[story.verdict]
    width = columns * (frame_px + GAP_PX) - GAP_PX
    tiles = [tile(frame, frame_px) for frame in story.frames]
    rows = [tiles[first : first + columns] for first in range(0, len(tiles), columns)]
    head = [
        line(f"{story.verdict.upper()}   {story.heading}", 15, "bold", colour, width),
        line(story.facts, 12, "plain", SOFT, width),
    ]
    body = margin(below([*head, *(beside(r, GAP_PX) for r in rows)], 8), GAP_PX, WHITE)
    return beside([Image.new("RGB", (6, body.height), colour), body], 0)


def tile(frame: gallery.Frame, width_px: int = FRAME_PX) -> Image.Image:
    """A screenshot with its marks, its title above and its notes below."""
    notes = [
        line(text, 12, note.kind, COLOURS[note.kind], width_px)
        for note in frame.notes
        for text in wrap(SIGNS.get(note.kind, "") + note.text, note.kind, width_px)
    ]
    title = line(frame.title, 11, "bold", SOFT, width_px)
    picture = screenshot(frame, width_px, PICTURE_PX * width_px // FRAME_PX)
    return below([title, picture, *notes], 2)


def screenshot(
    frame: gallery.Frame, width_px: int = FRAME_PX, height_px: int = PICTURE_PX
) -> Image.Image:
    """The picture at the sheet's scale, framed, with marks where it clicked."""
    source = Image.open(io.BytesIO(frame.observation.screenshot)).convert("RGB")
    scale = min((width_px - 2) / source.width, height_px / source.height)
    size = (round(source.width * scale), round(source.height * scale))
    picture = margin(source.resize(size, Image.Resampling.LANCZOS), 1, "#d0d5dd")
    draw = ImageDraw.Draw(picture)
    for mark in frame.marks:
        centre = (1 + mark.x * size[0], 1 + mark.y * size[1])
        for radius, width, colour in ((11, 5, WHITE), (10, 3, MARK)):
            draw.circle(centre, radius, outline=colour, width=width)
        if len(frame.marks) > 1:
            place = (centre[0] + 11, centre[1] - 18)
            halo = {"stroke_width": 2, "stroke_fill": WHITE}
            draw.text(place, mark.label, MARK, font(12, "bold"), **halo)
    return picture


def line(
    text: str, size_px: int, face: str, colour: str, width_px: int = FRAME_PX
) -> Image.Image:
    """One line of text, cut where the width ends."""
    letters = font(size_px, face)
    text = shorten(" ".join(text.split()), letters, width_px)
    picture = Image.new("RGB", (width_px, size_px + 5), WHITE)
    ImageDraw.Draw(picture).text((0, 1), text, colour, letters)
    return picture


def wrap(text: str, face: str, width_px: int = FRAME_PX) -> list[str]:
    """Text in lines as wide as a frame; the last one ends in … if there was more."""
    letters, lines = font(12, face), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if letters.getlength(longer) <= width_px or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > NOTE_LINES:
        rest = " ".join(lines[NOTE_LINES - 1 :])
        lines = [*lines[: NOTE_LINES - 1], rest]
    return lines


def shorten(text: str, letters: ImageFont.FreeTypeFont, width_px: int) -> str:
    """The text, or as much of it with … behind as the width takes."""
    text = text[:400]
    if letters.getlength(text) <= width_px:
        return text
    while text and letters.getlength(text + "…") > width_px:
        text = text[:-1]
    return text + "…"


def below(
    pictures: Sequence[Image.Image], gap_px: int, colour: str = WHITE
) -> Image.Image:
    """Pictures below one another."""
    return _laid(pictures, gap_px, colour, axis=1)


def beside(
    pictures: Sequence[Image.Image], gap_px: int, colour: str = WHITE
) -> Image.Image:
    """Pictures beside one another, their upper edges level."""
    return _laid(pictures, gap_px, colour, axis=0)


def margin(picture: Image.Image, width_px: int, colour: str) -> Image.Image:
    """The picture with a margin on all sides."""
    size = (picture.width + 2 * width_px, picture.height + 2 * width_px)
    framed = Image.new("RGB", size, colour)
    framed.paste(picture, (width_px, width_px))
    return framed


def _laid(
    pictures: Sequence[Image.Image], gap_px: int, colour: str, axis: int
) -> Image.Image:
    """Pictures one after the other along an axis; none are one pixel."""
    size = [
        max((picture.size[side] for picture in pictures), default=1) for side in (0, 1)
    ]
    size[axis] = max(
        sum(picture.size[axis] + gap_px for picture in pictures) - gap_px, 1
    )
    whole = Image.new("RGB", (size[0], size[1]), colour)
    place = [0, 0]
    for picture in pictures:
        whole.paste(picture, (place[0], place[1]))
        place[axis] += picture.size[axis] + gap_px
    return whole


@functools.cache
def font(size_px: int, face: str) -> ImageFont.FreeTypeFont:
    """A face of DejaVu, which comes with matplotlib and so is on every machine."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(folder / FACES.get(face, FACES["plain"]), size_px)
