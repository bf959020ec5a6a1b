"""Kills Chromium, its driver and whole workers at random moments of episodes.

    python -m benchmarks.web_kills --kills=20 --seed=0

Each kill must end the episode that it hits as void (BROWSER_CRASH; a killed worker
tells nothing), the next episode must be served, and nothing may stay behind: no
process, no folder. Prints a table, then one JSON line; all but `kills` is to be 0.
"""

import asyncio
import contextlib
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

from absl import app, flags

from configs import common
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task, ToolCall
from openwebrl_jax.web import browser, env, processes

_KILLS = flags.DEFINE_integer("kills", 20, "Kills of each kind.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the moments.")
_WORKER = flags.DEFINE_boolean("worker", False, "Be the worker that is killed.")

HANG_S = 60.0  # for an episode to end or a worker to be gone; longer = it hangs
LONGEST_S = 1.5  # after the start of an episode the kill comes, at random
KINDS = ("chromium", "driver", "worker")
PAGE = """<title>start</title><button style="position:fixed; inset:0"
  onclick="document.title = 'click ' + (n = (self.n || 0) + 1)">Go</button>"""
CALLS = (
    ToolCall(name="click", arguments={"point_2d": [500, 500]}),
    ToolCall(name="goto_url", arguments={"url": "http://site.test/"}),
    ToolCall(name="new_tab", arguments={}),
    ToolCall(name="close_tab", arguments={}),
)


@dataclass
class Tally:
    """What came of the kills of one kind."""

    kills: int = 0
    hung: int = 0
    leftovers: int = 0
    wrong_causes: int = 0


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # of a browser that was killed
            self.wfile.write(PAGE.encode())

    def log_message(self, *_):
        pass


def serve() -> int:
    """A loopback site of one page; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def make_pool(port: int) -> browser.Pool:
    config = common.get_config().web
    with config.unlocked():
        config.width_px, config.height_px = 400, 300
    return browser.Pool(config, {"site.test": port})


async def play(slot: env.BrowserEnv, steps: int) -> None:
    """One episode."""
    task = Task(
        id="t",
        intent="",
        start_url="http://site.test/",
        max_turns=steps,
        sites=("site.test",),
    )
    await slot.reset(task)
    for _ in range(steps):
        await slot.step(CALLS)


async def kill_in_episode(pool, kind: str, delay_s: float, tally: Tally) -> None:
    """Kills one process of the pool's browser while an episode runs in it."""
    slot = env.make_env(pool)
    episode = asyncio.ensure_future(play(slot, steps=1000))
    await asyncio.sleep(delay_s)
    victim = pool._current
    while victim is None:  # the first browser still starts
        await asyncio.sleep(0.05)
        victim = pool._current
    is_driver = kind == "driver"
    os.kill(victim.driver_pid if is_driver else victim.pid, signal.SIGKILL)
    tally.kills += 1
    try:
        await asyncio.wait_for(episode, HANG_S)
    except TimeoutError:
        tally.hung += 1
    except Failure as failure:
        tally.wrong_causes += failure.cause is not Cause.BROWSER_CRASH
    try:
        await asyncio.wait_for(play(slot, steps=1), HANG_S)
    except TimeoutError:
        tally.hung += 1
    except Failure:
        tally.wrong_causes += 1  # the next episode is to be served
    await slot.close()
    tally.leftovers += len(processes.members(victim.pid))
    tally.leftovers += processes.is_running(victim.driver_pid, victim._driver_born)
    tally.leftovers += os.path.exists(victim._home)


def kill_worker(delay_s: float, tally: Tally) -> None:
    """Kills a child that runs episodes, at a moment after its browser has started."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.web_kills", "--worker"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    with child:
        assert child.stdout is not None
        group, driver = map(int, child.stdout.readline().split())
        born = processes.stat(driver).get("born", 0)
        time.sleep(delay_s)
        child.kill()
    tally.kills += 1
    end = time.monotonic() + HANG_S
    while processes.members(group) or processes.is_running(driver, born):
        if time.monotonic() > end:
            tally.hung += 1
            break
        time.sleep(0.05)
    processes.reap()  # as the next worker does when it starts
    tally.leftovers += len(os.listdir(tempfile.gettempdir()))


async def work() -> None:
    """The child: episodes without end."""
    pool = make_pool(serve())
    await pool.start()
    assert pool._current is not None
    print(pool._current.pid, pool._current.driver_pid, flush=True)
    slot = env.make_env(pool)
    while True:
        await play(slot, steps=3)


def kill_browsers(kind: str, delays_s: list[float]) -> Tally:
    """Kills one process of a pool that goes on serving, again and again."""
    tally = Tally()

    async def kill_all() -> None:
        pool = make_pool(serve())
        for delay_s in delays_s:
            await kill_in_episode(pool, kind, delay_s, tally)
        await pool.close()

    asyncio.run(kill_all())
    tally.leftovers += len(os.listdir(tempfile.gettempdir()))
    return tally


def kill_workers(kind: str, delays_s: list[float]) -> Tally:
    """Kills one worker after the other."""
    tally = Tally()
    for delay_s in delays_s:
        kill_worker(delay_s, tally)
    return tally


def main(_: list[str]) -> None:
    """Kills all kinds in turns of their own, then prints the table."""
    if _WORKER.value:
        asyncio.run(work())
        return
    choice = random.Random(_SEED.value)
    tallies = {}
    with tempfile.TemporaryDirectory(prefix="kills_") as place:
        tempfile.tempdir = place
        for kind in KINDS:
            print(f"killing each {kind} {_KILLS.value} times", file=sys.stderr)
            delays_s = [choice.uniform(0, LONGEST_S) for _ in range(_KILLS.value)]
            kill = kill_workers if kind == "worker" else kill_browsers
            tallies[kind] = kill(kind, delays_s)
        tempfile.tempdir = None
    columns = ("kills", "hung", "leftovers", "wrong_causes")
    print(f"{'killed':10}" + "".join(f"{name:>14}" for name in columns))
    for kind, tally in tallies.items():
        row = "".join(f"{getattr(tally, name):>14}" for name in columns)
        print(f"{kind:10}{row}")
    total = {n: sum(getattr(tally, n) for tally in tallies.values()) for n in columns}
    print(json.dumps(total))


if __name__ == "__main__":
    app.run(main)
