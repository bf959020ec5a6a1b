"""The contact sheet: everything on one picture, marks where the clicks were."""

import numpy as np
from PIL import Image, ImageColor

from openwebrl_jax.evals import gallery, sheet

MARK = ImageColor.getrgb(sheet.MARK)


def load(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


def test_the_sheet_holds_all_episodes(tmp_path, episodes):
    path = sheet.write_sheet(tmp_path / "a" / "sheet.png", episodes)
    pixels = load(path)
    for colour in (sheet.GREEN, sheet.RED, sheet.GREY):
        assert (pixels == ImageColor.getrgb(colour)).all(-1).sum() > 300
    widest = sheet.ACROSS * (sheet.FRAME_PX + sheet.GAP_PX) + 3 * sheet.GAP_PX + 6
    assert pixels.shape[1] <= widest


def test_a_mark_stands_where_the_click_was(episodes):
    (frame, _) = gallery.tell(episodes[0]).frames
    picture = np.asarray(sheet.screenshot(frame))
    rows, columns = np.nonzero((picture == MARK).all(-1))
    height, width = picture.shape[0] - 2, picture.shape[1] - 2
    assert abs(columns.mean() - 1 - 0.24 * width) < 1.5
    assert abs(rows.mean() - 1 - 0.56 * height) < 1.5


def test_long_notes_are_cut_and_short_ones_are_whole():
    assert sheet.wrap("click Submit", "call") == ["click Submit"]
    lines = sheet.wrap("word " * 200, "thought")
    assert len(lines) == sheet.NOTE_LINES
    letters = sheet.font(12, "plain")
    short = sheet.shorten("x" * 500, letters, sheet.FRAME_PX)
    assert short.endswith("…") and letters.getlength(short) <= sheet.FRAME_PX


def test_a_sheet_of_nothing_is_a_picture(tmp_path):
    assert load(sheet.write_sheet(tmp_path / "sheet.png", [])).ndim == 3
