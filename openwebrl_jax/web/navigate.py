"""The tools that go elsewhere: goto_url and go_back."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from openwebrl_jax.web import guard, plans
from openwebrl_jax.web.feedback import Deed, shorten
from openwebrl_jax.web.page import Trouble


def plan_goto(arguments, place) -> plans.Plan:
    url = arguments.get("url")
    if not isinstance(url, str):
        raise plans.Refusal(f"url is a text, got {url!r}")
    try:
        url = guard.check(url, place.sites, place.hosts)
    except ValueError as error:
        raise plans.Refusal(f"{shorten(url, 80)!r} is refused, {error}") from None
    return plans.Plan(tool="goto_url", arguments={"url": url})


async def goto(plan, tabs, before, place) -> Deed:
    page = tabs.active
    url = plan.arguments["url"]
    status, asked_s = await _timed(page.goto(url))
    text = f"opened {shorten(url, 100)}"
    if status >= 400:
        text += f" (HTTP {status})"
    return Deed(text=text, asked_s=asked_s)


def plan_back(arguments, place) -> plans.Plan:
    return plans.Plan(tool="go_back", arguments={})


async def back(plan, tabs, before, place) -> Deed:
    page = tabs.active
    history = await page.send("Page.getNavigationHistory")
    if history["currentIndex"] <= page.first_entry:
        return Deed(text="went back", problem="there is no earlier page")
    limit_s = place.config.navigate_timeout_s
    going = page.raw.go_back(wait_until="commit", timeout=limit_s * 1000)
    _, asked_s = await _timed(page.bounded(going, limit_s + 1.0))
    return Deed(text="went back", asked_s=asked_s)


async def _timed(work: Awaitable) -> tuple[Any, float]:
    clock = asyncio.get_running_loop().time
    start = clock()
    try:
        return await work, clock() - start
    except Trouble as trouble:
        trouble.asked_s = clock() - start
        raise
