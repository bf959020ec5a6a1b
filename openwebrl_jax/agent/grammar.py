"""Reply text <-> thought and tool calls: the wire format of a turn.

A reply is a thought, its closing tag, then one or more JSON calls, each in its own
`<tool_call>` block; all are run, in order. Only what stands behind the thought is
parsed. `parse` takes whatever a model wrote and never raises: a reply is well formed
as a whole or not at all, so that half of it is never run.

Strictly (`config.agent.lenient = False`) the format is JSON as it is defined, and a
departure is an error, so that training cannot reward it; words around the blocks are
let pass. Leniently a departure is mended where one meaning alone is possible:

    mended     code fence, trailing comma, comment, single quotes, True False None,
               raw control character in a text, arguments as a JSON text,
               "parameters", further keys, {"tool_call": {...}}, list of calls,
               missing closing tag behind a whole object, bare object without tags
    an error   unclosed brace, words behind the object in its block, a key twice,
               NaN, an infinite number, nesting past 32, half a surrogate pair,
               arguments beside the name, no call, an open thought

Either way `Parsed.leniencies` names what was, or would have been, mended.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openwebrl_jax.agent import loose
from openwebrl_jax.agent.loose import Fault, Leniency, Note, ParseError, Span
from openwebrl_jax.core.types import ToolCall

GRAMMAR_VERSION = 2  # of this table; a trajectory names the one that read it

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"

# What a leniency is when nothing is mended; None = it is let pass.
_STRICTLY = {
    Leniency.TEXT_AROUND: None,
    Leniency.ARGUMENTS_TEXT: ParseError.BAD_CALL,
    Leniency.PARAMETERS: ParseError.BAD_CALL,
    Leniency.EXTRA_KEY: ParseError.BAD_CALL,
    Leniency.NESTED: ParseError.BAD_CALL,
    Leniency.OPEN_BLOCK: ParseError.OPEN_CALL,
    Leniency.NO_TAGS: ParseError.NO_CALL,
}  # all others are BAD_JSON
_WRAPPERS = ("tool_call", "tool_calls", "function")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A reply taken apart. Made by `parse`, eaten by `agent.single`.

    Example: "the OK button</think>\\n<tool_call>\\n{...}\\n</tool_call>" ->
    Parsed(thought="the OK button", calls=(ToolCall(...),), error=None).
    """

    thought: str
    calls: tuple[ToolCall, ...] = ()  # empty iff there is an error
    error: ParseError | None = None  # None = it could be read
    span: Span | None = None  # of the error in the reply; None = no error
    leniencies: tuple[Leniency, ...] = ()  # each once, in the order of the text

    @property
    def complaint(self) -> str:
        """The error in words, with what could be mended; "" = none."""
        mends = [name for name in self.leniencies if _strictly(name) is not None]
        named = f" ({', '.join(mends)})".replace("_", " ") if mends else ""
        return f"{self.error}{named}" if self.error else ""


def parse(text: str, open_think: bool = True, lenient: bool = False) -> Parsed:
    """Takes a reply apart.

    Args:
      text: what the model wrote, whatever that is.
      open_think: the reply begins inside the thought.
      lenient: True = departures with one meaning are mended, else they are errors.
    """
    thought, start = _thought(text, open_think)
    if start is None:
        span = (0, len(text))
        return Parsed(thought=thought, error=ParseError.OPEN_THOUGHT, span=span)
    try:
        calls, notes = _calls(text, start)
    except Fault as fault:
        return Parsed(thought=thought, error=fault.error, span=fault.span)
    used = tuple(dict.fromkeys(note.leniency for note in notes))
    for note in [] if lenient else notes:
        if error := _strictly(note.leniency):
            return Parsed(thought=thought, error=error, span=note.span, leniencies=used)
    return Parsed(thought=thought, calls=tuple(calls), leniencies=used)


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


def blocks(text: str) -> list[Span]:
    """Where the blocks behind the thought stand, tags included; [] if one is open.

    Blocks are cut by the JSON itself, not by the closing tag: a message that is to be
    typed may hold any tag. What holds no JSON ends at the first closing tag.
    """
    found: list[Span] = []
    at = text.find(CALL_OPEN, max(text.find(THINK_CLOSE), 0))
    while at >= 0:
        inner = _past(_OPENING, text, at + len(CALL_OPEN))
        try:
            inner = loose.read(text, inner)[1]
        except Fault:
            pass
        closing = text.find(CALL_CLOSE, inner)
        if closing < 0:
            return []
        found.append((at, closing + len(CALL_CLOSE)))
        at = text.find(CALL_OPEN, found[-1][1])
    return found


_SPACE = re.compile(r"\s*")
_OPENING = re.compile(r"\s*(?:```\w*\s*)?")
_CLOSING = re.compile(r"\s*(?:```\s*)?")


def _thought(text: str, open_think: bool) -> tuple[str, int | None]:
    """The thought and where the rest begins; None = the thought is never closed."""
    start = _past(_SPACE, text, 0)
    has_opening = text.startswith(THINK_OPEN, start)
    start += len(THINK_OPEN) if has_opening else 0
    border, call = text.find(THINK_CLOSE, start), text.find(CALL_OPEN, start)
    if open_think or has_opening:
        is_closed = border >= 0
    else:  # a reply that may lack a thought: a tag in its calls is none of its own
        is_closed = 0 <= border and (border < call or call < 0)
    if is_closed:
        return text[start:border].strip(), border + len(THINK_CLOSE)
    if open_think or has_opening:
        return text[start:].strip(), None
    if call < 0:
        return "", start
    return text[start:call].strip(), call


def _calls(text: str, start: int) -> tuple[list[ToolCall], list[Note]]:
    """Reads block after block."""
    at = text.find(CALL_OPEN, start)
    if at < 0:
        return _bare(text, start)
    calls: list[ToolCall] = []
    notes = _around(text, start, at)
    while at >= 0:
        found, end = _block(text, at, notes)
        calls += found
        at = text.find(CALL_OPEN, end)
        notes += _around(text, end, at if at >= 0 else len(text))
    return calls, notes


def _block(text: str, at: int, notes: list[Note]) -> tuple[list[ToolCall], int]:
    """The calls of the block that opens at `at`, and where it ends."""
    start = _fence(text, at + len(CALL_OPEN), _OPENING, notes)
    value, end, more = loose.read(text, start)
    notes += more
    rest = _fence(text, end, _CLOSING, notes)
    if text.startswith(CALL_CLOSE, rest):
        end = rest + len(CALL_CLOSE)
    elif rest == len(text) or text.startswith(CALL_OPEN, rest):
        notes.append(Note(leniency=Leniency.OPEN_BLOCK, span=(at, rest)))
        end = rest
    else:
        closing = text.find(CALL_CLOSE, rest)
        error = ParseError.BAD_JSON if closing >= 0 else ParseError.OPEN_CALL
        raise Fault(error, (rest, closing if closing >= 0 else len(text)))
    return _as_calls(value, (start, end), notes), end


def _bare(text: str, start: int) -> tuple[list[ToolCall], list[Note]]:
    """The calls of a reply that is nothing but their JSON."""
    none = Fault(ParseError.NO_CALL, (start, len(text)))
    notes: list[Note] = []
    at = _fence(text, start, _OPENING, notes)
    if text[at : at + 1] not in ("{", "["):
        raise none
    try:
        value, end, more = loose.read(text, at)
        if _fence(text, end, _CLOSING, []) != len(text):
            raise none
        notes = [Note(leniency=Leniency.NO_TAGS, span=(at, end)), *notes, *more]
        return _as_calls(value, (at, end), notes), notes
    except Fault:
        raise none from None


def _as_calls(value: Any, span: Span, notes: list[Note]) -> list[ToolCall]:
    """The JSON value as calls; a tool without arguments may leave them out."""

    def note(leniency: Leniency) -> None:
        notes.append(Note(leniency=leniency, span=span))

    value, is_wrapped = _unwrapped(value)
    if is_wrapped:
        note(Leniency.NESTED)
    if isinstance(value, list) and value:
        note(Leniency.LIST)
        return [call for item in value for call in _one(item, span, notes, note)]
    return _one(value, span, notes, note)


def _one(value: Any, span: Span, notes: list[Note], note: Any) -> list[ToolCall]:
    value, is_wrapped = _unwrapped(value)
    if is_wrapped:
        note(Leniency.NESTED)
    if not isinstance(value, dict):
        raise Fault(ParseError.BAD_JSON, span)
    name = value.get("name")
    keys = [key for key in ("arguments", "parameters") if key in value]
    if len(keys) > 1 or not isinstance(name, str) or not name:
        raise Fault(ParseError.BAD_CALL, span)
    arguments = value[keys[0]] if keys else {}
    if len(value) > 1 + len(keys):
        if not keys:  # they are the arguments, or are they
            raise Fault(ParseError.BAD_CALL, span)
        note(Leniency.EXTRA_KEY)
    if keys == ["parameters"]:
        note(Leniency.PARAMETERS)
    if isinstance(arguments, str):
        note(Leniency.ARGUMENTS_TEXT)
        arguments = _told(arguments, span, notes)
    if not isinstance(arguments, dict):
        raise Fault(ParseError.BAD_CALL, span)
    return [ToolCall(name=name, arguments=arguments)]


def _told(text: str, span: Span, notes: list[Note]) -> Any:
    """The JSON that a text holds; its faults stand where the text stands."""
    try:
        value, end, more = loose.read(text, _past(_SPACE, text, 0))
    except Fault as fault:
        raise Fault(fault.error, span) from None
    if _past(_SPACE, text, end) != len(text):
        raise Fault(ParseError.BAD_CALL, span)
    notes += [Note(leniency=it.leniency, span=span) for it in more]
    return value


def _unwrapped(value: Any) -> tuple[Any, bool]:
    """What stands inside {"tool_call": ...} and its like, and whether it did."""
    is_wrapped = False
    while isinstance(value, dict):
        inner = [key for key in value if key in _WRAPPERS]
        if len(inner) != 1 or not value.keys() <= {*inner, "type", "id"}:
            break
        value, is_wrapped = value[inner[0]], True
    return value, is_wrapped


def _around(text: str, start: int, end: int) -> list[Note]:
    """Notes words that stand beside the blocks."""
    words = text[start:end]
    if not words.strip():
        return []
    return [Note(leniency=Leniency.TEXT_AROUND, span=(start, end))]


def _fence(text: str, at: int, pattern: re.Pattern[str], notes: list[Note]) -> int:
    """Over space and a code fence, which is noted."""
    end = _past(pattern, text, at)
    if text[at:end].strip():
        notes.append(Note(leniency=Leniency.FENCE, span=(at, end)))
    return end


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _strictly(leniency: Leniency) -> ParseError | None:
    return _STRICTLY.get(leniency, ParseError.BAD_JSON)
