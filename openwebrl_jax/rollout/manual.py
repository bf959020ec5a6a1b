"""An environment driven by hand, or by the calls of a stored trajectory.

In: a config and a task with lines as `agent.typed` reads them, or the path of a
trajectory. Out: what happened, told line by line, and a Trajectory that can be stored
and replayed.
"""

import asyncio
import contextlib
import itertools
import json
import pathlib
import textwrap
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

from openwebrl_jax.agent import typed
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rollout import build, store
from openwebrl_jax.tasks import miniwob

Tell = Callable[[str], None]
Show = Callable[[types.Observation, types.Turn | None], object]  # draws the page

HELP = """\
One call a line, or several as JSON; points go from 0 to 1000 on each axis.

{tools}

facts SCRIPT  what a page function says: facts () => document.title
help [tool]   this list; quit ends the session"""
UNJUDGED = types.Reward(value=0.0, parts={}, is_valid=False)
_COLUMN = 56  # characters of each side when feedback is compared


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
    tell: Tell,
    show: Show,
    ports: Mapping[str, int] | None = None,
) -> types.Trajectory:
    """Does what the lines say until they end, or the episode does."""
    async with _opened(config, task, ports) as (place, task, page):
        play = Play(task, place, page)
        tell(f"task    {task.intent}")
        _tell_page(page, tell)
        show(page, None)
        async for line in _awaited(lines):
            if line.strip() == "quit":
                break
            try:
                step = await _obey(line.strip(), play, tell)
            except ValueError as error:
                tell(f"refused {' '.join(str(error).split())}")
                continue
            if step is not None:
                show(step.observation, play.turns[-1])
                _tell_step(step, tell)
                _tell_page(step.observation, tell)
            if play.cause is not None:
                break
        tell(play.told())
        return play.trajectory()


async def replay(config: Any, path: str, tell: Tell, show: Show) -> int:
    """Runs a stored trajectory's calls on a new environment, and compares.

    Returns how many feedback lines differ.
    """
    file = pathlib.Path(path)
    stored, _ = store.load(file.parent, file.stem)
    first = stored.turns[0].observation if stored.turns else stored.final
    if first is not None:
        config.web.width_px, config.web.height_px = first.width_px, first.height_px
    differ = 0
    async with _opened(config, stored.task, None) as (place, task, page):
        play = Play(task, place, page)
        tell(f"task    {task.intent}")
        show(page, None)
        for number, turn in enumerate(stored.turns, 1):
            is_same = play.page.screenshot == turn.observation.screenshot
            tell(f"turn {number}  {'same page' if is_same else 'the page differs'}")
            if not turn.calls:
                tell(f"  not understood: {turn.parse_error}")
                continue
            if play.cause is not None:
                tell("  the episode has ended here, the stored one went on")
                break
            step = await play.step(turn.calls)
            show(step.observation, play.turns[-1])
            differ += _compare(turn, step, tell)
    tell(f"stored  {stored.cause} {_quote(stored.answer)}")
    tell(play.told())
    tell(f"{differ} lines of feedback differ")
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


def prompted() -> Iterator[str]:
    """Lines that a person types at a terminal, until end of file."""
    with contextlib.suppress(EOFError):
        while True:
            yield input("> ")


class Play:
    """What was done on an environment so far."""

    def __init__(self, task: types.Task, place: types.Env, page: types.Observation):
        self.task, self.place, self.page = task, place, page
        self.turns: list[types.Turn] = []
        self.cause: Cause | None = None  # None = it goes on
        self.answer = ""
        self.facts: Mapping[str, Any] = {}

    async def step(self, calls: tuple[types.ToolCall, ...]) -> types.Step:
        """Runs the calls of one turn and keeps it."""
        with _in_words():
            step = await self.place.step(calls)
        segment = types.Segment(role="user", text="")
        self.turns.append(
            types.Turn(
                observation=self.page,
                segments=(segment,),
                reply_text="",
                thought="",
                calls=calls,
                feedback=step.feedback,
            )
        )
        self.page, self.cause = step.observation, step.cause
        self.answer, self.facts = step.answer, step.facts
        return step

    def told(self) -> str:
        """How it ended, in one line."""
        facts = json.dumps(dict(self.facts)) if self.facts else ""
        words = (str(self.cause or "left"), _quote(self.answer), facts)
        return f"ended   {' '.join(word for word in words if word)}"

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
) -> AsyncIterator[tuple[types.Env, types.Task, types.Observation]]:
    """An environment on the task's first page; all of it ends afterwards."""
    runner = build.make_runner(config)
    await runner.start(ports)
    try:
        place = runner.lend(task)
        try:
            with _in_words():
                task, page = await place.reset(task)
            yield place, task, page
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


async def _obey(line: str, play: Play, tell: Tell) -> types.Step | None:
    """Carries out one line; None = it took no step."""
    word, _, rest = line.partition(" ")
    if word == "help":
        tell(typed.usage(rest) if rest else HELP.format(tools=typed.usage()))
    elif word == "facts":
        with _in_words():
            tell(json.dumps(await play.place.facts(rest), ensure_ascii=False))
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


def _tell_step(step: types.Step, tell: Tell) -> None:
    for line in step.feedback:
        tell(f"{line.state:<10} {line.text}")


def _tell_page(page: types.Observation, tell: Tell) -> None:
    for index, tab in enumerate(page.tabs):
        mark = "*" if index == page.active_tab else " "
        tell(f"tab {index}{mark}  {tab.url}  {tab.title}")


def _compare(turn: types.Turn, step: types.Step, tell: Tell) -> int:
    """Tells stored and new feedback beside each other; how many lines differ."""
    differ = 0
    pairs = itertools.zip_longest(turn.calls, turn.feedback, step.feedback)
    for call, old, new in pairs:
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        tell(f"  {call.name} {arguments}")
        sides = [_side(old), _side(new)]
        is_same = old == new
        differ += not is_same
        sign = "=" if is_same else "≠"
        for left, right in itertools.zip_longest(*sides, fillvalue=""):
            tell(f"  {sign} {left:<{_COLUMN}} | {right}".rstrip())
            sign = " "
    return differ


def _side(line: types.Feedback | None) -> Sequence[str]:
    said = f"{line.state}: {line.text}" if line else "(not run)"
    return textwrap.wrap(said, _COLUMN) or [""]


def _quote(answer: str) -> str:
    return json.dumps(answer, ensure_ascii=False) if answer else ""
