import json

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.agent import grammar
from openwebrl_jax.agent.grammar import Leniency, ParseError
from openwebrl_jax.core.types import ToolCall

CLICK = ToolCall(name="click", arguments={"point_2d": [480, 520]})
BLOCK = '<tool_call>\n{"name": "click", "arguments": {"point_2d": [480, 520]}}\n'
BLOCK += "</tool_call>"

TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "```", "//", "\x00", "'"]
LETTERS = st.characters(exclude_categories=("Cs",))
TEXT = st.lists(st.text(LETTERS) | st.sampled_from(TAGS), max_size=4).map("".join)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
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


MODES = st.booleans()  # open_think or lenient


@hypothesis.given(THOUGHTS, st.lists(CALLS, min_size=1, max_size=3), MODES, MODES)
def test_parse_takes_back_what_render_made(thought, calls, open_think, lenient):
    text = grammar.render(thought, calls, open_think)
    parsed = grammar.parse(text, open_think, lenient)
    assert parsed == grammar.Parsed(thought=thought, calls=tuple(calls))


@hypothesis.given(THOUGHTS, st.lists(CALLS, min_size=1, max_size=3))
def test_blocks_are_those_that_render_made(thought, calls):
    text = grammar.render(thought, calls)
    cut = [text[start:end] for start, end in grammar.blocks(text)]
    assert cut == [grammar.call_block(call) for call in calls]


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
PIECES += ["]", ",", "'", ":", "\\", "//", "/*", "```json", "\ud800", "1e999", "None"]
PIECES += ['{"name": "a", "arguments": ', '"parameters": "{}"', '{"function": ']


@hypothesis.settings(max_examples=500)
@hypothesis.given(st.lists(st.sampled_from(PIECES) | st.text()), MODES, MODES)
def test_parse_never_raises_and_gives_calls_or_an_error(pieces, open_think, lenient):
    text = "".join(pieces)
    parsed = grammar.parse(text, open_think, lenient)
    assert bool(parsed.calls) == (parsed.error is None) == (parsed.complaint == "")
    for call in parsed.calls:
        told = json.dumps(dict(call.arguments), allow_nan=False, ensure_ascii=False)
        assert json.loads(told.encode()) == call.arguments
    if parsed.error:
        start, end = parsed.span
        assert 0 <= start <= end <= len(text)
    grammar.blocks(text)


@hypothesis.given(st.lists(st.sampled_from(PIECES)), MODES)
def test_what_is_read_strictly_is_read_leniently_too(pieces, open_think):
    text = f"t</think>{''.join(pieces)}"
    strict, mended = (grammar.parse(text, open_think, lenient) for lenient in (0, 1))
    assert mended.calls[: len(strict.calls)] == strict.calls
    assert strict.calls or strict.leniencies or mended.error == strict.error


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
        ("t</think><tool_call>NaN</tool_call>", ParseError.BAD_NUMBER),
        ("t</think><tool_call>-1e999</tool_call>", ParseError.BAD_NUMBER),
        (f"t</think><tool_call>{'1' * 5000}</tool_call>", ParseError.BAD_NUMBER),
        ('t</think><tool_call>{"name": "a"} b</tool_call>', ParseError.BAD_JSON),
        ('t</think><tool_call>{"name": "\\ud800"}</tool_call>', ParseError.BAD_TEXT),
        (f"t</think><tool_call>{'[' * 99_999}</tool_call>", ParseError.TOO_DEEP),
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
    for lenient in (False, True):
        parsed = grammar.parse(text, lenient=lenient)
        is_mended = bool(parsed.leniencies) and lenient
        assert is_mended or (parsed.error, parsed.calls) == (error, ())


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
    assert (parsed.thought, parsed.calls) == ("ok", (CLICK,))
    assert (parsed.leniencies == (Leniency.TEXT_AROUND,)) == ("bye" in text)


def test_a_reply_without_a_thought_may_type_the_tag_that_closes_one():
    call = ToolCall(name="write", arguments={"message": "a</think>b"})
    parsed = grammar.parse(grammar.call_block(call), open_think=False)
    assert parsed == grammar.Parsed(thought="", calls=(call,))


def test_a_complaint_names_what_would_have_been_mended():
    parsed = grammar.parse("t</think><tool_call>{'name': 'a',}</tool_call>")
    assert parsed.complaint.endswith("(single quotes, trailing comma)")


def test_a_tool_without_arguments_may_leave_them_out():
    parsed = grammar.parse('t</think><tool_call>{"name": "go_back"}</tool_call>')
    assert parsed.calls == (ToolCall(name="go_back", arguments={}),)


def test_a_typed_message_may_hold_any_tag():
    call = ToolCall(name="write", arguments={"message": "</tool_call><tool_call>{"})
    assert grammar.parse(grammar.render("t", (call,))).calls == (call,)


def test_a_thought_that_would_close_itself_is_refused():
    with pytest.raises(ValueError, match="</think>"):
        grammar.render("a</think>b", (CLICK,))
