"""The tools: a ToolCall becomes input events, and a Deed that says what was done."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import frames, keyboard, navigate, plans, pointer
from openwebrl_jax.web.feedback import Deed
from openwebrl_jax.web.plans import Place, Plan
from openwebrl_jax.web.tabs import Tabs


def plan(call: ToolCall, place: Place) -> Plan:
    """Checks the arguments of a call; a Refusal says what is wrong with them."""
    tools = known(place.config)
    if call.name not in tools:
        listed = ", ".join(tools)
        raise plans.Refusal(f"there is no tool {call.name!r}, the tools are {listed}")
    return _TOOLS[call.name].plan(call.arguments, place)


def known(config) -> tuple[str, ...]:
    """The tools that config.web allows."""
    return tuple(name for name in _TOOLS if name != "go_forward" or config.go_forward)


def is_input(name: str) -> bool:
    """True iff the tool touches the page, as against the browser around it."""
    return name in _INPUTS


async def act(plan: Plan, tabs: Tabs, before: dict, place: Place) -> Deed:
    """Carries a plan out on the active tab; `before` is the report of just before."""
    await frames.before(tabs.active, plan, before)
    return await _TOOLS[plan.tool].act(plan, tabs, before, place)


def _plan_wait(arguments, place) -> Plan:
    seconds = plans.number(arguments, "seconds", 3.0, 0.0, place.config.wait_cap_s)
    return Plan(tool="wait", arguments={"seconds": seconds})


async def _wait(plan, tabs, before, place) -> Deed:
    seconds = plan.arguments["seconds"]
    await asyncio.sleep(seconds)
    return Deed(text=f"waited {seconds:g} s", asked_s=seconds)


def _plan_done(arguments, place) -> Plan:
    response = arguments.get("response")
    if not isinstance(response, str):
        raise plans.Refusal(f"response is a text, got {response!r}")
    return Plan(tool="done", arguments={"response": response})


async def _done(plan, tabs, before, place) -> Deed:
    answer = plan.arguments["response"]
    return Deed(text="marked as done", is_final=True, answer=answer)


@dataclass(frozen=True, slots=True)
class _Tool:
    plan: Callable[[Mapping[str, Any], Place], Plan]
    act: Callable[[Plan, Tabs, dict, Place], Awaitable[Deed]]


_TOOLS = {
    "click": _Tool(pointer.plan_click, pointer.click),
    "hover": _Tool(pointer.plan_hover, pointer.hover),
    "drag": _Tool(pointer.plan_drag, pointer.drag),
    "write": _Tool(keyboard.plan_write, keyboard.write),
    "press_keys": _Tool(keyboard.plan_press, keyboard.press),
    "scroll": _Tool(pointer.plan_scroll, pointer.scroll),
    "wait": _Tool(_plan_wait, _wait),
    "done": _Tool(_plan_done, _done),
    "goto_url": _Tool(navigate.plan_goto, navigate.goto),
    "go_back": _Tool(navigate.plan_back, navigate.back),
    "go_forward": _Tool(navigate.plan_forward, navigate.forward),
    "new_tab": _Tool(navigate.plan_new_tab, navigate.new_tab),
    "switch_tab": _Tool(navigate.plan_switch, navigate.switch),
    "close_tab": _Tool(navigate.plan_close, navigate.close),
}

_INPUTS = ("click", "write", "press_keys", "scroll", "drag", "hover")
