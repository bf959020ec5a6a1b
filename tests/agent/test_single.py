import pytest

from configs import common
from openwebrl_jax.agent import grammar, history, single
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import Feedback, Observation, Reply, Task, ToolCall

TASK = Task(id="t", intent="click OK", start_url="http://a.test/", max_turns=9)
GOOD = grammar.render("OK", [ToolCall(name="click", arguments={"point_2d": [1, 2]})])
FELT = Feedback(tool="click", state="no_effect", text="nothing changed")


def page(number: int) -> Observation:
    return Observation(
        screenshot=b"png%d" % number, width_px=9, height_px=9, tabs=(), active_tab=0
    )


@pytest.fixture
def config():
    config = common.get_config().agent
    config.prompt = "short"
    return config


def spoken(number: int) -> Reply:
    ids = (100 * number,)
    return Reply(
        text=GOOD,
        system_ids=(7, 8),
        seen_ids=ids,
        remembered_ids=(100 * number + 1,),
        response_ids=ids,
        closing_ids=(3,),
        logprobs=(-0.5,),
        version=4,
    )


def play(config, replies, memory=None):
    """Feeds replies one by one and returns the memory."""
    memory = memory or single.first(TASK, config)
    for reply in replies:
        seen = page(len(memory.turns))
        ask = single.prompt(memory, seen, config)
        memory = single.read(memory, seen, ask, reply, config)
        if memory.turns[-1].calls:
            memory = single.feel(memory, (FELT,))
    return memory


def test_the_first_prompt_is_system_and_request(config):
    ask = single.prompt(single.first(TASK, config), page(0), config)
    system, user = ask.segments
    assert (system.role, system.ids) == ("system", ())
    assert (user.text, user.remembered_text) == ("click OK\n<|image|>\n", "click OK\n")
    assert ask.images == {user.image: b"png0"}
    assert user.image == history.image_hash(b"png0")


def test_later_prompts_carry_ids_and_what_the_calls_did(config):
    memory = play(config, [spoken(1), spoken(2)])
    ask = single.prompt(memory, page(2), config)
    assert [segment.ids for segment in ask.segments] == [(7, 8), (101,), (201,), ()]
    assert ask.segments[-1].text == "click no_effect\n<|image|>\n"
    assert list(ask.images.values()) == [b"png2"]


def test_every_image_that_is_named_is_there(config):
    config.context_screenshots = 2
    ask = single.prompt(play(config, [spoken(1), spoken(2)]), page(2), config)
    named = {segment.image for segment in ask.segments if segment.image}
    assert named == set(ask.images)
    assert set(ask.images.values()) == {b"png1", b"png2"}


def test_a_turn_keeps_what_the_sampler_said(config):
    (turn,) = play(config, [spoken(1)]).turns
    assert turn.calls == (ToolCall(name="click", arguments={"point_2d": [1, 2]}),)
    assert (turn.thought, turn.feedback, turn.version) == ("OK", (FELT,), 4)
    assert (turn.seen_ids, turn.response_ids, turn.logprobs) == (
        (100,),
        (100,),
        (-0.5,),
    )


def test_a_reply_that_cannot_be_read_is_told_so(config):
    memory = play(config, [Reply(text="hm")])
    assert memory.turns[-1].parse_error == grammar.ParseError.OPEN_THOUGHT
    ask = single.prompt(memory, page(0), config)
    assert ask.segments[-1].text == "malformed\n<|image|>\n"


def test_three_unreadable_replies_in_a_row_end_the_episode(config):
    bad, good = Reply(text="hm"), Reply(text=GOOD)
    for replies in ([], [bad, bad], [bad, bad, good], [bad, bad, good, bad, bad]):
        assert single.ending(play(config, replies), config) is None
    assert single.ending(play(config, [good, bad, bad, bad]), config) is (
        Cause.FORMAT_ERROR
    )


def test_memories_are_never_changed(config):
    before = play(config, [spoken(1)])
    play(config, [spoken(2)], memory=before)
    assert len(before.turns) == 1


def test_a_lenient_reading_runs_what_a_strict_one_refuses_and_both_are_named(config):
    reply = Reply(text="OK</think><tool_call>{'name': 'go_back'}</tool_call>")
    (strict,) = play(config, [reply]).turns
    config.lenient = True
    (mended,) = play(config, [reply]).turns
    assert strict.calls == () and "single quotes" in strict.parse_error
    assert mended.calls == (ToolCall(name="go_back", arguments={}),)
    assert strict.leniencies == mended.leniencies == ("single_quotes",)
    assert mended.parse_error == ""
