"""What frames of other sites know: asked only when the point or the focus is in one.

The probe of the page answers for its own site's frames; a frame of another site is a
world of its own, whose probe is asked through Playwright. What it says takes the place
of the page's word on `hit` and `focus`, and is added to what changed and scrolled.
"""

import contextlib
from typing import Any

from openwebrl_jax.web import settle
from openwebrl_jax.web.page import Page, Trouble

_DEPTH = 4
_NAMED = 5
_ASIDE = "asked"  # frame -> its report of before, kept in the page's report


async def before(page: Page, plan, seen: dict) -> None:
    """Completes the page's report of just before an action."""
    asked: dict[Any, dict] = {}
    seen[_ASIDE] = asked
    for part in ("hit", "focus"):
        frame = page.raw.main_frame
        for _ in range(_DEPTH):
            told = seen.get(part)
            if not told or not told["foreign"]:
                break
            frame = await _child(page, frame, part)
            if frame is None:
                break
            if frame not in asked:
                point = str(told["local"]) if part == "hit" else "null"
                is_scroll = str(plan.tool == "scroll" and part == "hit").lower()
                script = f"window.__probe.before({point}, {is_scroll})"
                asked[frame] = await ask(page, frame, script) or {}
                seen["scrolls"] = asked[frame].get("scrolls", []) + seen["scrolls"]
            if not asked[frame].get(part):
                break
            seen[part] = asked[frame][part]
            seen[f"{part}_frame"] = frame


async def after(page: Page, before: dict, seen: dict, config) -> None:
    """Completes the page's report of after that action."""
    focus = seen.get("focus")
    asked = before.get(_ASIDE) or {}
    if not asked and not (focus and focus["foreign"]):
        return
    for frame, was in asked.items():
        script = f"""(async () => {{
          const probe = window.__probe;
          if (!probe) return null;
          {settle.quiet(config)}
          return probe.after();
        }})()"""
        told = await ask(page, frame, script)
        if told:
            _add(seen, told, was, before.get("hit_frame") is frame)
    frame = page.raw.main_frame
    for _ in range(_DEPTH):
        if not seen["focus"] or not seen["focus"]["foreign"]:
            return
        frame = await _child(page, frame, "focus")
        told = frame and await ask(page, frame, "window.__probe.after()")
        if not told or not told["focus"]:
            return
        seen["focus"], seen["stays"] = told["focus"], told["stays"]


async def ask(page: Page, frame, script: str) -> Any:
    """What a frame answers; None = it is gone, or goes elsewhere for ever."""
    for _ in range(2):
        try:
            return await page.bounded(frame.evaluate(script))
        except Trouble as trouble:
            if trouble.kind != "moved":
                return None
        with contextlib.suppress(Trouble):
            await page.bounded(frame.wait_for_load_state("domcontentloaded"))
    return None


async def focused(page: Page, seen: dict, script: str) -> Any:
    """Runs a script in the frame that has focus, where it is another site's."""
    frame = seen.get("focus_frame")
    if frame is None:
        return await page.evaluate(script)
    return await ask(page, frame, script)


async def _child(page: Page, frame, part: str):
    """The frame that is hit or has focus within a frame; None = it cannot be told."""
    try:
        script = f"window.__probe.{part}Frame()"
        handle = await page.bounded(frame.evaluate_handle(script))
        element = handle.as_element()
        return element and await page.bounded(element.content_frame())
    except Trouble:
        return None


def _add(seen: dict, told: dict, was: dict, is_hit: bool) -> None:
    """Adds a frame's report of after to the page's; `was` is the frame's of before."""
    for name in ("changes", "styles", "more", "vanished"):
        seen[name] = seen.get(name, 0) + told[name]
    names = [*seen.get("appeared", ()), *told["appeared"]]
    seen["appeared"] = names[:_NAMED]
    seen["more"] += len(names[_NAMED:])
    seen["scrolls"] = told["scrolls"] + seen.get("scrolls", [])
    for name in ("files", "menu", "wheel"):
        seen[name] = seen.get(name) or told[name]
    if was.get("document") != told["document"]:
        seen["frame"] = told["title"] or told["url"]
    if is_hit:
        for name in ("state", "moved", "list", "left"):
            seen[name] = told[name]
