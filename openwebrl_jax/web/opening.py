"""A task's first page: shown at reset, and again when a broken page is opened anew.

A resettable task's page stays loaded: its next episode only runs the setup again.
"""

import asyncio
from typing import Any

from openwebrl_jax.core.causes import Failure
from openwebrl_jax.core.types import Task
from openwebrl_jax.web import settle, troubles
from openwebrl_jax.web.page import Page, Trouble
from openwebrl_jax.web.tabs import Tabs


async def show(tabs: Tabs, task: Task, config: Any) -> dict:
    """Begins an episode on the task's page, its setup done; the probe's report."""
    await tabs.close_others()
    page = tabs.warm.get(task.start_url)
    if page is not None:
        try:
            report = await _restart(tabs, page, task, config)
        except Trouble:
            report = None
        if report is not None:
            await tabs.keep_warm(task.start_url, page)
            return report
        del tabs.warm[task.start_url]
        await page.close()
    page = await tabs.open()
    tabs.show(page)
    tabs.begin()
    report = await load(tabs, page, task, config)
    if task.is_resettable:
        await tabs.keep_warm(task.start_url, page)
    return report


async def load(tabs: Tabs, page: Page, task: Task, config: Any) -> dict:
    """Loads the task's page into a tab, where its history begins; a report as above.

    Raises Failure for an HTTP error, Trouble for anything else.
    """
    until = "load" if task.setup else "domcontentloaded"
    status = await page.goto(task.start_url, until)
    if status >= 400:
        cause = troubles.cause_of_status(status)
        raise Failure(cause, f"{task.start_url}: HTTP {status}")
    report = await settle.start(page, task, is_fresh=True, config=config)
    if report is None:
        raise Trouble("script", "the probe could not enter the page")
    await _wait(tabs, page, task, config)
    await page.forget_history()
    return report


async def _restart(tabs: Tabs, page: Page, task: Task, config: Any) -> dict | None:
    """A new start on a loaded page; None = it has gone elsewhere since."""
    tabs.show(page)
    tabs.begin()
    # The pointer still rests where the last episode clicked, and would hover.
    away = page.send("Input.dispatchMouseEvent", type="mouseMoved", x=-1, y=-1)
    made = settle.start(page, task, is_fresh=False, config=config)
    report, _ = await asyncio.gather(made, away)
    await _wait(tabs, page, task, config)
    return report


async def _wait(tabs: Tabs, page: Page, task: Task, config: Any) -> None:
    """Waits for what the page has asked the network for."""
    if page.is_loading or page.image_urls:
        await settle.after(tabs, task.end_script, config)
