import numpy as np
from PIL import Image, ImageColor

from openwebrl_jax.evals import album, sheet

MARK = ImageColor.getrgb(sheet.MARK)


def marked(path) -> tuple[tuple[int, int], np.ndarray]:
    """Size of a picture, and where its marks are."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture)
    return picture.size, np.argwhere((pixels == MARK).all(-1))


def test_a_session_is_numbered_and_its_newest_page_has_a_fixed_name(tmp_path, episodes):
    (trajectory, _) = episodes[0]
    kept = album.Album(tmp_path / "a")
    latest = kept.show(trajectory.turns[0].observation)
    assert latest == tmp_path / "a" / "latest.png" and not len(marked(latest)[1])
    kept.show(trajectory.final, trajectory.turns[0])
    assert sorted(path.name for path in latest.parent.iterdir()) == [
        "0001.png",
        "latest.png",
    ]
    size, marks = marked(latest)
    assert size == (162, 226)
    row, column = marks.mean(0)  # the click was at 240, 560 of 1000
    assert abs(column - 1 - 0.24 * 160) < 1.5 and abs(row - 1 - 0.56 * 224) < 1.5
    assert len(marked(tmp_path / "a" / "0001.png")[1])


def test_some_turns_of_an_episode_are_one_picture(tmp_path, episodes):
    path = album.write_episode(tmp_path / "b" / "e.png", episodes[0], [1, 2])
    size, marks = marked(path)
    assert len(marks) and size[0] > 2 * 440
