"""Environment steps a second: ours, bare Playwright's and BrowserGym's, side by side.

    python -m benchmarks.web

One context each on the same MiniWoB++ problems, with the same clicks and the same
Chromium, in turns. BrowserGym gets a virtual environment of its own under `runs/`, made
the first time; where that cannot be, its ratios are null. Prints medians, and where our
steps spend their time: `settle` is one round trip, the wait and then the look at what
has changed; `rest` is Python. The last line is JSON: `vs_browsergym` as it ships,
`vs_browsergym_no_delay` with its slow motion and delay at 0, `reset_vs_browsergym` with
our pages warm, `fresh_reset_vs_browsergym` with a new context each, `vs_playwright`
(click, two frames, capture), `memory_mb_per_context`, `over_budget` (steps).
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from absl import app, flags
from playwright import async_api

from configs import grpo_short
from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.tasks import miniwob, sites
from openwebrl_jax.web import browser, env, execute, observe, settle

PEER = "browsergym-miniwob==0.14.3"
PEER_FOLDER = "runs/browsergym"
_CHROMIUM_PATH = """
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)"""
OURS, FRESH, BARE = "ours", "ours, fresh contexts", "bare Playwright"
PEER_FAST, PEER_SLOW = "BrowserGym, no delay", "BrowserGym"
PAGES = ("click-tab", "click-dialog-2", "focus-text-2", "click-button")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Turns that each one gets.")
_EPISODES = flags.DEFINE_integer("episodes", 8, "Episodes a turn; 4 clicks each.")

_CONTEXTS = 8  # for the memory that one takes

Times = dict[str, list[float]]  # steps_s, resets_s, and ours by phase

# What a step is made of: phase -> the function that does it.
PHASES = {
    "probe": (settle, "before"),
    "action": (execute, "act"),
    "settle": (settle, "after"),
    "capture": (observe, "capture"),
}
REST = "rest"


def make_episodes(count: int, seed: int) -> list[Any]:
    """[page, seed, points]: three clicks beside the task, then one into it."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        beside = [[draw.randint(5, 155), draw.randint(5, 40)] for _ in range(3)]
        inside = [draw.randint(5, 155), draw.randint(60, 200)]
        made.append(
            [PAGES[number % len(PAGES)], 1000 * seed + number, [*beside, inside]]
        )
    return made


async def ours(config: Any, episodes: list[Any], *, is_warm: bool) -> Times:
    """Our environment, one context."""
    told: Times = collections.defaultdict(list)
    async with _pool(config) as pool:
        made = env.make_env(pool)
        for page in PAGES:  # the first visit fills the pool and the caches
            await made.reset(_task(page, 0, is_warm))
        with stopwatches() as spent_s:
            for page, seed, points in episodes:
                began = time.perf_counter()
                await made.reset(_task(page, seed, is_warm))
                told["resets_s"].append(time.perf_counter() - began)
                for x, y in points:
                    point = [1000 * x / config.width_px, 1000 * y / config.height_px]
                    click = ToolCall(name="click", arguments={"point_2d": point})
                    spent_s.clear()
                    began = time.perf_counter()
                    await made.step((click,))
                    whole_s = time.perf_counter() - began
                    told["steps_s"].append(whole_s)
                    for phase in PHASES:
                        told[phase].append(spent_s[phase])
                    told[REST].append(whole_s - sum(spent_s.values()))
        await made.close()
    return told


@contextlib.contextmanager
def stopwatches():
    """Has the phases of our steps timed, in seconds since the last `clear`."""
    spent_s: collections.Counter[str] = collections.Counter()
    natives = {phase: getattr(*place) for phase, place in PHASES.items()}

    def timed(phase: str):
        async def run(*given):
            began = time.perf_counter()
            try:
                return await natives[phase](*given)
            finally:
                spent_s[phase] += time.perf_counter() - began

        return run

    for phase, place in PHASES.items():
        setattr(*place, timed(phase))
    yield spent_s
    for phase, place in PHASES.items():
        setattr(*place, natives[phase])


async def memory_mb(config: Any) -> float:
    """What a context with its page takes beyond the first one's."""
    async with _pool(config) as pool:
        slots = [env.make_env(pool) for _ in range(_CONTEXTS)]
        sizes_mb = []
        for slot in slots:
            await slot.reset(_task(PAGES[0], 0, False))
            assert pool._current is not None
            sizes_mb.append(pool._current.memory_mb())
        for slot in slots:
            await slot.close()
    return (sizes_mb[-1] - sizes_mb[0]) / (_CONTEXTS - 1)


@contextlib.asynccontextmanager
async def _pool(config: Any) -> AsyncIterator[browser.Pool]:
    server = sites.serve([sites.MINIWOB])
    pool = browser.Pool(config, server.ports)
    await pool.start()
    yield pool
    await pool.close()
    server.close()


async def bare(config: Any, episodes: list[Any]) -> Times:
    """Playwright alone: click, two animation frames, CDP capture; no feedback."""
    server = sites.serve([sites.MINIWOB])
    rule = f"MAP {sites.MINIWOB} 127.0.0.1:{server.ports[sites.MINIWOB]}"
    told: Times = {"steps_s": [], "resets_s": []}
    async with async_api.async_playwright() as driver:
        chromium = await driver.chromium.launch(
            executable_path=browser.find_chromium(config.chromium),
            args=[f"--host-resolver-rules={rule}"],
            chromium_sandbox=False,
        )
        size = {"width": config.width_px, "height": config.height_px}
        page = await chromium.new_page(viewport=size)
        session = await page.context.new_cdp_session(page)
        for name, _, points in episodes:
            await page.goto(f"http://{sites.MINIWOB}/miniwob/{name}.html")
            await page.evaluate("core.startEpisodeReal()")
            for x, y in points:
                began = time.perf_counter()
                await page.mouse.click(x, y)
                await page.evaluate(
                    "new Promise((done) => requestAnimationFrame(() =>"
                    " requestAnimationFrame(done)))"
                )
                await session.send(
                    "Page.captureScreenshot",
                    {"format": "png", "optimizeForSpeed": True},
                )
                told["steps_s"].append(time.perf_counter() - began)
        await chromium.close()
    server.close()
    return told


def browsergym(peer: "Peer", episodes: list[Any], chromium: str, delays: bool) -> Times:
    """BrowserGym in its own process; with `delays` as it ships."""
    asked = {
        "chromium": chromium,
        "miniwob": (sites.miniwob_folder() / "miniwob").as_uri() + "/",
        "delays": delays,
        "episodes": episodes,
    }
    script = pathlib.Path(__file__).with_name("browsergym_steps.py")
    done = subprocess.run(
        [peer.python, str(script), json.dumps(asked)],
        env=peer.environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"BrowserGym failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """BrowserGym's Python, and the environment that it runs in."""

    python: str
    environment: dict[str, str]


def make_peer(chromium: str) -> Peer | None:
    """BrowserGym's virtual environment, made the first time; None = it cannot be.

    Its chat window opens a second browser where its own Playwright would have put one,
    so a wrapper of ours stands there.
    """
    folder = pathlib.Path(PEER_FOLDER).absolute()
    python, ready = str(folder / "bin" / "python"), folder / "ready"
    if not ready.exists():
        print(f"making {PEER_FOLDER} with {PEER} (a minute)", file=sys.stderr)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [python, "-m", "pip", "install", "-q", PEER],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                told = (done.stderr.strip() or "no reason given").splitlines()[-1]
                print(f"no BrowserGym to compare with: {told}", file=sys.stderr)
                return None
        ready.touch()
    browsers = {"PLAYWRIGHT_BROWSERS_PATH": str(folder / "browsers")}
    environment = {**os.environ, **browsers}
    done = subprocess.run(
        [python, "-c", _CHROMIUM_PATH], env=environment, capture_output=True, text=True
    )
    wrapper = pathlib.Path(done.stdout.strip())
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(chromium)} "$@"\n')
    wrapper.chmod(0o755)
    return Peer(python, environment)


def main(_: list[str]) -> None:
    """Runs all in turns and prints the tables."""
    config = grpo_short.get_config("tiny").web
    chromium = browser.find_chromium(config.chromium)
    peer = make_peer(chromium)
    kept: dict[str, Times] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for number in range(1, _ROUNDS.value + 1):
        episodes = make_episodes(_EPISODES.value, number)
        few = episodes[: max(2, len(episodes) // 4)]  # at its own speed it is slow
        turns = {
            OURS: lambda e=episodes: asyncio.run(ours(config, e, is_warm=True)),
            FRESH: lambda e=episodes: asyncio.run(ours(config, e, is_warm=False)),
            BARE: lambda e=episodes: asyncio.run(bare(config, e)),
        }
        if peer is not None:
            turns |= {
                PEER_FAST: lambda e=episodes: browsergym(peer, e, chromium, False),
                PEER_SLOW: lambda e=few: browsergym(peer, e, chromium, True),
            }
        for name, turn in turns.items():
            print(f"round {number}/{_ROUNDS.value}  {name}", file=sys.stderr)
            for kind, values in turn().items():
                kept[name][kind] += values
    report(kept, config, asyncio.run(memory_mb(config)))


def report(kept: dict[str, Times], config: Any, context_mb: float) -> None:
    """The tables of medians, then the line of ratios."""
    median = {
        kind: {
            name: statistics.median(each[kind])
            for name, each in kept.items()
            if each[kind]
        }
        for kind in ("steps_s", "resets_s")
    }
    steps_s, resets_s = median["steps_s"], median["resets_s"]
    print(f"{'':22} {'steps/s':>8} {'reset s':>8} {'slowest step s':>15} {'steps':>6}")
    for name, each in kept.items():
        reset = f"{resets_s[name]:8.3f}" if name in resets_s else f"{'-':>8}"
        slowest, count = max(each["steps_s"]), len(each["steps_s"])
        print(f"{name:22} {1 / steps_s[name]:8.1f} {reset} {slowest:15.2f} {count:6}")
    print(f"\n{'a step of ours':22} {'median ms':>9} {'mean ms':>8} {'share':>6}")
    whole_s = statistics.mean(kept[OURS]["steps_s"])
    for phase in (*PHASES, REST):
        spent_s = kept[OURS][phase]
        typical_ms, mean_s = 1000 * statistics.median(spent_s), statistics.mean(spent_s)
        share = mean_s / whole_s
        print(f"{phase:22} {typical_ms:9.1f} {1000 * mean_s:8.1f} {share:6.0%}")
    budget_s = config.action_timeout_s + config.settle_cap_s + config.capture_timeout_s

    def ratio(kind: dict[str, float], other: str, mine: str = OURS) -> float | None:
        return round(kind[other] / kind[mine], 2) if other in kind else None

    told = {
        "vs_browsergym": ratio(steps_s, PEER_SLOW),
        "vs_browsergym_no_delay": ratio(steps_s, PEER_FAST),
        "reset_vs_browsergym": ratio(resets_s, PEER_SLOW),
        "fresh_reset_vs_browsergym": ratio(resets_s, PEER_SLOW, FRESH),
        "vs_playwright": ratio(steps_s, BARE),
        "memory_mb_per_context": round(context_mb, 1),
        "over_budget": sum(t > budget_s for t in kept[OURS]["steps_s"]),
    }
    print(json.dumps(told))


def _task(page: str, seed: int, is_warm: bool) -> Any:
    task = miniwob.make_task(page, seed, max_turns=9)
    return dataclasses.replace(task, is_resettable=is_warm)


if __name__ == "__main__":
    app.run(main)
