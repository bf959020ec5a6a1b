"""Episodes as pictures that a person can look at: one HTML page, one contact sheet.

In: (Trajectory, Reward) pairs as `rollout.store` loads them. Out: a page that needs no
other file, or a PNG. Each turn shows what the policy saw with a mark where it pointed,
what it thought and called, and what came of it.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from openwebrl_jax.core.types import Observation, Reward, ToolCall, Trajectory, Turn
from openwebrl_jax.rollout import store

Episode = tuple[Trajectory, Reward]
SHOWN_PX = 420  # widest that a screenshot is shown on the page
SMALLEST_PX = 240  # and the least, for a page of MiniWoB's size


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place that a call pointed at, in shares of the picture's sides."""

    x: float
    y: float
    label: str  # the number of the call in its turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line under a picture; kind chooses its colour."""

    kind: str  # thought | call | effect | no_effect | failed | error
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture with what belongs to it: one turn, or the page as it was at the end."""

    title: str
    observation: Observation
    marks: tuple[Mark, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An episode ready to be shown. Made by `tell`, eaten by page and sheet."""

    verdict: str  # success | failure | void
    heading: str
    facts: str
    frames: tuple[Frame, ...]


def pick(
    played: Iterable[Mapping[str, Any]], folder: str | os.PathLike[str], count: int
) -> list[Episode]:
    """Loads some episodes that differ: of each page and outcome one, then a second.

    Args:
      played: `{task, success, trajectory}` each, as an evaluation lists them.
      folder: the store that holds the trajectories.
      count: how many at most.
    """
    seen: Counter[tuple[str, Any]] = Counter()
    ranked = []
    for place, one in enumerate(played):
        kind = (str(one["task"]).rpartition("/")[0], one["success"])
        ranked.append((seen[kind], place, one["trajectory"]))
        seen[kind] += 1
    return [store.load(folder, name) for _, _, name in sorted(ranked)[:count]]


def tell(episode: Episode) -> Story:
    """An episode as frames and lines of text."""
    trajectory, reward = episode
    frames = [frame(number, turn) for number, turn in enumerate(trajectory.turns, 1)]
    if trajectory.final is not None:
        answer = [Note(kind="call", text=f"answer: {trajectory.answer}")]
        notes = tuple(answer if trajectory.answer else [])
        frames.append(
            Frame(title="at the end", observation=trajectory.final, notes=notes)
        )
    return Story(
        verdict=verdict(reward),
        heading=trajectory.task.intent or trajectory.task.id,
        facts=_facts(trajectory, reward),
        frames=tuple(frames),
    )


def verdict(reward: Reward) -> str:
    """success (a reward of 1 or more), failure, or void."""
    if not reward.is_valid:
        return "void"
    return "success" if reward.value >= 1 else "failure"


def points(call: ToolCall) -> list[tuple[float, float]]:
    """Every point of a call, in shares of the sides; other arguments are left out."""
    return [
        (value[0] / 1000, value[1] / 1000)
        for value in call.arguments.values()
        if isinstance(value, Sequence) and not isinstance(value, str)
        if len(value) == 2
        if all(isinstance(x, int | float) and 0 <= x <= 1000 for x in value)
    ]


def call_text(call: ToolCall) -> str:
    """A call as one would write it: click(point_2d=[480, 520])."""
    arguments = (
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in call.arguments.items()
    )
    return f"{call.name}({', '.join(arguments)})"


def write_page(
    path: str | os.PathLike[str], episodes: Iterable[Episode], *, title: str
) -> Path:
    """Writes one self-contained HTML page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # pages and replies are strangers' text
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"picture": _picture, "shown_px": _shown_px}
    stories = [tell(episode) for episode in episodes]
    text = environment.get_template("gallery.html").render(
        title=title, stories=stories, counts=_counts(stories)
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def frame(number: int, turn: Turn) -> Frame:
    """A turn as the page that it found, with its calls and what came of them."""
    notes = [Note(kind="thought", text=turn.thought.strip())] if turn.thought else []
    for index, call in enumerate(turn.calls):
        notes.append(Note(kind="call", text=call_text(call)))
        if index < len(turn.feedback):
            feedback = turn.feedback[index]
            notes.append(Note(kind=feedback.state, text=feedback.text))
    if turn.parse_error:
        notes.append(Note(kind="error", text=f"not understood: {turn.parse_error}"))
        notes.append(Note(kind="error", text=turn.reply_text.strip()))
    marks = tuple(
        Mark(x=x, y=y, label=str(index))
        for index, call in enumerate(turn.calls, 1)
        for x, y in points(call)
    )
    return Frame(
        title=f"turn {number}",
        observation=turn.observation,
        marks=marks,
        notes=tuple(notes),
    )


def _facts(trajectory: Trajectory, reward: Reward) -> str:
    """Task, ending and reward in one line."""
    ending = trajectory.cause.value
    if trajectory.detail:
        ending += f" ({trajectory.detail})"
    parts = ", ".join(f"{name} {value:g}" for name, value in reward.parts.items())
    worth = f"reward {reward.value:g}" if reward.is_valid else "no reward"
    if reward.is_valid and parts:
        worth += f" ({parts})"
    return f"{trajectory.task.id} · ended by {ending} · {worth}"


def _counts(stories: Sequence[Story]) -> Mapping[str, int]:
    """How many of each verdict; those that there are."""
    found = [story.verdict for story in stories]
    kinds = ("success", "failure", "void")
    return {kind: found.count(kind) for kind in kinds if kind in found}


def _picture(observation: Observation) -> str:
    """The PNG inside the page, as it is."""
    return "data:image/png;base64," + base64.b64encode(observation.screenshot).decode()


def _shown_px(observation: Any) -> int:
    """Width on the page; small pages are enlarged, large ones shrunk."""
    return min(max(observation.width_px, SMALLEST_PX), SHOWN_PX)
