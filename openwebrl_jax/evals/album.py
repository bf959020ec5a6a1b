"""Large pictures of single turns: of a session while it runs, or for a README.

In: turns, or a stored episode. Out: PNGs with the action drawn where it was aimed,
and below it the call and its feedback.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from openwebrl_jax.core.types import Observation, Turn
from openwebrl_jax.evals import gallery, sheet

LATEST = "latest.png"


class Album:
    """Keeps the pictures of one session in a folder.

    `0001.png`, ... show the page as a turn found it, with what the turn did;
    `latest.png` the page as it is now, with where the last action was aimed.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def show(self, now: Observation, turn: Turn | None = None) -> Path:
        """Draws the page after a turn (None = the first) and returns latest.png."""
        marks = ()
        if turn is not None:
            self._count += 1
            frame = gallery.frame(self._count, turn)
            width_px = max(turn.observation.width_px + 2, sheet.FRAME_PX)
            sheet.tile(frame, width_px).save(self._folder / f"{self._count:04}.png")
            marks = frame.marks
        frame = gallery.Frame(title="now", observation=now, marks=marks)
        path, part = self._folder / LATEST, self._folder / f".{LATEST}.part"
        picture = sheet.screenshot(frame, now.width_px + 2, now.height_px)
        picture.save(part, "PNG")
        os.replace(part, path)  # a viewer that watches it never sees half a picture
        return path


def write_episode(
    path: str | os.PathLike[str],
    episode: gallery.Episode,
    turns: Sequence[int],
    *,
    columns: int = 2,
    frame_px: int = 440,
) -> Path:
    """Draws some turns of an episode, by number from 1; one past the last is its end.

    Example: write_episode("docs/episode.png", store.load(folder, name), (3, 4, 5, 6)).
    """
    story = gallery.tell(episode)
    frames = tuple(story.frames[number - 1] for number in turns)
    chosen = dataclasses.replace(story, frames=frames)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.strip(chosen, columns, frame_px).save(path, optimize=True)
    return path
