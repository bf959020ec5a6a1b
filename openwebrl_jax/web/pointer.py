"""The tools of the mouse: click and scroll."""

import asyncio

from openwebrl_jax.web import plans
from openwebrl_jax.web.feedback import Deed
from openwebrl_jax.web.page import Page

_AXES = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}


def plan_click(arguments, place) -> plans.Plan:
    point = plans.to_pixels(
        arguments.get("point_2d"), place.config.width_px, place.config.height_px
    )
    clicks = plans.number(arguments, "clicks", 1, 1, 3)
    button = plans.choice(arguments, "button", ("left", "right", "middle"))
    kept = {"clicks": int(clicks), "button": button}
    return plans.Plan(tool="click", arguments=kept, point=point)


async def click(plan, tabs, before, place) -> Deed:
    page = tabs.active
    hit = before.get("hit") or {"name": "the page", "options": None}
    button, clicks = plan.arguments["button"], plan.arguments["clicks"]
    if hit["options"] is not None and button == "left":
        # The popup of a native list is no part of the page: clicks on it go astray.
        await page.evaluate("window.__probe.focusHit()")
        listed = ", ".join(hit["options"])
        told = f"{hit['name']} (now '{hit['chosen']}'), write one of: {listed}"
        return Deed(text=f"focused {told}")
    events = [("mouseMoved", 0, "none")]
    for count in range(1, clicks + 1):
        events += [("mousePressed", count, button), ("mouseReleased", count, button)]
    await asyncio.gather(
        *(
            _mouse(page, kind, plan.point, button=name, clickCount=count)
            for kind, count, name in events
        )
    )
    verb = {1: "clicked", 2: "double-clicked", 3: "triple-clicked"}[clicks]
    verb = verb if button == "left" else f"{button}-{verb}"
    return Deed(text=f"{verb} {hit['name']}")


async def _mouse(page: Page, kind: str, point, **more) -> None:
    x, y = point
    await page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def plan_scroll(arguments, place) -> plans.Plan:
    width_px, height_px = place.config.width_px, place.config.height_px
    point_2d = arguments.get("point_2d")
    middle = [plans.SCALE / 2, plans.SCALE / 2]
    point = plans.to_pixels(
        middle if point_2d is None else point_2d, width_px, height_px
    )
    direction = plans.choice(arguments, "direction", tuple(_AXES))
    amount = plans.number(arguments, "amount", 0.5, 0.0, 1.0)
    kept = {"direction": direction, "amount": amount}
    return plans.Plan(tool="scroll", arguments=kept, point=point)


async def scroll(plan, tabs, before, place) -> Deed:
    page = tabs.active
    direction, amount = plan.arguments["direction"], plan.arguments["amount"]
    x, y = _AXES[direction]
    await _mouse(
        page,
        "mouseWheel",
        plan.point,
        deltaX=round(x * amount * place.config.width_px),
        deltaY=round(y * amount * place.config.height_px),
    )
    text = f"scrolled {direction} by {round(100 * amount)}%"
    return Deed(text=text, scrolled=direction)
