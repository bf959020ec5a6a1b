"""By construction: foreign words fill JSON strings of a prompt, and nothing else."""

import dataclasses
import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from configs import common
from openwebrl_jax.core.types import Tab, ToolCall
from openwebrl_jax.rewards import evidence, judge, verdict
from openwebrl_jax.rewards.injections import INJECTIONS
from tests.rewards import stories

STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
REPLY = json.dumps(
    {"key_points": ["a"], "score": 5, "reason": "r", "verdict": "failure"}
    | {"completion": 1, "action": 1, "trajectory": 1}
)


def told_by(words: str):
    """A trajectory in which all that is foreign says the words."""
    turn = stories.turn(1, words)
    call = ToolCall(name="write", arguments={"message": words})
    seen = dataclasses.replace(
        turn.observation, tabs=(Tab(url=words, title=words),), active_tab=0
    )
    turn = dataclasses.replace(turn, calls=(call,), observation=seen)
    story = stories.story(turns=(turn,), answer=words)
    return dataclasses.replace(
        story, task=dataclasses.replace(story.task, intent=words)
    )


async def prompts(words: str, protocol: str, style: str) -> list[str]:
    """All texts of the user's messages that a protocol sends."""
    found = []

    async def complete(messages, *, seed):
        (_, user) = messages
        found.extend(p["text"] for p in user["content"] if p["type"] == "text")
        return REPLY

    config = common.get_config().reward.judge
    config.protocol, config.prompt = protocol, style
    reward = await judge.judge(told_by(words), complete, config)
    assert reward.is_valid
    return found


CASES = [(name, "full") for name in judge.PROTOCOLS] + [("single", "short")]


def test_there_are_thirty_of_them():
    assert len(set(INJECTIONS)) >= 30


@pytest.mark.parametrize(("protocol", "style"), CASES)
async def test_words_change_nothing_outside_of_quotes(protocol, style):
    harmless = [STRING.sub('""', text) for text in await prompts("x", protocol, style)]
    for words in INJECTIONS:
        found = await prompts(words, protocol, style)
        assert [STRING.sub('""', text) for text in found] == harmless, words
        for text in found:
            assert "<" not in text, words
            assert all(letter.isprintable() or letter == "\n" for letter in text)
            for string in STRING.findall(text):
                json.loads(string)


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.text(alphabet=st.characters(exclude_categories=()), max_size=40))
def test_what_is_quoted_can_be_read_back(words):
    line = evidence.quoted({"a": words})
    assert json.loads(line) == {"a": words}
    assert "<" not in line and all(letter.isprintable() for letter in line)


@pytest.mark.parametrize("words", INJECTIONS)
def test_a_judge_that_only_repeats_the_page_says_nothing_good(words):
    said = json.dumps({"reason": words, "verdict": "failure"})
    assert verdict.read(said) == 0.0
    assert verdict.read(f"The page says {evidence.quoted(words)}") is None
