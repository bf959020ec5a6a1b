"""Environment steps a second: ours, bare Playwright's and BrowserGym's, side by side.

    python -m benchmarks.web

One context each on the same MiniWoB++ problems, with the same clicks and the same
Chromium, in turns. BrowserGym gets a virtual environment of its own under `runs/`.
The last line is JSON: `vs_browsergym` as it ships, `vs_browsergym_no_delay` with its
slow motion and delay at 0, `resets` (ours on warm pages), `resets_fresh` (a new
context each), `vs_bare` (click, two frames, capture), `over_budget` (steps).
"""

import asyncio
import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from absl import app, flags
from playwright import async_api

from configs import grpo_short
from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.tasks import miniwob, sites
from openwebrl_jax.web import browser, env

PEER = "browsergym-miniwob==0.14.3"
PAGES = ("click-tab", "click-dialog-2", "focus-text-2", "click-button")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Turns that each one gets.")
_EPISODES = flags.DEFINE_integer("episodes", 8, "Episodes a turn; 4 clicks each.")

Times = dict[str, list[float]]  # steps_s, resets_s


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
    server = sites.serve([sites.MINIWOB])
    pool = browser.Pool(config, server.ports)
    await pool.start()
    made = env.make_env(pool)
    told: Times = {"steps_s": [], "resets_s": []}
    for page in PAGES:  # the first visit fills the pool and the caches
        await made.reset(_task(page, 0, is_warm))
    for page, seed, points in episodes:
        began = time.perf_counter()
        await made.reset(_task(page, seed, is_warm))
        told["resets_s"].append(time.perf_counter() - began)
        for x, y in points:
            point = [1000 * x / config.width_px, 1000 * y / config.height_px]
            click = ToolCall(name="click", arguments={"point_2d": point})
            began = time.perf_counter()
            await made.step((click,))
            told["steps_s"].append(time.perf_counter() - began)
    await made.close()
    await pool.close()
    server.close()
    return told


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


def browsergym(python: str, episodes: list[Any], chromium: str, delays: bool) -> Times:
    """BrowserGym in its own process; with `delays` as it ships."""
    asked = {
        "chromium": chromium,
        "miniwob": (sites.miniwob_folder() / "miniwob").as_uri() + "/",
        "delays": delays,
        "episodes": episodes,
    }
    script = pathlib.Path(__file__).with_name("browsergym_steps.py")
    done = subprocess.run(
        [python, str(script), json.dumps(asked)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"BrowserGym failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peer_python() -> str:
    """The Python of BrowserGym's virtual environment, made the first time."""
    folder = pathlib.Path("runs/browsergym")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
    return str(python.absolute())


def main(_: list[str]) -> None:
    """Runs all in turns and prints the table."""
    config = grpo_short.get_config("tiny").web
    chromium, python = browser.find_chromium(config.chromium), peer_python()
    kept: dict[str, Times] = {}
    for number in range(1, _ROUNDS.value + 1):
        episodes = make_episodes(_EPISODES.value, number)
        few = episodes[: max(2, len(episodes) // 4)]  # at its own speed it is slow
        turns = {
            "ours": lambda e=episodes: asyncio.run(ours(config, e, is_warm=True)),
            "ours, fresh contexts": lambda e=episodes: asyncio.run(
                ours(config, e, is_warm=False)
            ),
            "bare Playwright": lambda e=episodes: asyncio.run(bare(config, e)),
            "BrowserGym, no delay": lambda e=episodes: browsergym(
                python, e, chromium, delays=False
            ),
            "BrowserGym": lambda e=few: browsergym(python, e, chromium, delays=True),
        }
        for name, turn in turns.items():
            print(f"round {number}/{_ROUNDS.value}  {name}", file=sys.stderr)
            told = turn()
            into = kept.setdefault(name, {"steps_s": [], "resets_s": []})
            for kind, values in told.items():
                into[kind] += values
    report(kept, config)


def report(kept: dict[str, Times], config: Any) -> None:
    """The table of medians, then the line of ratios."""
    step = {name: statistics.median(each["steps_s"]) for name, each in kept.items()}
    reset = {
        name: statistics.median(each["resets_s"])
        for name, each in kept.items()
        if each["resets_s"]
    }
    print(f"{'':22} {'steps/s':>8} {'reset s':>8} {'slowest step s':>15} {'steps':>6}")
    for name, each in kept.items():
        resets = f"{reset[name]:8.3f}" if name in reset else f"{'-':>8}"
        slowest, count = max(each["steps_s"]), len(each["steps_s"])
        print(f"{name:22} {1 / step[name]:8.1f} {resets} {slowest:15.2f} {count:6}")
    budget_s = config.action_timeout_s + config.settle_cap_s + config.capture_timeout_s
    ratios = {
        "vs_browsergym": step["BrowserGym"] / step["ours"],
        "vs_browsergym_no_delay": step["BrowserGym, no delay"] / step["ours"],
        "resets": reset["BrowserGym"] / reset["ours"],
        "resets_fresh": reset["BrowserGym"] / reset["ours, fresh contexts"],
        "vs_bare": step["bare Playwright"] / step["ours"],
        "over_budget": sum(t > budget_s for t in kept["ours"]["steps_s"]),
    }
    print(json.dumps({name: round(value, 2) for name, value in ratios.items()}))


def _task(page: str, seed: int, is_warm: bool) -> Any:
    task = miniwob.make_task(page, seed, max_turns=9)
    return dataclasses.replace(task, is_resettable=is_warm)


if __name__ == "__main__":
    app.run(main)
