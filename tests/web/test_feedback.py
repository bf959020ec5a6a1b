"""Lines from made-up reports, and what a page can put in them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import common
from openwebrl_jax.agent import prompts
from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import fake, feedback
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


def test_what_came_and_went_is_told():
    after = {"changes": 4, "appeared": ["a", "b", "c"], "more": 2, "vanished": 3}
    assert line(Deed(text="x"), after=after).text == (
        "x: appeared: 'a', 'b', 'c' and 2 more; 3 vanished"
    )


def test_a_long_line_keeps_its_end():
    after = {"changes": 1, "appeared": ["the end"], "more": 0}
    told = line(Deed(text="x" * 900), after=after).text
    assert len(told) == feedback.LIMIT and told.endswith("appeared: 'the end'")
    assert told.startswith("x" * 350) and "…" in told


def test_the_ablation_says_only_that_calls_were_run():
    told = line(Deed(text="clicked", problem="no"))
    (kept,) = feedback.shown([told], is_on=False)
    assert (kept.tool, kept.state, kept.text) == ("click", "failed", "")
    assert feedback.shown([told], is_on=True) == (told,)


@pytest.mark.parametrize("style", prompts.STYLES)
async def test_the_ablation_keeps_feedback_out_of_prompts(style):
    said = []
    for is_on in (True, False):
        config = common.get_config().web
        config.feedback = is_on
        slot = fake.FakeEnv(config)
        await slot.reset(fake.make_task(0))
        step = await slot.step((ToolCall(name="fly", arguments={}),))
        assert step.feedback[0].state == "failed"
        said += prompts.later_text(style, step.feedback, "", step.observation)
    assert all("fly" in text for text in said[:2])
    assert not any("fail" in text or "fly" in text for text in said[2:])


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
