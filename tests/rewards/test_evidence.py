"""Foreign words of any length take a bounded part of a judge's question."""

from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.rewards import evidence
from tests.rewards import stories


def test_long_words_keep_their_head_and_tail():
    said = evidence.answer(stories.story(answer="It " + "costs " * 9999 + "2 EUR"))
    assert len(said) == evidence.ANSWER_CHARS + len('""')
    assert said.startswith('"It costs') and said.endswith('costs 2 EUR"')
    assert evidence.answer(stories.story()) == '"It costs 2 EUR"'


def test_arguments_are_bounded_and_numbers_stay():
    call = ToolCall(name="write", arguments={"message": "a" * 9999, "at": [4, 5]})
    told = evidence.arguments(call)
    assert len(told["message"]) == evidence.FEEDBACK_CHARS and told["at"] == [4, 5]
