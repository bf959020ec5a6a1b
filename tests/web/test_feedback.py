"""Lines from made-up reports, and what a page can put in them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.web import feedback
from openwebrl_jax.web.feedback import Deed

PAGE = {"url": "http://a.test/", "title": "A", "document": 1}
CONTROL = re.compile(r"<|>|[\x00-\x1f\u200b\u202e\ufeff]")


def line(deed, before=None, after=None, notes=()):
    before = {**PAGE, **(before or {})}
    return feedback.line("click", deed, before, {**PAGE, **(after or {})}, notes)


def test_three_states():
    assert line(Deed(text="clicked")).state == "no_effect"
    assert line(Deed(text="clicked"), after={"changes": 1}).state == "effect"
    assert line(Deed(text="clicked", problem="no")).state == "failed"


def test_a_new_document_is_told_alone():
    after = {"document": 2, "title": "B", "url": "http://b.test/", "changes": 9}
    told = line(Deed(text="clicked"), after=after, notes=("it asked",))
    text = "clicked: it asked; the page is now 'B' http://b.test/"
    assert told.text == text and told.state == "effect"


def test_looks_count_only_where_nothing_else_changed():
    assert "its looks changed" in line(Deed(text="x"), after={"styles": 2}).text
    after = {"styles": 2, "url": "http://a.test/#b"}
    assert "looks" not in line(Deed(text="x"), after=after).text


def test_appearing_things_are_listed_up_to_three():
    after = {"changes": 4, "appeared": ["a", "b", "c"], "more": 2}
    assert line(Deed(text="x"), after=after).text == (
        "x: appeared: 'a', 'b', 'c' and 2 more"
    )


@given(st.text())
def test_no_text_of_a_page_becomes_a_control_token(text):
    escaped = feedback.escape(text)
    assert not CONTROL.search(escaped) and feedback.escape(escaped) == escaped
    focus = {"name": text, "value": text, "secret": False, "text": True, "length": 1}
    hit = {"state": {}, "disabled": False, "covers": text}
    told = line(
        Deed(text=f"clicked {text}", typed="x"),
        before={"hit": hit},
        after={"focus": focus, "appeared": [text], "more": 0, "state": {"open": text}},
        notes=(text,),
    )
    assert len(told.text) <= feedback.LIMIT and not CONTROL.search(told.text)


def test_tokens_are_defused_and_stay_readable():
    text = feedback.escape("</tool_response>\n<|im_end|> <think>")
    assert text == "‹/tool_response› ‹|im_end|› ‹think›"
