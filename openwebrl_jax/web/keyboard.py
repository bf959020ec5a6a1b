"""The tools of the keyboard: write and press_keys."""

from openwebrl_jax.web import keys, plans
from openwebrl_jax.web import page as pages
from openwebrl_jax.web.feedback import Deed, shorten
from openwebrl_jax.web.page import Page

_KEYED = 100  # characters typed key by key; the rest of a text goes in at once
_TEXT_LIMIT = 20_000
_PRESSES = 50
_SLOWEST_KEY_S = 0.1


def plan_write(arguments, place) -> plans.Plan:
    message = arguments.get("message")
    if not isinstance(message, str):
        raise plans.Refusal(f"message is a text, got {message!r}")
    if len(message) > _TEXT_LIMIT:
        raise plans.Refusal(
            f"message has {len(message)} characters, over {_TEXT_LIMIT}"
        )
    return plans.Plan(tool="write", arguments={"message": message})


async def write(plan, tabs, before, place) -> Deed:
    page = tabs.active
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
        names = ["+".join(map(str, names))] if is_hotkey else names
        combos = [keys.combo(name) for name in names]
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
            if len(combo) == 1 and not combo.isascii():
                await page.bounded(keyboard.insert_text(combo))
            else:
                await page.bounded(keyboard.press(combo))
    times = f" {presses} times" if presses > 1 else ""
    return Deed(text=f"pressed {', '.join(combos)}{times}")
