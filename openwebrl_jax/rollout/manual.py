"""An environment driven by hand, or by the calls of a stored trajectory.

In: a config and a task with lines as `agent.typed` reads them, or the path of a
trajectory. Out: an Audience that is told what happens (`evals.transcript`), and a
Trajectory that can be stored and replayed.
"""

import asyncio
import contextlib
import itertools
import json
import pathlib
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

from openwebrl_jax.agent import typed
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rollout import build, store
from openwebrl_jax.tasks import miniwob

HELP = """\
One call a line, or several as JSON; points go from 0 to 1000 on each axis.

{tools}

facts SCRIPT  what a page function says: facts () => document.title
help [tool]   this list; quit ends the session"""
UNJUDGED = types.Reward(value=0.0, parts={}, is_valid=False)


class Audience(Protocol):
    """Whom a session is shown to as it goes."""

    def open(self, task: types.Task, page: types.Observation) -> None:
        """The first page is there."""

    def turn(self, turn: types.Turn, page: types.Observation) -> None:
        """A turn was taken, and left this page."""

    def say(self, text: str) -> None:
        """An answer to a line that takes no turn."""

    def refuse(self, why: str) -> None:
        """A line was wrong, and nothing was done."""

    def repeat(self, number: int, stored: types.Turn, is_same_page: bool) -> None:
        """A replay has come to a stored turn, numbered from 1."""

    def compare(
        self, stored: types.Turn, made: types.Turn, page: types.Observation
    ) -> None:
        """The calls of that turn were run again, and left this page."""

    def close(self, made: types.Trajectory) -> None:
        """It is over."""

    def verdict(self, stored: types.Trajectory, differ: int) -> None:
        """A replay is over; so many lines of feedback differ."""


def task_of(name: str, url: str, sites: Iterable[str]) -> types.Task:
    """The task of `miniwob/PAGE/SEED`, or else a page to look around on."""
    if not name:
        return types.Task(
            id="browse",
            intent="look around",
            start_url=url,
            max_turns=1000,
            sites=tuple(sites),
        )
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != miniwob.SUITE or not parts[2].isdecimal():
        raise ValueError(f"--task={name!r}; wanted the form miniwob/click-tab/7")
    return miniwob.make_task(parts[1], int(parts[2]), max_turns=1000)


async def drive(
    config: Any,
    task: types.Task,
    lines: Iterable[str],
    audience: Audience,
    ports: Mapping[str, int] | None = None,
) -> types.Trajectory:
    """Does what the lines say until they end, or the episode does."""
    async with _opened(config, task, ports) as play:
        audience.open(play.task, play.page)
        async for line in _awaited(lines):
            if line.strip() == "quit":
                break
            try:
                turn = await _obey(line.strip(), play, audience)
            except ValueError as error:
                audience.refuse(" ".join(str(error).split()))
                continue
            if turn is not None:
                audience.turn(turn, play.page)
            if play.cause is not None:
                break
        made = play.trajectory()
        audience.close(made)
        return made


async def replay(config: Any, path: str, audience: Audience) -> int:
    """Runs a stored trajectory's calls on a new environment, and compares.

    Returns how many feedback lines differ.
    """
    file = pathlib.Path(path)
    stored, _ = store.load(file.parent, file.stem)
    first = stored.turns[0].observation if stored.turns else stored.final
    if first is not None:
        config.web.width_px, config.web.height_px = first.width_px, first.height_px
    differ = 0
    async with _opened(config, stored.task, None) as play:
        audience.open(play.task, play.page)
        for number, turn in enumerate(stored.turns, 1):
            is_same_page = play.page.screenshot == turn.observation.screenshot
            audience.repeat(number, turn, is_same_page)
            if not turn.calls:
                continue
            if play.cause is not None:
                audience.say("  the episode has ended here, the stored one went on")
                break
            made = await play.step(turn.calls)
            audience.compare(turn, made, play.page)
            pairs = itertools.zip_longest(turn.feedback, made.feedback)
            differ += sum(old != new for old, new in pairs)
        audience.close(play.trajectory())
        audience.verdict(stored, differ)
    return differ


def save(
    folder: str | pathlib.Path,
    trajectory: types.Trajectory,
    reward: types.Reward = UNJUDGED,
) -> pathlib.Path:
    """Stores a session like any other trajectory, and returns its path."""
    kept = pathlib.Path(folder) / store.FOLDER
    return kept / f"{store.save(kept, trajectory, reward)}.zip"


def ports(named: Iterable[str]) -> dict[str, int]:
    """Local sites of somebody else: ["app.test:8080"] -> {"app.test": 8080}."""
    found = {}
    for one in named:
        name, _, port = one.rpartition(":")
        if not name or not port.isdecimal():
            raise ValueError(f"--local={one!r}; wanted the form app.test:8080")
        found[name] = int(port)
    return found


class Play:
    """What was done on an environment so far."""

    def __init__(self, task: types.Task, place: types.Env, page: types.Observation):
        self.task, self.place, self.page = task, place, page
        self.turns: list[types.Turn] = []
        self.cause: Cause | None = None  # None = it goes on
        self.answer = ""
        self.facts: Mapping[str, Any] = {}

    async def step(self, calls: tuple[types.ToolCall, ...]) -> types.Turn:
        """Runs the calls of one turn and keeps it."""
        with _in_words():
            step = await self.place.step(calls)
        turn = types.Turn(
            observation=self.page,
            segments=(types.Segment(role="user", text=""),),
            reply_text="",
            thought="",
            calls=calls,
            feedback=step.feedback,
        )
        self.turns.append(turn)
        self.page, self.cause = step.observation, step.cause
        self.answer, self.facts = step.answer, step.facts
        return turn

    def trajectory(self) -> types.Trajectory:
        """All of it as a record; a play that was left is CANCELLED."""
        return types.Trajectory(
            task=self.task,
            system_segment=types.Segment(role="system", text=""),
            system_ids=(),
            turns=tuple(self.turns),
            final=self.page,
            answer=self.answer,
            facts=self.facts,
            cause=self.cause or Cause.CANCELLED,
        )


@contextlib.asynccontextmanager
async def _opened(
    config: Any, task: types.Task, ports: Mapping[str, int] | None
) -> AsyncIterator[Play]:
    """A play on the task's first page; all of it ends afterwards."""
    runner = build.make_runner(config)
    await runner.start(ports)
    try:
        place = runner.lend(task)
        try:
            with _in_words():
                task, page = await place.reset(task)
            yield Play(task, place, page)
        finally:
            await place.close()
    finally:
        await runner.close()


@contextlib.contextmanager
def _in_words():
    """A Failure is one line for a person."""
    try:
        yield
    except Failure as failure:
        raise ValueError(f"{failure.cause}: {failure.detail}") from failure


async def _obey(line: str, play: Play, audience: Audience) -> types.Turn | None:
    """Carries out one line; None = it took no turn."""
    word, _, rest = line.partition(" ")
    if word == "help":
        audience.say(typed.usage(rest) if rest else HELP.format(tools=typed.usage()))
    elif word == "facts":
        with _in_words():
            found = await play.place.facts(rest)
        audience.say(json.dumps(found, ensure_ascii=False))
    elif line:
        return await play.step(typed.read(line))
    return None


async def _awaited(lines: Iterable[str]) -> AsyncIterator[str]:
    """The lines as they come, while the browser's events are seen to.

    A thread waits for them: what a person has not typed yet must not hold up the end
    of the process.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    asked = threading.Semaphore(0)

    def wait() -> None:
        source = iter(lines)
        while asked.acquire():
            line = next(source, None)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, line)
            if line is None:
                return

    threading.Thread(target=wait, daemon=True).start()
    while True:
        asked.release()
        line = await queue.get()
        if line is None:
            return
        yield line
