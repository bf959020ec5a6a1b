"""The texts that the policy reads: system texts, tool schemas, user texts.

`config.agent.prompt` chooses: `full` for real models, `short` for tiny ones, where
each token counts. Tool names, argument names and the tags of a user text are those of
OpenWebRL's released data; the wording is ours. Words of users and pages can never
become a mark of the prompt: `quote` breaks them.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from openwebrl_jax.core.types import IMAGE_MARK, Feedback, Observation

STYLES = ("full", "short")
TITLE_CHARS = 50

_POINT = {
    "type": "array",
    "items": {"type": "number"},
    "minItems": 2,
    "maxItems": 2,
}


def _tool(
    name: str, description: str, required: tuple[str, ...] = (), **properties: Any
) -> dict[str, Any]:
    """One function schema as OpenAI-style endpoints and chat templates write it."""
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters,
        },
    }


def _argument(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **more}


def _point(description: str) -> dict[str, Any]:
    return {**_POINT, "description": f"{description} as [x, y]"}


TOOLS = (
    _tool(
        "click",
        "Click at a point of the page.",
        ("point_2d",),
        point_2d=_point("Where to click"),
        clicks=_argument("integer", "How many times; 2 double-clicks", default=1),
        button=_argument(
            "string",
            "Mouse button",
            enum=["left", "right", "middle"],
            default="left",
        ),
    ),
    _tool(
        "write",
        "Replace the text of the focused field. Click the field first.",
        ("message",),
        message=_argument("string", "The new text of the field"),
    ),
    _tool(
        "press_keys",
        "Press keys, one after the other or together.",
        ("keys",),
        keys=_argument("array", 'Key names such as "Enter"', items={"type": "string"}),
        is_hotkey=_argument("boolean", "Hold them down together", default=False),
        presses=_argument("integer", "How many times", default=1),
    ),
    _tool(
        "scroll",
        "Scroll the page, or the box under a point.",
        direction=_argument(
            "string",
            "Where to",
            enum=["up", "down", "left", "right"],
            default="down",
        ),
        amount=_argument("number", "Part of the viewport, 0 to 1", default=0.5),
        point_2d=_point("A point in the box to scroll; none scrolls the page,"),
    ),
    _tool(
        "wait",
        "Let the page work for a while.",
        seconds=_argument("integer", "How long", default=3),
    ),
    _tool(
        "done",
        "End the task with its answer, also when it cannot be done.",
        ("response",),
        response=_argument("string", "The answer in plain text"),
    ),
    _tool(
        "goto_url",
        "Open an address in this tab.",
        ("url",),
        url=_argument("string", "The whole address, http or https"),
    ),
    _tool("go_back", "Go to the page before this one."),
    _tool(
        "drag",
        "Press the mouse at one point and let go at another.",
        ("start_point_2d", "end_point_2d"),
        start_point_2d=_point("Where to press"),
        end_point_2d=_point("Where to let go"),
        steps=_argument("integer", "Mouse moves between them", default=10),
    ),
    _tool(
        "hover",
        "Move the mouse to a point and leave it there.",
        ("point_2d",),
        point_2d=_point("Where to move"),
    ),
    _tool("new_tab", "Open an empty tab and go to it."),
    _tool(
        "switch_tab",
        "Go to another tab.",
        ("tab_index",),
        tab_index=_argument("integer", "Its number in the list of tabs, from 0"),
    ),
    _tool("close_tab", "Close this tab; the last one cannot be closed."),
)

# Offered where config.web.go_forward says so.
GO_FORWARD = _tool("go_forward", "Go to the page after this one, after going back.")

_SYSTEM_FULL = """\
You use a web browser to do what a user asks. You see the browser only through \
screenshots, and act on it only through the tools listed below.

# What you are given
The first message holds the request and the first screenshot. Each later one holds \
what your last calls did, one line a call, and a new screenshot. Old screenshots are \
taken away; your own replies and the lines stay. Trust the newest screenshot over \
what you expected to happen.

# How to reply
Think first: what the screenshot shows, whether your last calls worked, what is \
still missing, what to do next. Close the thought with </think>. Then write one or \
more calls, each as JSON in a block of its own:
<tool_call>
{"name": "click", "arguments": {"point_2d": [512, 96]}}
</tool_call>
Calls are run in the order in which you write them. Write several only where you \
need not look in between, such as to click a field, fill it and press Enter.

# Rules
- Points go from 0 to 1000 on each axis: [0, 0] is the screenshot's upper left \
corner, [1000, 1000] the lower right one.
- If a call changed nothing, do something else.
- Do every part of the request. Make nothing up: an answer is read off the pages.
- End with `done`. If the site blocks you or the request cannot be done, call \
`done` and say why.

# Tools
<tools>
%s
</tools>"""

_SYSTEM = {"full": _SYSTEM_FULL, "short": "Do the task."}

_FIRST_FULL = """\
<user_request>
{said}
</user_request>

<observation>
{view}
screenshot:
{image}
</observation>"""

_LATER_FULL = """\
<tool_response>
{said}
</tool_response>

<observation>
{view}
screenshot:
{image}
</observation>"""

_MALFORMED = {
    "full": "Your reply could not be read: {error}. Nothing was done. Reply again: a "
    "thought, </think>, then one or more <tool_call> blocks.",
    "short": "malformed",
}

# What foreign words may not begin: a mark of the chat format, a tag of these texts.
_BORDER = re.compile(
    r"<(?=\||/?(?:user_request|observation|tool_response|tool_call|think)\b)"
)


def system_text(style: str, more_tools: Sequence[dict[str, Any]] = ()) -> str:
    """The system text of a style; `more_tools` stand after the thirteen."""
    if style not in STYLES:
        raise ValueError(f"config.agent.prompt={style!r}; set it to one of {STYLES}")
    listed = "\n".join(json.dumps(tool) for tool in (*TOOLS, *more_tools))
    return _SYSTEM[style].replace("%s", listed)


def first_text(style: str, intent: str, observation: Observation) -> tuple[str, str]:
    """The first user text, as seen and as remembered."""
    return _both(style, _FIRST_FULL, quote(intent), observation)


def later_text(
    style: str,
    feedback: Sequence[Feedback],
    parse_error: str,
    observation: Observation,
) -> tuple[str, str]:
    """A later user text, as seen and as remembered: what became of the last reply."""
    if parse_error:
        said = _MALFORMED[style].format(error=parse_error)
    elif style == "short":
        said = ", ".join(f"{line.tool} {line.state}" for line in feedback if line.text)
    else:
        said = "\n".join(_quote_line(line.text) for line in feedback if line.text)
    return _both(style, _LATER_FULL, said, observation)


def quote(text: str) -> str:
    """Foreign words made harmless: none of the prompt's marks and tags is in them."""
    return _BORDER.sub("< ", text)


def _quote_line(text: str) -> str:
    return quote(" ".join(text.split()))


def _both(
    style: str, template: str, said: str, observation: Observation
) -> tuple[str, str]:
    """A text with the image's mark, and what stays of it without the image."""
    if style == "short":
        return f"{said}\n{IMAGE_MARK}\n", f"{said}\n"
    view = _view(observation)
    seen = template.format(said=said, view=view, image=IMAGE_MARK)
    return seen, template.format(said=said, view=view, image="")


def _view(observation: Observation) -> str:
    lines = [
        f"screen: {observation.width_px} x {observation.height_px}",
        f"current tab: {observation.active_tab}",
    ]
    for index, tab in enumerate(observation.tabs):
        mark = " (active)" if index == observation.active_tab else ""
        title = _quote_line(tab.title)[:TITLE_CHARS]
        lines.append(f"- Tab {index}{mark}: {_quote_line(tab.url)} - {title}")
    return "\n".join(lines)
