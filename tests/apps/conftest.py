"""Real web applications on loopback ports, each under a fixed name, and a hand that
drives them through the environment's tools alone.

`Hand` looks for a place to click by asking the page for boxes (`env.facts`); what it
does and is told is kept under runs/apps: pictures, and a trajectory for replays.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest
import pytest_asyncio

from configs import common
from openwebrl_jax.core.types import Reward, Task, ToolCall
from openwebrl_jax.evals import album
from openwebrl_jax.rollout import build, manual

ROOT = pathlib.Path(__file__).parent.parent.parent
APPS = ROOT / ".apps"
KEPT = ROOT / "runs" / "apps"
WIDTH_PX, HEIGHT_PX = 1000, 720
START_S = 180.0
FIND_S = 5.0

FIND = """() => {
  const shown = (it) => {
    const box = it.getBoundingClientRect();
    const style = getComputedStyle(it);
    return box.width > 0 && box.height > 0 && style.visibility !== 'hidden';
  };
  const words = (it) => (it.innerText || it.value || '').trim();
  const found = [...document.querySelectorAll(CSS)].filter(
    (it) => shown(it) && (TEXT === null || words(it) === TEXT));
  if (!found.length) return null;
  const box = found[0].getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""


class Hand:
    """Does calls and insists that each has the effect it was meant to have."""

    def __init__(self, play: manual.Play, folder: pathlib.Path):
        self.play, self.folder = play, folder
        self.kept = album.Album(folder)
        self.kept.show(play.page, None)

    async def do(self, name: str, *, may_idle: bool = False, **arguments) -> str:
        """One call; returns the text of its feedback.

        `may_idle` = it may change nothing, as a click into the field that has focus.
        """
        step = await self.play.step((ToolCall(name=name, arguments=arguments),))
        self.kept.show(step.observation, self.play.turns[-1])
        (line,) = step.feedback
        assert line.state in ("effect", "no_effect")[: 1 + may_idle], line
        return line.text

    async def find(self, css: str, text: str | None = None) -> list[float]:
        """A point_2d in the middle of an element, scrolled to if need be."""
        script = FIND.replace("CSS", json.dumps(css)).replace("TEXT", json.dumps(text))
        until, place = time.monotonic() + FIND_S, None
        while time.monotonic() < until:
            last, place = place, await self.play.place.facts(script)
            if place and place == last and 0 <= place[1] < HEIGHT_PX:  # it rests
                return [1000 * place[0] / WIDTH_PX, 1000 * place[1] / HEIGHT_PX]
            if place and place == last:
                await self.do("scroll", direction="down" if place[1] > 0 else "up")
            await asyncio.sleep(0.1)
        raise AssertionError(f"{css} {text or ''} is not on the page")

    async def click(self, css: str, text: str | None = None, **arguments) -> str:
        return await self.do("click", point_2d=await self.find(css, text), **arguments)

    async def write(self, css: str, message: str) -> str:
        """Clicks a field and fills it."""
        await self.click(css, may_idle=True)
        return await self.do("write", message=message)

    async def end(self, response: str) -> None:
        """Ends an episode that has come to what was wanted, and stores it."""
        await self.do("done", response=response)
        reward = Reward(value=1.0, parts={}, is_valid=True)
        manual.save(self.folder, self.play.trajectory(), reward)

    async def facts(self, script: str):
        return await self.play.place.facts(script)


@pytest.fixture
def workplace(request, tmp_path):
    """A folder for the data of one application; its name is the test module's."""
    name = request.path.stem.removeprefix("test_")
    if not (APPS / name).exists():
        pytest.fail(f"{name} is not installed; run `make test-apps`")
    return tmp_path


@pytest.fixture
def port() -> int:
    with contextlib.closing(socket.socket()) as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@pytest.fixture
def serve(workplace, port):
    """`serve(command, environment)`: starts it and waits until it answers."""
    running = []

    def start(command, **environment: str) -> None:
        log = (workplace / "server.log").open("wb")
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=workplace,
            env={"PATH": os.defpath, "HOME": str(workplace), **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        running.append((process, log))
        until = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).close()
                return
            time.sleep(0.1)
        pytest.fail((workplace / "server.log").read_text()[-2000:])

    yield start
    for process, log in running:
        process.kill()
        process.wait()
        log.close()


@pytest_asyncio.fixture
async def opened(request, port, chromium):
    """`await opened("http://wiki.test/")`: a Hand on the page of the application."""
    name = request.path.stem.removeprefix("test_")
    config = common.get_config()
    config.web.width_px, config.web.height_px = WIDTH_PX, HEIGHT_PX
    config.web.chromium = chromium
    runner = build.make_runner(config)
    ends = contextlib.AsyncExitStack()

    async def start(url: str, intent: str) -> Hand:
        host = url.split("/")[2]
        await runner.start({host: port})
        ends.push_async_callback(runner.close)
        task = Task(
            id=f"apps/{name}", intent=intent, start_url=url, max_turns=99, sites=(host,)
        )
        place = runner.lend(task)
        ends.push_async_callback(place.close)
        _, page = await place.reset(task)
        shutil.rmtree(KEPT / name, ignore_errors=True)
        return Hand(manual.Play(task, place, page), KEPT / name)

    async with ends:
        yield start
