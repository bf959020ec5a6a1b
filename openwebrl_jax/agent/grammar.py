"""Reply text <-> thought and tool calls: the wire format of a turn.

A reply is a thought, its closing tag, then one or more JSON calls, each in its own
`<tool_call>` block. `parse` takes whatever a model wrote and never raises: a reply is
well formed as a whole or not at all, so that half of it is never run.
"""

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass

from openwebrl_jax.core.types import ToolCall

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"


class ParseError(enum.StrEnum):
    """What is wrong with a reply, in words that its writer can mend it by."""

    OPEN_THOUGHT = f"the thought is not closed by {THINK_CLOSE}"
    NO_CALL = f"there is no {CALL_OPEN} block"
    BAD_JSON = f"a {CALL_OPEN} block does not hold one JSON object"
    OPEN_CALL = f"a {CALL_OPEN} block is not closed by {CALL_CLOSE}"
    BAD_CALL = 'a call needs a text "name" and an object "arguments"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A reply taken apart. Made by `parse`, eaten by `agent.single`.

    Example: "the OK button</think>\\n<tool_call>\\n{...}\\n</tool_call>" ->
    Parsed(thought="the OK button", calls=(ToolCall(...),), error=None).
    """

    thought: str
    calls: tuple[ToolCall, ...] = ()  # empty iff there is an error
    error: ParseError | None = None  # None = well formed


class _Malformed(ValueError):
    """Carries a ParseError from where it is seen to `parse`."""

    def __init__(self, error: ParseError):
        super().__init__(error)
        self.error = error


def parse(text: str, open_think: bool = True) -> Parsed:
    """Takes a reply apart; `open_think` says that it begins inside the thought."""
    body = text.lstrip()
    has_opening = body.startswith(THINK_OPEN)
    before, border, after = body.removeprefix(THINK_OPEN).partition(THINK_CLOSE)
    if not border and (open_think or has_opening):
        return Parsed(thought=before.strip(), error=ParseError.OPEN_THOUGHT)
    if not border:
        before, after = body.partition(CALL_OPEN)[0], body
    try:
        return Parsed(thought=before.strip(), calls=_calls(after))
    except _Malformed as fault:
        return Parsed(thought=before.strip(), error=fault.error)


def render(thought: str, calls: Sequence[ToolCall], open_think: bool = True) -> str:
    """The reply that `parse` takes back apart into the same thought and calls."""
    if THINK_CLOSE in thought:
        raise ValueError(f"a thought may not hold {THINK_CLOSE!r}: {thought!r}")
    opening = "" if open_think else THINK_OPEN
    blocks = "".join(f"\n{call_block(call)}" for call in calls)
    return f"{opening}{thought}{THINK_CLOSE}{blocks}"


def call_block(call: ToolCall) -> str:
    """One call as its block."""
    value = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{CALL_OPEN}\n{json.dumps(value, ensure_ascii=False)}\n{CALL_CLOSE}"


def _calls(text: str) -> tuple[ToolCall, ...]:
    """Reads block after block; what stands between them is ignored.

    Blocks are cut by the JSON itself, not by the closing tag: a message that is to be
    typed may hold any tag.
    """
    calls, start = [], text.find(CALL_OPEN)
    while start >= 0:
        call, end = _call(text, start + len(CALL_OPEN))
        calls.append(call)
        start = text.find(CALL_OPEN, end)
    if not calls:
        raise _Malformed(ParseError.NO_CALL)
    return tuple(calls)


def _call(text: str, start: int) -> tuple[ToolCall, int]:
    """The call that begins at `start`, and where its block ends."""
    start += len(text[start:]) - len(text[start:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is no text
    except (ValueError, RecursionError) as fault:
        raise _Malformed(ParseError.BAD_JSON) from fault
    rest = text[end:].lstrip()
    if not rest.startswith(CALL_CLOSE):
        raise _Malformed(ParseError.BAD_JSON if rest else ParseError.OPEN_CALL)
    return _as_call(value), len(text) - len(rest) + len(CALL_CLOSE)


def _as_call(value: object) -> ToolCall:
    """The JSON value as a call; a tool without arguments may leave them out."""
    if not isinstance(value, dict):
        raise _Malformed(ParseError.BAD_JSON)
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise _Malformed(ParseError.BAD_CALL)
    return ToolCall(name=name, arguments=arguments)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
