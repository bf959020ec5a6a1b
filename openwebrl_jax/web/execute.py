"""The tools: a ToolCall becomes input events, and a Deed that says what was done.

Arguments come from a model, so each is checked here; a wrong one is a `Refusal`, which
becomes `failed` feedback. Coordinates are 0..1000 on each axis and become pixels in
`to_pixels` alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import guard, keys
from openwebrl_jax.web import page as pages
from openwebrl_jax.web.feedback import Deed, shorten
from openwebrl_jax.web.page import Page, Trouble

SCALE = 1000
_KEYED = 100  # characters typed key by key; the rest of a text goes in at once
_TEXT_LIMIT = 20_000
_PRESSES = 50
_HUGE = 1e300
_SLOWEST_KEY_S = 0.1
_AXES = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}


class Refusal(Exception):
    """A call that cannot be carried out as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A call whose arguments are sound. Made by `plan`, eaten by `act`."""

    tool: str
    arguments: Mapping[str, Any]
    point: tuple[float, float] | None = None  # in pixels; None = aimed at no point


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call happens: the config, the task's sites, and all local sites."""

    config: Any
    sites: tuple[str, ...]
    hosts: tuple[str, ...]


def to_pixels(point_2d: Any, width_px: int, height_px: int) -> tuple[float, float]:
    """Model coordinates (0..1000 on each axis, clamped) -> a pixel of the viewport.

    Example: [500, 1000] on 160 x 224 -> (80.0, 223.0).
    """
    is_pair = isinstance(point_2d, list | tuple) and len(point_2d) == 2
    if not is_pair or not all(_is_number(value) for value in point_2d):
        raise Refusal(f"point_2d is two numbers from 0 to {SCALE}, got {point_2d!r}")
    sides = (width_px, height_px)
    x, y = (
        min(min(max(value, 0), SCALE) / SCALE * side, side - 1)
        for value, side in zip(point_2d, sides, strict=True)
    )
    return x, y


def plan(call: ToolCall, place: Place) -> Plan:
    """Checks the arguments of a call; a Refusal says what is wrong with them."""
    if call.name not in _TOOLS:
        known = ", ".join(_TOOLS)
        raise Refusal(f"there is no tool {call.name!r}, the tools are {known}")
    return _TOOLS[call.name].plan(call.arguments, place)


async def act(plan: Plan, page: Page, before: dict, place: Place) -> Deed:
    """Carries a plan out; `before` is the probe's report of just before."""
    return await _TOOLS[plan.tool].act(plan, page, before, place)


# ---- click ---------------------------------------------------------------------------


def _plan_click(arguments, place) -> Plan:
    point = to_pixels(
        arguments.get("point_2d"), place.config.width_px, place.config.height_px
    )
    clicks = _number(arguments, "clicks", 1, 1, 3)
    button = _choice(arguments, "button", ("left", "right", "middle"))
    kept = {"clicks": int(clicks), "button": button}
    return Plan(tool="click", arguments=kept, point=point)


async def _click(plan, page, before, place) -> Deed:
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


# ---- write ---------------------------------------------------------------------------


def _plan_write(arguments, place) -> Plan:
    message = arguments.get("message")
    if not isinstance(message, str):
        raise Refusal(f"message is a text, got {message!r}")
    if len(message) > _TEXT_LIMIT:
        raise Refusal(f"message has {len(message)} characters, over {_TEXT_LIMIT}")
    return Plan(tool="write", arguments={"message": message})


async def _write(plan, page, before, place) -> Deed:
    message, focus = plan.arguments["message"], before.get("focus")
    text = f"typed '{shorten(message, 60)}'"
    if not focus or not (focus["text"] or focus["foreign"]):
        return Deed(text=text, problem="no text field has focus, click one first")
    text = f"{text} into {focus['name']}"
    if focus["fixed"]:
        return Deed(text=text, problem="it cannot be edited")
    if focus["native"]:
        literal = pages.literal(message)
        problem = await page.evaluate(f"window.__probe.fill({literal})")
        return Deed(text=text, typed=message, problem=problem)
    flat = message if focus["lines"] else " ".join(message.splitlines())
    if flat != message:
        text += " without its line breaks"
    if focus["foreign"]:
        await page.bounded(page.raw.keyboard.press("Control+a"))
    else:
        await page.evaluate("window.__probe.selectAll()")
    await _type(page, flat, place.config.action_timeout_s)
    return Deed(text=text, typed=flat)


async def _type(page: Page, text: str, limit_s: float) -> None:
    """Replaces what is selected, by keys where that is not too slow."""
    keyboard = page.raw.keyboard
    if not text:
        await page.bounded(keyboard.press("Delete"))
        return
    head, tail = (text[:-1], text[-1]) if len(text) > _KEYED else ("", text)
    if head:
        await page.bounded(keyboard.insert_text(head))
    await page.bounded(keyboard.type(tail), limit_s + _SLOWEST_KEY_S * len(tail))


# ---- press_keys ----------------------------------------------------------------------


def _plan_keys(arguments, place) -> Plan:
    names = arguments.get("keys")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names:
        raise Refusal(f"keys is a list of key names, got {names!r}")
    is_hotkey = arguments.get("is_hotkey", False)
    if not isinstance(is_hotkey, bool):
        raise Refusal(f"is_hotkey is true or false, got {is_hotkey!r}")
    presses = int(_number(arguments, "presses", 1, 1, _PRESSES))
    try:
        names = ["+".join(map(str, names))] if is_hotkey else names
        combos = [keys.combo(name) for name in names]
    except ValueError as error:
        raise Refusal(str(error)) from None
    return Plan(tool="press_keys", arguments={"combos": combos, "presses": presses})


async def _press(plan, page, before, place) -> Deed:
    combos, presses = plan.arguments["combos"], plan.arguments["presses"]
    keyboard = page.raw.keyboard
    for combo in combos:
        for _ in range(presses):
            if len(combo) == 1 and not combo.isascii():
                await page.bounded(keyboard.insert_text(combo))
            else:
                await page.bounded(keyboard.press(combo))
    times = f" {presses} times" if presses > 1 else ""
    return Deed(text=f"pressed {', '.join(combos)}{times}")


# ---- scroll --------------------------------------------------------------------------


def _plan_scroll(arguments, place) -> Plan:
    width_px, height_px = place.config.width_px, place.config.height_px
    point_2d = arguments.get("point_2d")
    middle = [SCALE / 2, SCALE / 2]
    point = to_pixels(middle if point_2d is None else point_2d, width_px, height_px)
    direction = _choice(arguments, "direction", tuple(_AXES))
    amount = _number(arguments, "amount", 0.5, 0.0, 1.0)
    kept = {"direction": direction, "amount": amount}
    return Plan(tool="scroll", arguments=kept, point=point)


async def _scroll(plan, page, before, place) -> Deed:
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


# ---- wait, done ----------------------------------------------------------------------


def _plan_wait(arguments, place) -> Plan:
    seconds = _number(arguments, "seconds", 3.0, 0.0, place.config.wait_cap_s)
    return Plan(tool="wait", arguments={"seconds": seconds})


async def _wait(plan, page, before, place) -> Deed:
    seconds = plan.arguments["seconds"]
    await asyncio.sleep(seconds)
    return Deed(text=f"waited {seconds:g} s", asked_s=seconds)


def _plan_done(arguments, place) -> Plan:
    response = arguments.get("response")
    if not isinstance(response, str):
        raise Refusal(f"response is a text, got {response!r}")
    return Plan(tool="done", arguments={"response": response})


async def _done(plan, page, before, place) -> Deed:
    answer = plan.arguments["response"]
    return Deed(text="marked as done", is_final=True, answer=answer)


# ---- goto_url, go_back ---------------------------------------------------------------


def _plan_goto(arguments, place) -> Plan:
    url = arguments.get("url")
    if not isinstance(url, str):
        raise Refusal(f"url is a text, got {url!r}")
    try:
        url = guard.check(url, place.sites, place.hosts)
    except ValueError as error:
        raise Refusal(f"{shorten(url, 80)!r} is refused, {error}") from None
    return Plan(tool="goto_url", arguments={"url": url})


async def _goto(plan, page, before, place) -> Deed:
    url = plan.arguments["url"]
    status, asked_s = await _timed(page.goto(url))
    text = f"opened {shorten(url, 100)}"
    if status >= 400:
        text += f" (HTTP {status})"
    return Deed(text=text, asked_s=asked_s)


def _plan_back(arguments, place) -> Plan:
    return Plan(tool="go_back", arguments={})


async def _back(plan, page, before, place) -> Deed:
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


# ---- arguments -----------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and -_HUGE < value < _HUGE  # so neither infinite nor NaN


def _choice(arguments, name: str, known: tuple[str, ...]) -> str:
    """One of the known words; the first is the default."""
    value = arguments.get(name, known[0])
    if value not in known:
        raise Refusal(f"{name} is one of {', '.join(known)}, got {value!r}")
    return value


def _number(arguments, name: str, default: float, least: float, most: float) -> float:
    """A number argument, clamped; a Refusal where it is none."""
    value = arguments.get(name, default)
    if not _is_number(value):
        raise Refusal(f"{name} is a number from {least:g} to {most:g}, got {value!r}")
    return min(max(value, least), most)


@dataclass(frozen=True, slots=True)
class _Tool:
    plan: Callable[[Mapping[str, Any], Place], Plan]
    act: Callable[[Plan, Page, dict, Place], Awaitable[Deed]]


_TOOLS = {
    "click": _Tool(_plan_click, _click),
    "write": _Tool(_plan_write, _write),
    "press_keys": _Tool(_plan_keys, _press),
    "scroll": _Tool(_plan_scroll, _scroll),
    "wait": _Tool(_plan_wait, _wait),
    "done": _Tool(_plan_done, _done),
    "goto_url": _Tool(_plan_goto, _goto),
    "go_back": _Tool(_plan_back, _back),
}
