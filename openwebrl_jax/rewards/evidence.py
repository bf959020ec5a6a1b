"""What a judge is shown of a trajectory: its calls, screenshots and words, as data.

Whatever a page, the policy or a user wrote stands in the prompt as a JSON string in
which every letter that is not printable, and every `<`, is an escape: it cannot end its
quotes, begin a line, or spell a control token of the judge's own chat format.
"""

import base64
import json
from typing import Any

from openwebrl_jax.core.types import Observation, ToolCall, Trajectory

FEEDBACK_CHARS = 300  # also of each argument
ANSWER_CHARS = 3000
HISTORY_CHARS = 30_000  # the newest calls; a policy must not make itself unjudgeable
LEAST_CHARS = 40  # a line is not cut below it

Message = dict[str, Any]


def quoted(value: Any) -> str:
    """JSON of foreign words, in one line of printable letters without `<`."""
    return "".join(
        letter if letter.isprintable() and letter != "<" else _escape(letter)
        for letter in json.dumps(value, ensure_ascii=False)
    )


def _escape(letter: str) -> str:
    """The letter as JSON writes it inside a string: a surrogate pair above U+FFFF."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{int.from_bytes(units[n : n + 2]):04x}" for n in range(0, len(units), 2)
    )


def history(trajectory: Trajectory, *, with_feedback: bool = True) -> list[str]:
    """One line a call that was run, its feedback bounded; no thoughts."""
    lines = []
    for step, turn in enumerate(trajectory.turns, 1):
        for call, line in zip(turn.calls, turn.feedback, strict=False):
            told = {"step": step, "call": call.name, "arguments": arguments(call)}
            if with_feedback:
                told["feedback"] = shortened(line.text)
            lines.append(quoted(told))
    return newest(lines) or ["(no call was run)"]


def newest(lines: list[str], limit: int = HISTORY_CHARS) -> list[str]:
    """The last lines that come to at most `limit` characters, and how many do not."""
    kept = 0
    while kept < len(lines) and (limit := limit - len(lines[-1 - kept])) >= 0:
        kept += 1
    left_out = len(lines) - kept
    note = [f"({left_out} earlier lines are left out)"] if left_out else []
    return [*note, *lines[left_out:]]


def actions(trajectory: Trajectory) -> list[str]:
    """One line a call that was run: the address where, and the kind of call."""
    lines = [
        quoted({"step": step, "address": address(turn.observation), "call": call.name})
        for step, turn in enumerate(trajectory.turns, 1)
        for call, _ in zip(turn.calls, turn.feedback, strict=False)
    ]
    return newest(lines) or ["(no call was run)"]


def address(seen: Observation) -> str:
    """Of the active tab; "" = there is none."""
    return seen.tabs[seen.active_tab].url if seen.tabs else ""


def answer(trajectory: Trajectory) -> str:
    """What the agent answered, quoted and bounded."""
    return quoted(shortened(trajectory.answer, ANSWER_CHARS))


def arguments(call: ToolCall) -> dict[str, Any]:
    """A call's arguments, each bounded, and all of them together."""
    told = {name: _bounded(value) for name, value in call.arguments.items()}
    words = json.dumps(told)
    if len(words) > 4 * FEEDBACK_CHARS:
        return {"arguments": shortened(words, 4 * FEEDBACK_CHARS)}
    return told


def _bounded(value: Any) -> Any:
    """A text is shortened; so is what else would be long, as its JSON."""
    if isinstance(value, str):
        return shortened(value)
    words = json.dumps(value)
    return value if len(words) <= FEEDBACK_CHARS else shortened(words)


def shortened(text: str, limit: int = FEEDBACK_CHARS) -> str:
    """At most `limit` characters: most of it from the head, the rest from the tail."""
    if len(text) <= limit:
        return text
    mark = " [...] "
    tail = limit * 3 // 10
    return text[: limit - len(mark) - tail] + mark + text[-tail:]


def screenshots(trajectory: Trajectory, count: int) -> list[tuple[str, bytes]]:
    """The newest `count` with what they are called, then the page at the end; -1 = none
    at all, not even that one."""
    if count < 0:
        return []
    turns = list(enumerate(trajectory.turns, 1))[-count:] if count else []
    shown = [(f"before step {step}", turn.observation) for step, turn in turns]
    if trajectory.final is not None:
        shown.append(("at the end", trajectory.final))
    return [(label, seen.screenshot) for label, seen in shown]


def pictures(shown: list[tuple[str, bytes]]) -> list[Message]:
    """Each screenshot behind its name, as parts of a message."""
    return [
        part for label, png in shown for part in (text(f"Page {label}:"), image(png))
    ]


def ask(instructions: str, *parts: Any) -> list[Message]:
    """The messages of one question; a part that is a text becomes one."""
    content = [text(part) if isinstance(part, str) else part for part in parts]
    return [
        {"role": "system", "content": instructions},
        {"role": "user", "content": content},
    ]


def cut(messages: list[Message], intent: str) -> list[Message] | None:
    """The question with less evidence, for a judge that cannot read it all: its longest
    lines halved, then the older half of them left out, but the task is never touched;
    None = there is nothing left to cut."""
    system, user = messages
    task = quoted(intent)
    parts = user["content"]
    found = [
        part["text"].split("\n") if part["type"] == "text" else [] for part in parts
    ]
    for less in (_halved, _newer):
        made = less(found, (task, f"Task: {task}"))
        if made != found:
            content = [
                text("\n".join(lines)) if part["type"] == "text" else part
                for part, lines in zip(parts, made, strict=True)
            ]
            return [system, user | {"content": content}]
    return None


def _halved(found: list[list[str]], kept: tuple[str, ...]) -> list[list[str]]:
    """No line longer than half of the longest one, but those that are kept."""
    lengths = [len(line) for lines in found for line in lines if line not in kept]
    limit = max(max(lengths, default=0) // 2, LEAST_CHARS)
    return [
        [line if line in kept else _fitted(line, limit) for line in lines]
        for lines in found
    ]


def _newer(found: list[list[str]], kept: tuple[str, ...]) -> list[list[str]]:
    """Of the lines that are foreign words the newer half, and all others."""
    made = []
    for lines in found:
        data = [n for n, line in enumerate(lines) if _is_data(line, kept)]
        old = data[: len(data) // 2]
        made.append([line for n, line in enumerate(lines) if n not in old])
    return made


def _is_data(line: str, kept: tuple[str, ...]) -> bool:
    return line.startswith(('"', "{")) and line not in kept


def _fitted(line: str, limit: int) -> str:
    """At most so long, and then a JSON string: no words come out of their quotes."""
    if len(line) <= limit:
        return line
    try:
        value = json.loads(line)
    except ValueError:
        value = line
    words = value if isinstance(value, str) else line
    size = min(len(words), limit)
    while len(made := quoted(shortened(words, size))) > limit and size > 12:
        size = max(size * 3 // 4, 12)
    return made


def text(words: str) -> Message:
    """A part of a message that is text."""
    return {"type": "text", "text": words}


def image(png: bytes) -> Message:
    """A part of a message that is a picture."""
    data = base64.b64encode(png).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
