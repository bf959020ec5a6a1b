"""The tools of the keyboard: write and press_keys."""

import re

from openwebrl_jax.web import frames, keys, plans
from openwebrl_jax.web import page as pages
from openwebrl_jax.web.feedback import Deed, shorten
from openwebrl_jax.web.page import Page

_KEYED = 100  # characters typed key by key; the rest of a text goes in at once
_LONGEST = 20_000
_PRESSES = 50
_SLOWEST_KEY_S = 0.1
_LINES = 200  # of a rich text that are broken by keys


def plan_write(arguments, place) -> plans.Plan:
    message = arguments.get("message")
    if not isinstance(message, str):
        raise plans.Refusal(f"message is a text, got {message!r}")
    message = re.sub(r"\r\n?", "\n", message)
    return plans.Plan(tool="write", arguments={"message": message})


async def write(plan, tabs, before, place) -> Deed:
    """Puts the message in place of what the focused field holds."""
    page = tabs.active
    message, focus = plan.arguments["message"], before.get("focus")
    text = f"typed '{shorten(message.strip() or message, 60)}'"
    problem = _problem(focus)
    if problem:
        return Deed(text=text, problem=problem)
    text = f"{text} into {focus['name']}"
    if len(message) > _LONGEST:
        text += f", the first {_LONGEST} of its {len(message)} characters"
        message = message[:_LONGEST]
    if focus["native"]:
        script = f"window.__probe.fill({pages.literal(message)})"
        problem = await frames.focused(page, before, script)
        return Deed(text=text, typed=message.strip(), problem=problem or "")
    if focus["lines"]:
        await _replace(page, before, message, place)
        return Deed(text=text, typed=message)
    # Enter in the middle of a single line would send the form and type on elsewhere.
    line, is_entered = message.rstrip("\n"), message.endswith("\n")
    flat = re.sub(r"\n+", " ", line)
    text += " without its line breaks" if flat != line else ""
    if line or not is_entered:
        await _replace(page, before, flat, place)
    if is_entered:
        await page.bounded(page.raw.keyboard.press("Enter"))
        text += ", then pressed Enter"
    return Deed(text=text, typed=flat)


def _problem(focus: dict | None) -> str:
    """Why there is nothing to write into; "" = there is."""
    if not focus:
        return "no text field has focus, click one first"
    if not (focus["text"] or focus["foreign"]):
        return f"focus is on {focus['name']}, which takes no text, click a field first"
    return "it cannot be edited" if focus["fixed"] else ""


async def _replace(page: Page, before: dict, text: str, place) -> None:
    focus, limit_s = before["focus"], place.config.action_timeout_s
    if focus["foreign"]:  # a frame that does not answer takes keys all the same
        await page.bounded(page.raw.keyboard.press("Control+a"))
    else:
        await frames.focused(page, before, "window.__probe.selectAll()")
    if not text:
        await page.bounded(page.raw.keyboard.press("Delete"))
    elif focus["rich"] and text.count("\n") <= _LINES:
        await _type_lines(page, text.split("\n"), limit_s)
    else:
        await _type(page, text, limit_s)


async def _type_lines(page: Page, lines: list[str], limit_s: float) -> None:
    """Lines with Shift+Enter between, as Enter alone would send a chat message."""
    for number, line in enumerate(lines):
        if number:
            await page.bounded(page.raw.keyboard.press("Shift+Enter"))
        if line:
            await _type(page, line, limit_s)


async def _type(page: Page, text: str, limit_s: float) -> None:
    """Types by keys as far as that is not too slow, the last character always."""
    keyboard = page.raw.keyboard
    head, tail = (text[:-1], text[-1]) if len(text) > _KEYED else ("", text)
    if head:
        await page.bounded(keyboard.insert_text(head))
    first, *rest = tail.split("\n")
    await page.bounded(keyboard.type(first), limit_s + _SLOWEST_KEY_S * len(first))
    for line in rest:
        await page.bounded(keyboard.press("Shift+Enter"))
        await page.bounded(keyboard.type(line), limit_s + _SLOWEST_KEY_S * len(line))


def plan_press(arguments, place) -> plans.Plan:
    names = arguments.get("keys")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names:
        raise plans.Refusal(f"keys is a list of key names, got {names!r}")
    is_hotkey = arguments.get("is_hotkey", False)
    if not isinstance(is_hotkey, bool):
        raise plans.Refusal(f"is_hotkey is true or false, got {is_hotkey!r}")
    presses = int(plans.number(arguments, "presses", 1, 1, _PRESSES))
    try:
        # Modifiers before a key mean the combination, also where nobody said so.
        is_hotkey = is_hotkey or keys.is_combo(names)
        combos = [keys.combo(names)] if is_hotkey else [keys.combo([n]) for n in names]
    except ValueError as error:
        raise plans.Refusal(str(error)) from None
    return plans.Plan(
        tool="press_keys", arguments={"combos": combos, "presses": presses}
    )


async def press(plan, tabs, before, place) -> Deed:
    page = tabs.active
    combos, presses = plan.arguments["combos"], plan.arguments["presses"]
    keyboard = page.raw.keyboard
    for combo in combos:
        for _ in range(presses):
            if keys.is_text(combo):
                await page.bounded(keyboard.insert_text(combo))
            else:
                await page.bounded(keyboard.press(combo))
    times = f" {presses} times" if presses > 1 else ""
    return Deed(text=f"pressed {', '.join(combos)}{times}")
