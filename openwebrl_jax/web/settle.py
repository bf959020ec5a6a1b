"""Before and after an action, each in one round trip: wait until quiet, then look.

The page counts as settled when two animation frames pass without a change, else when
it has been quiet for `settle_quiet_s`, at most `settle_cap_s`. Timers, requests,
documents and downloads that the action began are waited for, and the looking is done
again after them; so are images in view. What is still missing is told as `late`.
"""

import asyncio
from typing import Any

from openwebrl_jax.web import page as pages
from openwebrl_jax.web.page import Page, Trouble
from openwebrl_jax.web.plans import Plan
from openwebrl_jax.web.tabs import Tabs

LOADING = "the page is still loading"
_LOOKS = 5  # an action may bring up so many requests and tabs in a row
_IMAGES_S, _LOOK_S = 1.0, 0.05  # that images are waited for, and how often one looks

# The task's own end is asked for in the page's world; where the script does not fit
# the document (the policy went elsewhere) the task has not ended.
_END = (
    "const end = async () => { try { return await (%s)(); } catch { return null; } };"
)
_NO_END = "const end = async () => null;"


async def start(page: Page, task, *, is_fresh: bool, config) -> dict | None:
    """Runs the task's setup and settles; None = the page is not where it was left.

    The report has what setup returned as `made`, else it is that of `after`.
    """
    check = "probe.stayAt(home)" if is_fresh else "if (!probe.isAt(home)) return null"
    setup = f"await ({task.setup})()" if task.setup else "null"
    report = await page.evaluate(
        f"""(async () => {{
          {_end(task.end_script)}
          const [probe, home] = [window.__probe, {pages.literal(task.start_url)}];
          if (!probe) return null;
          {check};
          probe.before(null);
          const made = {setup};
          {quiet(config)}
          await end();
          return {{made, ...probe.after()}};
        }})()""",
        config.settle_cap_s + config.action_timeout_s,
    )
    if report:
        page.url, page.title = report["url"], report["title"]
    return report


async def before(page: Page, plan: Plan, end: str) -> tuple[dict, Any]:
    """What is at the point and has focus; and what the end script says by now.

    A page that does not answer can be left all the same, so then nothing is known.
    """
    try:
        report = await page.evaluate(
            f"""(async () => {{
              {_end(end)}
              const ended = await end();
              const [probe, point] = [window.__probe, {pages.literal(plan.point)}];
              const isScroll = {pages.literal(plan.tool == "scroll")};
              return {{ended, seen: probe ? probe.before(point, isScroll) : null}};
            }})()"""
        )
    except Trouble as trouble:
        if plan.tool != "goto_url" or trouble.kind != "hung":
            raise
        page.is_restless = True
        return _blank(page), None
    return report["seen"] or _blank(page), report["ended"]


async def after(tabs: Tabs, end: str, config) -> tuple[dict, Any]:
    """The settled page after an action; and what the end script says.

    The report is that of the tab that is active then, which may be a new one.
    """
    clock = asyncio.get_running_loop().time
    latest = clock() + config.settle_cap_s
    for look in range(_LOOKS):
        page = tabs.active
        report = await _look(page, end, look > 0, config)
        seen = report["seen"] or _blank(page)
        if not seen["url"].startswith(pages.ERROR_PAGE):
            page.url, page.title = seen["url"], seen["title"]
        if (report["ended"] or {}).get("is_done"):
            return seen, report["ended"]
        if clock() < latest and await _is_pending(tabs, page, seen, latest - clock()):
            continue
        break
    is_bare = await _lacks_images(page)
    seen["late"] = LOADING if is_bare else _late(tabs, report)
    return seen, report["ended"]


async def ask(page: Page, script: str, config) -> Any:
    """What a page function returns on a page that has become quiet."""
    return await page.evaluate(
        f"""(async () => {{
          const probe = window.__probe;
          if (probe) {{ {quiet(config)} }}
          return await ({script})();
        }})()""",
        config.settle_cap_s + config.action_timeout_s,
    )


def quiet(config) -> str:
    """A script that waits until the probe's document is quiet; `pace` is how it went.

    What changes afterwards is not the action's doing.
    """
    quiet_ms, cap_ms = config.settle_quiet_s * 1000, config.settle_cap_s * 1000
    settled = f"await probe.settle({quiet_ms}, {cap_ms})"
    return f"const pace = {settled}; probe.freeze();"


async def _look(page: Page, end: str, is_again: bool, config) -> dict:
    return await page.evaluate(
        f"""(async () => {{
          {_end(end)}
          const probe = window.__probe;
          if (!probe) return {{ended: await end(), seen: null}};
          {"probe.resume();" if is_again else ""}
          {quiet(config)}
          const ended = await end();
          const [entry] = performance.getEntriesByType('navigation');
          return {{ended, pace, seen: {{...probe.after(), kind: document.contentType,
            status: entry ? entry.responseStatus : 0}}}};
        }})()""",
        config.settle_cap_s + config.action_timeout_s,
    )


async def _is_pending(tabs: Tabs, page: Page, seen: dict, left_s: float) -> bool:
    """True after waiting for something that the action began, if there was any."""
    if tabs.is_growing:
        await tabs.wait_popup(left_s)
    elif page.is_loading:
        await page.wait_idle(left_s)
    elif seen.get("leaving"):
        await page.wait_moved(left_s)
    elif seen.get("fetching") and not tabs.has_download:
        await tabs.wait_download(left_s)
    else:
        return await _wait_images(page, min(left_s, _IMAGES_S))
    return True


async def _wait_images(page: Page, left_s: float) -> bool:
    """True after waiting for images behind what is in view, if there were any."""
    clock = asyncio.get_running_loop().time
    end, has_waited = clock() + left_s, False
    while clock() < end and await _lacks_images(page):
        has_waited = True
        await asyncio.sleep(_LOOK_S)
    return has_waited


async def _lacks_images(page: Page) -> bool:
    """True iff an image that is on its way belongs behind something in view.

    The probe waits for those that are elements; most others only count visits.
    """
    urls = pages.literal(page.image_urls)
    script = f"Boolean(window.__probe && __probe.paints({urls}))"
    return bool(page.image_urls) and await page.evaluate(script)


def _late(tabs: Tabs, report: dict) -> str:
    """What the page still lacks after all waiting; "" = nothing."""
    pace = report.get("pace") or {}
    if tabs.active.is_loading or tabs.is_growing or pace.get("images"):
        return LOADING
    return "the page is still changing" if pace.get("restless") else ""


def _end(script: str) -> str:
    return _END % script if script else _NO_END


def _blank(page: Page) -> dict:
    """The report of a document that our probe could not enter."""
    return {"url": page.raw.url, "title": "", "document": page.raw.url}
