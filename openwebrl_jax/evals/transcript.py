"""A session as a person reads it: line by line, and as pictures in an album.

In: what `rollout.manual` tells its audience. Out: lines of text. A replay shows stored
and new feedback beside each other.
"""

import itertools
import json
import textwrap
from collections.abc import Callable, Sequence

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.evals import album

_COLUMN = 56  # characters of each side when feedback is compared


class Transcript:
    """The audience of one session; `tell` takes a line, such as `print`."""

    def __init__(self, tell: Callable[[str], None], pictures: album.Album):
        self._tell = tell
        self._pictures = pictures

    def open(self, task: types.Task, page: types.Observation) -> None:
        """Tells the task and the first page."""
        self._tell(f"task    {task.intent}")
        self._tell_tabs(page)
        self._pictures.show(page)

    def turn(self, turn: types.Turn, page: types.Observation) -> None:
        """Tells what a turn did, and the page that it left."""
        self._pictures.show(page, turn)
        for line in turn.feedback:
            self._tell(f"{line.state:<10} {line.text}")
        self._tell_tabs(page)

    def say(self, text: str) -> None:
        """Tells an answer as it is."""
        self._tell(text)

    def refuse(self, why: str) -> None:
        """Tells what was wrong."""
        self._tell(f"refused {why}")

    def repeat(self, number: int, stored: types.Turn, is_same_page: bool) -> None:
        """Tells whether the page is that of the stored turn."""
        told = "same page" if is_same_page else "the page differs"
        self._tell(f"turn {number}  {told}")
        if not stored.calls:
            self._tell(f"  not understood: {stored.parse_error}")

    def compare(
        self, stored: types.Turn, made: types.Turn, page: types.Observation
    ) -> None:
        """Tells stored and new feedback beside each other."""
        self._pictures.show(page, made)
        pairs = itertools.zip_longest(stored.calls, stored.feedback, made.feedback)
        for call, old, new in pairs:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            self._tell(f"  {call.name} {arguments}")
            sign = "=" if old == new else "≠"
            sides = _side(old), _side(new)
            for left, right in itertools.zip_longest(*sides, fillvalue=""):
                self._tell(f"  {sign} {left:<{_COLUMN}} | {right}".rstrip())
                sign = " "

    def close(self, made: types.Trajectory) -> None:
        """Tells how it ended."""
        is_left = made.cause is Cause.CANCELLED
        facts = json.dumps(dict(made.facts)) if made.facts else ""
        self._tell_end("ended", "left" if is_left else made.cause, made.answer, facts)

    def verdict(self, stored: types.Trajectory, differ: int) -> None:
        """Tells how the stored one ended, and how far the two differ."""
        self._tell_end("stored", stored.cause, stored.answer)
        self._tell(f"{differ} lines of feedback differ")

    def _tell_end(self, which: str, cause: str, answer: str, facts: str = "") -> None:
        quoted = json.dumps(answer, ensure_ascii=False) if answer else ""
        words = (str(cause), quoted, facts)
        self._tell(f"{which:<7} {' '.join(word for word in words if word)}")

    def _tell_tabs(self, page: types.Observation) -> None:
        for index, tab in enumerate(page.tabs):
            mark = "*" if index == page.active_tab else " "
            self._tell(f"tab {index}{mark}  {tab.url}  {tab.title}")


def _side(line: types.Feedback | None) -> Sequence[str]:
    said = f"{line.state}: {line.text}" if line else "(not run)"
    return textwrap.wrap(said, _COLUMN) or [""]
