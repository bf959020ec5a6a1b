"""The tools that go elsewhere: in a tab's history, to an address, to another tab."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from openwebrl_jax.web import guard, plans
from openwebrl_jax.web.feedback import Deed, shorten
from openwebrl_jax.web.page import Page, Trouble
from openwebrl_jax.web.tabs import Tabs


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
    _, asked_s = await _timed(_goto(page, url, tabs))
    return Deed(text=f"opened {shorten(url, 100)}", asked_s=asked_s)


async def _goto(page: Page, url: str, tabs: Tabs) -> None:
    # A page that is busy or goes elsewhere itself may outrun us: a new tab is safe.
    if page.is_restless or page.is_leaving:
        page = await tabs.replace(page)
    try:
        await page.goto(url)
    except Trouble as trouble:
        if trouble.kind != "moved":
            raise
        await (await tabs.replace(page)).goto(url)


def plan_back(arguments, place) -> plans.Plan:
    return plans.Plan(tool="go_back", arguments={})


async def back(plan, tabs, before, place) -> Deed:
    page = tabs.active
    history = await page.send("Page.getNavigationHistory")
    if history["currentIndex"] <= page.first_entry:
        return Deed(text="went back", problem="there is no earlier page")
    _, asked_s = await _timed(page.step(-1))
    return Deed(text="went back", asked_s=asked_s)


def plan_forward(arguments, place) -> plans.Plan:
    return plans.Plan(tool="go_forward", arguments={})


async def forward(plan, tabs, before, place) -> Deed:
    page = tabs.active
    history = await page.send("Page.getNavigationHistory")
    if history["currentIndex"] + 1 >= len(history["entries"]):
        return Deed(text="went forward", problem="there is no later page")
    _, asked_s = await _timed(page.step(1))
    return Deed(text="went forward", asked_s=asked_s)


def plan_new_tab(arguments, place) -> plans.Plan:
    return plans.Plan(tool="new_tab", arguments={})


async def new_tab(plan, tabs, before, place) -> Deed:
    page = await tabs.add()
    return Deed(text=f"opened tab {tabs.shown.index(page)}")


def plan_switch(arguments, place) -> plans.Plan:
    index = arguments.get("tab_index")
    if not plans.is_number(index) or index != int(index):
        raise plans.Refusal(f"tab_index is the number of a tab, got {index!r}")
    return plans.Plan(tool="switch_tab", arguments={"index": int(index)})


async def switch(plan, tabs, before, place) -> Deed:
    index, shown = plan.arguments["index"], tabs.shown
    text = f"went to tab {index}"
    if not 0 <= index < len(shown):
        listed = "there is only tab 0" if len(shown) == 1 else f"0 to {len(shown) - 1}"
        return Deed(text=text, problem=f"there is no such tab, {listed}")
    if shown[index] is tabs.active:
        return Deed(text=f"tab {index} was in view already")
    await tabs.switch(shown[index])
    return Deed(text=text)


def plan_close(arguments, place) -> plans.Plan:
    return plans.Plan(tool="close_tab", arguments={})


async def close(plan, tabs, before, place) -> Deed:
    shown = tabs.shown
    if len(shown) == 1:
        return Deed(text="close_tab", problem="the last tab cannot be closed")
    text = f"closed tab {shown.index(tabs.active)}"
    await tabs.close_active()
    return Deed(text=f"{text}, tab {tabs.shown.index(tabs.active)} is in view now")


async def _timed(work: Awaitable) -> tuple[Any, float]:
    clock = asyncio.get_running_loop().time
    start = clock()
    try:
        return await work, clock() - start
    except Trouble as trouble:
        trouble.asked_s = clock() - start
        raise
