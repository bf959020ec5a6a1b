import json

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.agent import loose
from openwebrl_jax.agent.loose import Fault, Leniency, ParseError

LETTERS = st.text(st.characters(exclude_categories=("Cs",)))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | LETTERS,
    lambda inner: st.lists(inner) | st.dictionaries(LETTERS, inner),
    max_leaves=8,
)
MARKS = st.lists(
    st.sampled_from([*"{}[],:'\"\\/\n \t-.0129eEu", "null", "True", "\\u00e9", "\x7f"])
)


@hypothesis.given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_json_is_read_as_json_reads_it(value, ensure_ascii, indent):
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    assert loose.read(f"x{text}y", 1) == (value, 1 + len(text), [])


@hypothesis.settings(max_examples=1000)
@hypothesis.given(MARKS.map("".join))
def test_what_it_reads_without_notes_is_json_and_the_reverse(text):
    try:
        expected = json.JSONDecoder().raw_decode(text)
    except ValueError:
        expected = None
    try:
        value, end, notes = loose.read(text, 0)
    except Fault as fault:
        assert expected is None or fault.error is not ParseError.BAD_JSON
        return
    assert bool(notes) == (expected is None)
    assert notes or (value, end) == expected


@pytest.mark.parametrize(
    ("text", "value", "leniencies"),
    [
        ("{'a': 'it\\'s \"so\" \\\\'}", {"a": 'it\'s "so" \\'}, ["single_quotes"] * 2),
        ("['a\\\"b']", ['a"b'], ["single_quotes"]),
        ('["a\tb\nc"]', ["a\tb\nc"], ["raw_control"]),
        ("[True, False, None]", [True, False, None], ["python_word"] * 3),
        ("[1, 2,]", [1, 2], ["trailing_comma"]),
        ('{"a": 1,}', {"a": 1}, ["trailing_comma"]),
        ('[1, // one\n"//" /* two */]', [1, "//"], ["comment", "comment"]),
    ],
)
def test_a_departure_is_mended_and_noted(text, value, leniencies):
    read, end, notes = loose.read(text, 0)
    assert (read, end) == (value, len(text))
    assert [note.leniency for note in notes] == [Leniency(name) for name in leniencies]


@pytest.mark.parametrize(
    ("text", "error", "span"),
    [
        ('{"a": 1, "a": 2}', ParseError.SAME_KEY, (9, 12)),
        ('{"a": NaN}', ParseError.BAD_NUMBER, (6, 9)),
        ("[-Infinity]", ParseError.BAD_NUMBER, (1, 10)),
        ("[1e999]", ParseError.BAD_NUMBER, (1, 6)),
        ("[" * 33 + "]" * 33, ParseError.TOO_DEEP, (32, 33)),
        ("{" * 10_000, ParseError.BAD_JSON, (1, 2)),
        ('["\\ud83d"]', ParseError.BAD_TEXT, (1, 9)),
        ('{"a": 1', ParseError.BAD_JSON, (7, 7)),
        ('{"a": "b', ParseError.BAD_JSON, (6, 8)),
        ("{a: 1}", ParseError.BAD_JSON, (1, 2)),
        ("[1 2]", ParseError.BAD_JSON, (3, 4)),
        ("[,]", ParseError.BAD_JSON, (1, 2)),
        ("[01]", ParseError.BAD_JSON, (2, 3)),
        ("[tru]", ParseError.BAD_JSON, (1, 2)),
        ("", ParseError.BAD_JSON, (0, 0)),
    ],
)
def test_what_has_no_one_meaning_is_a_fault_with_its_place(text, error, span):
    with pytest.raises(Fault) as caught:
        loose.read(text, 0)
    assert (caught.value.error, caught.value.span) == (error, span)


def test_nesting_up_to_the_limit_is_read():
    text = "[" * loose.DEPTH + "]" * loose.DEPTH
    assert loose.read(text, 0)[1:] == (len(text), [])
