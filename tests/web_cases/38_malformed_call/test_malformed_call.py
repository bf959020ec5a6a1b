"""Malformed tool calls: each input is mended and counted, or a typed error; no input
raises, runs by halves, or is taken for an answer."""

import json

import pytest

from openwebrl_jax.agent import grammar
from openwebrl_jax.agent.grammar import Leniency, ParseError
from openwebrl_jax.core.types import ToolCall

A = ToolCall(name="click", arguments={"point_2d": [1, 2]})
B = ToolCall(name="go_back", arguments={})
JSON_A = '{"name": "click", "arguments": {"point_2d": [1, 2]}}'
JSON_B = '{"name": "go_back", "arguments": {}}'
DEEP = '{"a": ' * 1700 + "1" + "}" * 1700  # 10 kB


def block(inner: str) -> str:
    return f"<tool_call>\n{inner}\n</tool_call>"


def written(message: str) -> tuple[ToolCall, ...]:
    return (ToolCall(name="write", arguments={"message": message}),)


# What stands behind the thought -> the calls and how they were mended.
MENDED = {
    "trailing comma": (
        block('{"name": "click", "arguments": {"point_2d": [1, 2,],},}'),
        (A,),
        Leniency.TRAILING_COMMA,
    ),
    "comment": (
        block('{"name": "click", // the button\n"arguments": {"point_2d": [1, 2]}}'),
        (A,),
        Leniency.COMMENT,
    ),
    "single quotes": (
        block("{'name': 'click', 'arguments': {'point_2d': [1, 2]}}"),
        (A,),
        Leniency.SINGLE_QUOTES,
    ),
    "Python's words": (
        block('{"name": "write", "arguments": {"message": None}}'),
        (ToolCall(name="write", arguments={"message": None}),),
        Leniency.PYTHON_WORD,
    ),
    "fence in the block": (block(f"```json\n{JSON_A}\n```"), (A,), Leniency.FENCE),
    "fence without tags": (f"```json\n{JSON_A}\n```", (A,), Leniency.NO_TAGS),
    "no tags": (f"\n{JSON_A}\n", (A,), Leniency.NO_TAGS),
    "arguments as a text": (
        block(json.dumps({"name": "click", "arguments": '{"point_2d": [1, 2]}'})),
        (A,),
        Leniency.ARGUMENTS_TEXT,
    ),
    "parameters": (
        block('{"name": "click", "parameters": {"point_2d": [1, 2]}}'),
        (A,),
        Leniency.PARAMETERS,
    ),
    "an id beside": (block(JSON_A[:-1] + ', "id": "c1"}'), (A,), Leniency.EXTRA_KEY),
    "nested": (block(f'{{"tool_call": {JSON_A}}}'), (A,), Leniency.NESTED),
    "an endpoint's form": (
        block(f'{{"type": "function", "function": {JSON_A}}}'),
        (A,),
        Leniency.NESTED,
    ),
    "a list": (block(f"[{JSON_A}, {JSON_B}]"), (A, B), Leniency.LIST),
    "an open block": (f"<tool_call>\n{JSON_A}", (A,), Leniency.OPEN_BLOCK),
    "an open block, then another": (
        f"<tool_call>{JSON_A}\n{block(JSON_B)}",
        (A, B),
        Leniency.OPEN_BLOCK,
    ),
    "a raw line break": (
        block('{"name": "write", "arguments": {"message": "a\nb"}}'),
        written("a\nb"),
        Leniency.RAW_CONTROL,
    ),
}

ERRORS = {
    "unclosed brace": (block(JSON_A[:-1]), ParseError.BAD_JSON),
    "unclosed text": (block('{"name": "click'), ParseError.BAD_JSON),
    "cut off": (f"<tool_call>\n{JSON_A[:-9]}", ParseError.BAD_JSON),
    "words behind": (block(f"{JSON_A} as you see"), ParseError.BAD_JSON),
    "a brace too many": (block(JSON_A + "}"), ParseError.BAD_JSON),
    "two in a block": (block(f"{JSON_A}\n{JSON_B}"), ParseError.BAD_JSON),
    "open, then words": (f"<tool_call>{JSON_A} bye", ParseError.OPEN_CALL),
    "keys without quotes": (block("{name: 1}"), ParseError.BAD_JSON),
    "NaN": (
        block('{"name": "wait", "arguments": {"seconds": NaN}}'),
        ParseError.BAD_NUMBER,
    ),
    "infinite": (
        block('{"name": "wait", "arguments": {"seconds": 1e400}}'),
        ParseError.BAD_NUMBER,
    ),
    "a name twice": (block('{"name": "a", "name": "b"}'), ParseError.SAME_KEY),
    "an argument twice": (
        block('{"name": "a", "arguments": {"x": 1, "x": 1}}'),
        ParseError.SAME_KEY,
    ),
    "10 kB deep": (
        block(f'{{"name": "a", "arguments": {DEEP}}}'),
        ParseError.TOO_DEEP,
    ),
    "deep in a text": (
        block(json.dumps({"name": "a", "arguments": DEEP})),
        ParseError.TOO_DEEP,
    ),
    "arguments beside the name": (
        block('{"name": "click", "point_2d": [1, 2]}'),
        ParseError.BAD_CALL,
    ),
    "arguments and parameters": (
        block('{"name": "a", "arguments": {}, "parameters": {}}'),
        ParseError.BAD_CALL,
    ),
    "a list of nothing": (block("[]"), ParseError.BAD_JSON),
    "words only": ("I am done: the answer is 42.", ParseError.NO_CALL),
    "the answer as JSON": ('{"answer": 42}', ParseError.NO_CALL),
    "nothing": ("", ParseError.NO_CALL),
}


@pytest.mark.parametrize("kind", MENDED)
def test_what_has_one_meaning_is_mended_only_where_that_is_wanted(kind):
    said, calls, leniency = MENDED[kind]
    mended = grammar.parse(f"t</think>\n{said}", lenient=True)
    assert (mended.calls, mended.error) == (calls, None)
    assert leniency in mended.leniencies

    strict = grammar.parse(f"t</think>\n{said}")
    assert strict.calls == () and strict.leniencies == mended.leniencies
    assert strict.error is not None and strict.complaint.startswith(strict.error)
    start, end = strict.span
    assert len("t</think>") <= start < end <= len("t</think>\n") + len(said)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
def test_what_has_not_is_a_typed_error(kind, lenient):
    said, error = ERRORS[kind]
    parsed = grammar.parse(f"t</think>\n{said}", lenient=lenient)
    assert (parsed.error, parsed.calls, parsed.thought) == (error, (), "t")
    start, end = parsed.span
    assert len("t</think>") <= start <= end <= len("t</think>\n") + len(said)


@pytest.mark.parametrize("lenient", [False, True])
def test_one_bad_call_stops_them_all(lenient):
    said = f"t</think>\n{block(JSON_A)}\n{block('{')}"
    assert grammar.parse(said, lenient=lenient).calls == ()


def test_several_calls_are_read_in_order_and_words_around_them_are_counted():
    clean = grammar.parse(f"t</think>\n{block(JSON_A)}\n{block(JSON_B)}")
    assert (clean.calls, clean.leniencies) == ((A, B), ())
    wordy = grammar.parse(f"t</think>So:{block(JSON_A)}, then {block(JSON_B)} bye")
    assert (wordy.calls, wordy.leniencies) == ((A, B), (Leniency.TEXT_AROUND,))


@pytest.mark.parametrize("lenient", [False, True])
def test_a_call_in_the_thought_is_only_thought_of(lenient):
    said = f"<think>maybe {block(JSON_B)}</think>\n{block(JSON_A)}"
    assert grammar.parse(said, lenient=lenient).calls == (A,)
    alone = grammar.parse(f"<think>maybe {block(JSON_B)}</think>", lenient=lenient)
    assert (alone.calls, alone.error) == ((), ParseError.NO_CALL)


@pytest.mark.parametrize("tag", ["</tool_call>", "<tool_call>", "</think>", "```"])
def test_a_tag_inside_a_text_is_text(tag):
    calls = (*written(f"a{tag}b"), A)
    parsed = grammar.parse(grammar.render("t", calls))
    assert (parsed.calls, parsed.leniencies) == (calls, ())
