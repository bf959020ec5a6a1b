"""Calls and places that the browser tests share."""

from openwebrl_jax.core.types import Step, Task, ToolCall

TOP = [500, 100]  # the middle of a block in the uppermost 44 pixels of the page
BLOCK = "position:absolute;left:0;top:0;width:160px;height:44px;"
HOST = "site.test"


def call(name, **arguments) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


CLICK = call("click", point_2d=TOP)


def make_task(path, **fields) -> Task:
    known = {"id": "t", "intent": "try", "max_turns": 3, "sites": (HOST,)}
    return Task(**{**known, "start_url": f"http://{HOST}{path}", **fields})


def said(step: Step) -> tuple[str, str]:
    """State and text of the only feedback line."""
    (line,) = step.feedback
    return line.state, line.text
