"""Hundreds of episodes on hostile pages: nothing hangs, nothing grows.

    python -m benchmarks.web_soak --episodes=500

Four contexts play pages that hang, crash, flood, download or never load. Each episode
must end with the cause that its page deserves, within its budget. The last line is
JSON: `hung`, `wrong_causes`, `mb_per_100_episodes` and `processes_per_100_episodes`
(slopes after the first fifth), `left_processes`.
"""

import asyncio
import collections
import contextlib
import http.server
import json
import os
import sys
import threading
import time

import numpy as np
from absl import app, flags

from configs import common
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task, ToolCall
from openwebrl_jax.web import browser, env, processes

_EPISODES = flags.DEFINE_integer("episodes", 500, "Episodes in all.")
_CONTEXTS = flags.DEFINE_integer("contexts", 4, "Episodes at once.")
HOST = "hostile.test"
LIMIT_S = 60.0  # of an episode of three calls; all its time-outs are far shorter

CRASH = "/crash"  # the page's process dies before each call

_FULL = "style='position:fixed;inset:0;width:100%;height:100%'"


def _button(script: str) -> str:
    return f'<title>start</title><button {_FULL} onclick="{script}">go</button>'


# Path -> (page, cause of the episode that opens it, clicks it, waits and is done).
PAGES = {
    "/plain": (_button("document.title = 'hit'"), Cause.DONE),
    "/alerts": (_button("for (let i = 0; i < 30; i++) alert(i)"), Cause.DONE),
    "/confirm": (_button("document.title = confirm('sure?')"), Cause.DONE),
    "/leave": (
        "<input autofocus><script>onbeforeunload = (e) => e.preventDefault()</script>"
        + _button("location = '/plain'"),
        Cause.DONE,
    ),
    "/busy": (_button("while (true) {}"), Cause.DONE),
    "/popups": (_button("for (let i = 0; i < 3; i++) open('/plain')"), Cause.DONE),
    "/closes": (_button("open('/plain'); setTimeout(() => close(), 50)"), Cause.DONE),
    "/file": ("", Cause.HTTP_ERROR),  # a download; see _Answer
    "/load": (_button("location = '/file'"), Cause.DONE),
    "/empty": (_button("location = '/204'"), Cause.DONE),
    "/reloads": (
        "<script>setTimeout(() => location.reload(), 5)</script>" + _button(""),
        None,  # it may be too restless to be opened at all
    ),
    "/churn": (
        "<div id=d></div><script>setInterval(() => d.textContent = Math.random(), 5)"
        "</script>" + _button(""),
        Cause.DONE,
    ),
    "/font": (
        "<style>@font-face { font-family: f; src: url(/never) } * { font-family: f }"
        "</style>" + _button(""),
        Cause.DONE,
    ),
    "/poll": ("<script>fetch('/never')</script>" + _button(""), Cause.DONE),
    "/tall": ("<div style='height: 40000px'></div>" + _button(""), Cause.DONE),
    "/many": (
        "<script>for (let i = 0; i < 20000; i++) document.write('<a href=#>x</a> ')"
        "</script>" + _button("document.body.append('more')"),
        Cause.DONE,
    ),
    CRASH: (_button("document.title = 'hit'"), Cause.DONE),
    "/gone": ("", Cause.HTTP_ERROR),
    "/never": ("", Cause.SITE_TIMEOUT),
}


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/never":
            time.sleep(20)
        if self.path == "/204":
            self.send_response(204)
            self.end_headers()
            return
        body = PAGES.get(self.path, ("", None))[0].encode()
        self.send_response(200 if body or self.path == "/file" else 500)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        if self.path == "/file":
            body = b"x" * 1000
            self.send_header("Content-Disposition", "attachment; filename=a.bin")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        """A page that went away before its answer is no news here."""


async def play(made: env.BrowserEnv, path: str) -> tuple[Cause, float]:
    """One episode: open, click, wait, done; its cause and seconds."""
    calls = (
        ToolCall(name="click", arguments={"point_2d": [500, 500]}),
        ToolCall(name="wait", arguments={"seconds": 0.1}),
        ToolCall(name="done", arguments={"response": "seen"}),
    )
    task = Task(
        id=path,
        intent="",
        start_url=f"http://{HOST}{path}",
        max_turns=3,
        sites=(HOST,),
    )
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            await made.reset(task)
            for call in calls:
                if path == CRASH:
                    with contextlib.suppress(browser.Error):
                        await made._active.raw.goto("chrome://crash", timeout=3000)
                step = await made.step((call,))
            cause = step.cause or Cause.MAX_TURNS
    except Failure as failure:
        cause = failure.cause
    return cause, time.monotonic() - began


async def soak(config, port: int, paths: list[str]) -> dict:
    """All episodes; what went wrong and what grew."""
    pool = browser.Pool(config, {HOST: port})
    await pool.start()
    coming = collections.deque(enumerate(paths))
    told = {"hung": [], "wrong": [], "slowest": {}, "sizes": []}

    async def slot() -> None:
        made = env.make_env(pool)
        while coming:
            number, path = coming.popleft()
            try:
                cause, spent_s = await play(made, path)
            except TimeoutError:
                told["hung"].append(path)
                await made.close()
                continue
            wanted = PAGES[path][1]
            if wanted is not None and cause is not wanted:
                told["wrong"].append((path, str(cause)))
            told["slowest"][path] = max(spent_s, told["slowest"].get(path, 0.0))
            if number % 10 == 0:
                told["sizes"].append((number, *size()))
                print(
                    f"soak {number}/{len(paths)}  {told['sizes'][-1][1]:.0f} MB  "
                    f"{told['sizes'][-1][2]} processes  hung {len(told['hung'])}  "
                    f"wrong {len(told['wrong'])}",
                    file=sys.stderr,
                )
        await made.close()

    await asyncio.gather(*(slot() for _ in range(_CONTEXTS.value)))
    await pool.close()
    told["left"] = size()[1]
    return told


def size() -> tuple[float, int]:
    """Memory (PSS, MB) and number of all processes below this one."""
    below = processes.descendants(os.getpid())
    return processes.memory_mb(below), len(below)


def main(_: list[str]) -> None:
    """Serves the pages, plays, prints the table."""
    config = common.get_config().web
    with config.unlocked():
        config.width_px, config.height_px = 400, 300
        config.navigate_timeout_s = 4.0
        config.action_timeout_s = 3.0
        config.capture_timeout_s = 2.0
        config.recycle_episodes = 100
    server = _Server(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = list(PAGES)
    paths = [names[n % len(names)] for n in range(_EPISODES.value)]
    told = asyncio.run(soak(config, server.server_port, paths))
    server.shutdown()
    print(f"{'page':10} {'slowest s':>10}  must end as")
    for path, slowest_s in told["slowest"].items():
        print(f"{path:10} {slowest_s:10.1f}  {PAGES[path][1] or 'anything'}")
    for path, cause in told["wrong"]:
        print(f"wrong: {path} ended as {cause}")
    steady = [each for each in told["sizes"] if each[0] >= len(paths) // 5]
    number, memory_mb, count = np.array(steady).T
    print(
        json.dumps(
            {
                "episodes": len(paths),
                "hung": len(told["hung"]),
                "wrong_causes": len(told["wrong"]),
                "mb_per_100_episodes": round(
                    100 * np.polyfit(number, memory_mb, 1)[0], 1
                ),
                "processes_per_100_episodes": round(
                    100 * np.polyfit(number, count, 1)[0], 2
                ),
                "left_processes": told["left"],
            }
        )
    )


if __name__ == "__main__":
    app.run(main)
