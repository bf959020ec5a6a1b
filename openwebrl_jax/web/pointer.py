"""The tools of the mouse: click, hover, drag and scroll."""

import asyncio

from openwebrl_jax.web import plans
from openwebrl_jax.web.feedback import Deed
from openwebrl_jax.web.page import Page

_AXES = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}
_STEPS = 100


def plan_click(arguments, place) -> plans.Plan:
    point = plans.point(arguments, "point_2d", place.config)
    clicks = plans.number(arguments, "clicks", 1, 1, 3)
    button = plans.choice(arguments, "button", ("left", "right", "middle"))
    kept = {"clicks": int(clicks), "button": button}
    return plans.Plan(tool="click", arguments=kept, point=point)


async def click(plan, tabs, before, place) -> Deed:
    page = tabs.active
    button, clicks = plan.arguments["button"], plan.arguments["clicks"]
    events = [("mouseMoved", 0, "none")]
    for count in range(1, clicks + 1):
        events += [("mousePressed", count, button), ("mouseReleased", count, button)]
    await asyncio.gather(
        *(
            _mouse(page, kind, plan.point, button=name, clickCount=count)
            for kind, count, name in events
        )
    )
    hit = before.get("hit") or {}
    if button == "middle" and hit.get("link"):
        await tabs.wait_popup(place.config.settle_cap_s)
    verb = {1: "clicked", 2: "double-clicked", 3: "triple-clicked"}[clicks]
    verb = verb if button == "left" else f"{button}-{verb}"
    return Deed(text=f"{verb} {_name(before)}", is_choosing=button == "left")


def plan_hover(arguments, place) -> plans.Plan:
    point = plans.point(arguments, "point_2d", place.config)
    return plans.Plan(tool="hover", arguments={}, point=point)


async def hover(plan, tabs, before, place) -> Deed:
    await _mouse(tabs.active, "mouseMoved", plan.point)
    tip = (before.get("hit") or {}).get("tip", "")
    return Deed(text=f"hovered over {_name(before)}", tip=tip)


def plan_drag(arguments, place) -> plans.Plan:
    start = plans.point(arguments, "start_point_2d", place.config)
    end = plans.point(arguments, "end_point_2d", place.config)
    steps = int(plans.number(arguments, "steps", 10, 1, _STEPS))
    kept = {"end": end, "steps": steps}
    return plans.Plan(tool="drag", arguments=kept, point=start)


async def drag(plan, tabs, before, place) -> Deed:
    # Playwright's mouse, as it carries on where Chromium begins a drag of its own.
    page = tabs.active
    mouse, limit_s = page.raw.mouse, place.config.action_timeout_s
    x, y = plan.arguments["end"]
    onto = await page.evaluate(f"window.__probe ? window.__probe.nameAt({x}, {y}) : ''")
    await page.bounded(mouse.move(*plan.point), limit_s)
    await page.bounded(mouse.down(), limit_s)
    try:
        await page.bounded(mouse.move(x, y, steps=plan.arguments["steps"]), limit_s)
        await page.bounded(mouse.move(x, y), limit_s)  # some want to be over it twice
    finally:
        await page.bounded(mouse.up(), limit_s)
    text = f"dragged {_name(before)} to {onto or 'the end point'}"
    return Deed(text=text, is_drag=True)


def plan_scroll(arguments, place) -> plans.Plan:
    middle = [plans.SCALE / 2, plans.SCALE / 2]
    given = arguments.get("point_2d")
    aim = {"point_2d": middle if given is None else given}
    point = plans.point(aim, "point_2d", place.config)
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


async def _mouse(page: Page, kind: str, point, **more) -> None:
    x, y = point
    await page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def _name(before: dict) -> str:
    hit = before.get("hit")
    return hit["name"] if hit else "the page"
