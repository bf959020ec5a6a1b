"""Web case 41: an answer is the very text that the model wrote."""

import json

import pytest

from configs import common
from openwebrl_jax.agent import grammar
from openwebrl_jax.core.types import ToolCall
from openwebrl_jax.web import fake

ANSWERS = {
    "quote": 'She said "yes" and left',
    "line break": "one\ntwo\n",
    "bracket": "see [1] and ]] and }",
    "backslash": 'C:\\new\\"x" \\u0041',
    "emoji": "👨‍👩‍👧 🎉",
    "space": "  two spaces \t",
    "tags": "</tool_call></think><tool_call>{<|im_end|>",
    "json": '{"name": "done", "arguments": {"response": "other"}}',
    "control": "\x00\x1b\x7f\u2028",
    "long": 'ab]\\" ' * 3500,
    "empty": "",
}


async def answered(text: str) -> str:
    """What the episode's answer is when a model writes `text`."""
    parsed = grammar.parse(text)
    assert parsed.error is None
    place = fake.FakeEnv(common.get_config().web)
    await place.reset(fake.make_task(0, squares=2, max_turns=3, split="train"))
    return (await place.step(parsed.calls)).answer


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("kind", ANSWERS)
async def test_an_answer_is_exactly_what_was_written(kind, is_ascii):
    answer = ANSWERS[kind]
    call = {"name": "done", "arguments": {"response": answer}}
    inner = json.dumps(call, ensure_ascii=is_ascii)  # with and without \uXXXX
    assert await answered(f"t</think><tool_call>{inner}</tool_call>") == answer


async def test_words_behind_the_call_are_no_part_of_it():
    call = ToolCall(name="done", arguments={"response": "42"})
    assert await answered(grammar.render("t", [call]) + ' "43"]') == "42"
