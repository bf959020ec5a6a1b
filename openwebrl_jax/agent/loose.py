"""JSON as models write it: a reader that notes each departure, and never guesses more.

In: a text and where a value begins. Out: the value, where it ends, and the notes. A
value without notes is exactly what `json` reads there. What cannot be read in one way
only (a key twice, NaN, a number beyond all bounds) is a Fault, not a note.
"""

import enum
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

DEPTH = 32  # of nested lists and objects; what comes later recurses over them

Span = tuple[int, int]  # start and end of a piece of the text


class ParseError(enum.StrEnum):
    """What is wrong with a reply, in words that its writer can mend it by."""

    OPEN_THOUGHT = "the thought is not closed by </think>"
    NO_CALL = "there is no <tool_call> block"
    BAD_JSON = "a <tool_call> block does not hold one JSON object"
    OPEN_CALL = "a <tool_call> block is not closed by </tool_call>"
    BAD_CALL = 'a call needs a text "name" and an object "arguments"'
    SAME_KEY = "a JSON object names a key twice"
    BAD_NUMBER = "a number is not finite"
    TOO_DEEP = f"JSON is nested deeper than {DEPTH} levels"
    BAD_TEXT = "a text holds half a character"


class Leniency(enum.StrEnum):
    """A departure from the wire format whose meaning is plain all the same."""

    TEXT_AROUND = "text_around"  # words before, between or behind the blocks
    FENCE = "fence"  # ```json around the object
    TRAILING_COMMA = "trailing_comma"
    COMMENT = "comment"  # // or /* */
    SINGLE_QUOTES = "single_quotes"
    PYTHON_WORD = "python_word"  # True, False, None
    RAW_CONTROL = "raw_control"  # a line break or tab in a text, not escaped
    ARGUMENTS_TEXT = "arguments_text"  # "arguments" holds JSON as a text
    PARAMETERS = "parameters"  # "parameters" in place of "arguments"
    EXTRA_KEY = "extra_key"  # more than name and arguments, such as an id
    NESTED = "nested"  # {"tool_call": {...}}, {"type": "function", "function": {...}}
    LIST = "list"  # several calls in one block
    OPEN_BLOCK = "open_block"  # </tool_call> is missing after a whole object
    NO_TAGS = "no_tags"  # the reply is the bare object


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A leniency that was used, and where."""

    leniency: Leniency
    span: Span


class Fault(ValueError):
    """Carries a ParseError and its place to the one who asked."""

    def __init__(self, error: ParseError, span: Span):
        super().__init__(error)
        self.error = error
        self.span = span


def read(text: str, start: int) -> tuple[Any, int, list[Note]]:
    """The value that begins at `start`, where it ends, and what was departed from."""
    reader = _Reader(text)
    value, end = reader.value(start, 1)
    return value, end, reader.notes


_SPACE = re.compile(r"[ \t\n\r]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"-?Infinity|NaN")
_WORD = re.compile(r"true|false|null|True|False|None")
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_WORDS = {"true": True, "false": False, "null": None, **_PYTHON_WORDS}
_TEXTS = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_CONTROL = re.compile(r"[\x00-\x1f]")
_HALF = re.compile("[\ud800-\udfff]")
_QUOTE = re.compile(r"\\.|\"", re.DOTALL)  # what may be written in another way

_REQUOTED = {"\\'": "'", '"': '\\"'}  # from a text in single quotes to double ones


@dataclass(slots=True)
class _Reader:
    text: str
    notes: list[Note] = field(default_factory=list)

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        mark = self.text[at : at + 1]
        if mark in ("{", "["):
            if depth > DEPTH:
                raise Fault(ParseError.TOO_DEEP, (at, at + 1))
            return (self._object if mark == "{" else self._list)(at, depth)
        if mark in _TEXTS:
            return self._string(at)
        if found := _INFINITE.match(self.text, at):
            raise Fault(ParseError.BAD_NUMBER, found.span())
        if found := _NUMBER.match(self.text, at):
            return _number(found), found.end()
        return self._word(at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        at = self._skip(at + 1)
        while self.text[at : at + 1] != "}":
            if self.text[at : at + 1] not in ('"', "'"):
                raise self._bad(at)
            key, end = self._string(at)
            if key in made:
                raise Fault(ParseError.SAME_KEY, (at, end))
            at = self._skip(self._pass(self._skip(end), ":"))
            made[key], at = self.value(at, depth + 1)
            at = self._next(at, "}")
        return made, at + 1

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        made: list[Any] = []
        at = self._skip(at + 1)
        while self.text[at : at + 1] != "]":
            item, at = self.value(at, depth + 1)
            made.append(item)
            at = self._next(at, "]")
        return made, at + 1

    def _next(self, at: int, closing: str) -> int:
        """Over the comma behind an item; stands at the next one or at the closing."""
        at = self._skip(at)
        if self.text[at : at + 1] == closing:
            return at
        comma = at
        at = self._skip(self._pass(at, ","))
        if self.text[at : at + 1] == closing:
            self._note(Leniency.TRAILING_COMMA, (comma, comma + 1))
        return at

    def _string(self, at: int) -> tuple[str, int]:
        quote = self.text[at]
        found = _TEXTS[quote].match(self.text, at)
        if found is None:
            raise Fault(ParseError.BAD_JSON, (at, len(self.text)))
        inner = found[1]
        if quote == "'":
            self._note(Leniency.SINGLE_QUOTES, found.span())
            inner = _QUOTE.sub(lambda it: _REQUOTED.get(it[0], it[0]), inner)
        if _CONTROL.search(inner):
            self._note(Leniency.RAW_CONTROL, found.span())
        try:
            said = json.loads(f'"{inner}"', strict=False)
        except ValueError:
            raise Fault(ParseError.BAD_JSON, found.span()) from None
        if _HALF.search(said):
            raise Fault(ParseError.BAD_TEXT, found.span())
        return said, found.end()

    def _word(self, at: int) -> tuple[bool | None, int]:
        found = _WORD.match(self.text, at)
        if found is None:
            raise self._bad(at)
        if found[0] in _PYTHON_WORDS:
            self._note(Leniency.PYTHON_WORD, found.span())
        return _WORDS[found[0]], found.end()

    def _skip(self, at: int) -> int:
        """Over space and comments."""
        while True:
            found = _SPACE.match(self.text, at)
            at = found.end() if found else at
            comment = _COMMENT.match(self.text, at)
            if comment is None:
                return at
            self._note(Leniency.COMMENT, comment.span())
            at = comment.end()

    def _pass(self, at: int, mark: str) -> int:
        if not self.text.startswith(mark, at):
            raise self._bad(at)
        return at + 1

    def _bad(self, at: int) -> Fault:
        return Fault(ParseError.BAD_JSON, (at, min(at + 1, len(self.text))))

    def _note(self, leniency: Leniency, span: Span) -> None:
        self.notes.append(Note(leniency=leniency, span=span))


def _number(found: re.Match[str]) -> float:
    try:
        is_whole = found[1] is None and found[2] is None
        value = int(found[0]) if is_whole else float(found[0])
    except ValueError:  # more digits than Python takes
        value = math.inf
    if not is_whole and not math.isfinite(value) or value == math.inf:
        raise Fault(ParseError.BAD_NUMBER, found.span())
    return value
