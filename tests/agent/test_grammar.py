import json

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.agent import grammar
from openwebrl_jax.agent.grammar import ParseError
from openwebrl_jax.core.types import ToolCall

CLICK = ToolCall(name="click", arguments={"point_2d": [480, 520]})
BLOCK = '<tool_call>\n{"name": "click", "arguments": {"point_2d": [480, 520]}}\n'
BLOCK += "</tool_call>"

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=6,
)
CALLS = st.builds(
    ToolCall, name=TEXT.filter(bool), arguments=st.dictionaries(TEXT, VALUES)
)
THOUGHTS = TEXT.map(str.strip).filter(lambda text: "think>" not in text)


def test_render_is_the_wire_format():
    text = grammar.render("the OK button", (CLICK, CLICK))
    assert text == f"the OK button</think>\n{BLOCK}\n{BLOCK}"


@hypothesis.given(THOUGHTS, st.lists(CALLS, min_size=1, max_size=3), st.booleans())
def test_parse_takes_back_what_render_made(thought, calls, open_think):
    parsed = grammar.parse(grammar.render(thought, calls, open_think), open_think)
    assert parsed == grammar.Parsed(thought=thought, calls=tuple(calls))


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "{",
    "}",
    '"name":',
    '"',
]
PIECES += ["[", "\n", "\\ud800", '{"name": "a", "arguments": {}}', "NaN", "1" * 5000]


@hypothesis.given(st.lists(st.sampled_from(PIECES) | st.text()), st.booleans())
def test_parse_never_raises_and_gives_calls_or_an_error(pieces, open_think):
    parsed = grammar.parse("".join(pieces), open_think)
    assert bool(parsed.calls) == (parsed.error is None)
    json.dumps([dict(call.arguments) for call in parsed.calls]).encode()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ParseError.OPEN_THOUGHT),
        (f"no border {BLOCK}", ParseError.OPEN_THOUGHT),
        (f"<think>{BLOCK}", ParseError.OPEN_THOUGHT),
        ("t</think>", ParseError.NO_CALL),
        ("t</think>\nI clicked it.", ParseError.NO_CALL),
        (f"{BLOCK}</think>", ParseError.NO_CALL),  # a call that was only thought of
        ("t</think><tool_call>", ParseError.BAD_JSON),
        ("t</think><tool_call>click</tool_call>", ParseError.BAD_JSON),
        ("t</think><tool_call>[1]</tool_call>", ParseError.BAD_JSON),
        ("t</think><tool_call>NaN</tool_call>", ParseError.BAD_JSON),
        ('t</think><tool_call>{"name": "a"} b</tool_call>', ParseError.BAD_JSON),
        ('t</think><tool_call>{"name": "\\ud800"}</tool_call>', ParseError.BAD_JSON),
        (f"t</think><tool_call>{'[' * 99_999}</tool_call>", ParseError.BAD_JSON),
        ('t</think><tool_call>{"name": "a"}', ParseError.OPEN_CALL),
        (f't</think>{BLOCK}<tool_call>{{"name": "a"}}', ParseError.OPEN_CALL),
        ('t</think><tool_call>{"name": 1}</tool_call>', ParseError.BAD_CALL),
        ('t</think><tool_call>{"arguments": {}}</tool_call>', ParseError.BAD_CALL),
        (
            't</think><tool_call>{"name": "a", "arguments": []}</tool_call>',
            ParseError.BAD_CALL,
        ),
    ],
)
def test_a_malformed_reply_has_its_error_and_no_calls(text, error):
    parsed = grammar.parse(text)
    assert (parsed.error, parsed.calls) == (error, ())


@pytest.mark.parametrize(
    ("text", "open_think"),
    [
        (f"ok</think>\n{BLOCK}", True),
        (f"<think>ok</think>\n{BLOCK}", True),
        (f"\n ok </think>so:{BLOCK}bye", True),
        (f"<think>ok</think>{BLOCK}", False),
        (f"ok\n{BLOCK}", False),
    ],
)
def test_parse_is_lenient_about_what_stands_around(text, open_think):
    parsed = grammar.parse(text, open_think)
    assert parsed == grammar.Parsed(thought="ok", calls=(CLICK,))


def test_a_tool_without_arguments_may_leave_them_out():
    parsed = grammar.parse('t</think><tool_call>{"name": "go_back"}</tool_call>')
    assert parsed.calls == (ToolCall(name="go_back", arguments={}),)


def test_a_typed_message_may_hold_any_tag():
    call = ToolCall(name="write", arguments={"message": "</tool_call><tool_call>{"})
    assert grammar.parse(grammar.render("t", (call,))).calls == (call,)


def test_a_thought_that_would_close_itself_is_refused():
    with pytest.raises(ValueError, match="</think>"):
        grammar.render("a</think>b", (CLICK,))
