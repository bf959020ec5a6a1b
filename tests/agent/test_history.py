import pytest

from openwebrl_jax.agent import grammar, history
from openwebrl_jax.core.types import Observation, Segment, ToolCall, Turn

REPLY = grammar.render("t", [ToolCall(name="go_back", arguments={})] * 2)
BLOCK = '<tool_call>\n{"name": "go_back", "arguments": {}}\n</tool_call>'


def turn(number: int, has_ids: bool) -> Turn:
    """A turn whose ids tell its number and part."""
    ids = dict.fromkeys(("seen_ids", "remembered_ids", "response_ids", "closing_ids"))
    if has_ids:
        ids = {name: (10 * number + k,) for k, name in enumerate(ids)}
    segment = Segment(
        role="user", text=f"u{number}<|image|>", image="h", remembered_text=f"u{number}"
    )
    page = Observation(screenshot=b"", width_px=1, height_px=1, tabs=(), active_tab=0)
    return Turn(
        observation=page,
        segments=(segment,),
        reply_text=REPLY,
        thought="t",
        calls=(),
        **{name: value or () for name, value in ids.items()},
    )


def test_with_one_screenshot_all_finished_turns_are_remembered():
    made = history.segments([turn(1, True), turn(2, True)], 1, "full")
    assert [(s.role, s.ids, s.image) for s in made] == [
        ("user", (11,), None),
        ("user", (21,), None),
    ]


def test_newer_turns_are_seen_with_their_own_ids():
    made = history.segments([turn(n, True) for n in (1, 2, 3)], 2, "full")
    assert [(s.role, s.ids, s.image) for s in made] == [
        ("user", (11,), None),
        ("user", (21,), None),
        ("user", (30,), "h"),
        ("assistant", (32, 33), None),
    ]


def test_more_screenshots_than_turns_is_all_seen():
    made = history.segments([turn(1, True)], 5, "full")
    assert [s.ids for s in made] == [(10,), (12, 13)]


@pytest.mark.parametrize("mode", history.MODES)
def test_turns_without_ids_are_texts(mode):
    old_user, old_reply, user, reply = history.segments(
        [turn(1, False), turn(2, False)], 2, mode
    )
    assert (old_user.text, old_user.image, old_user.ids) == ("u1", None, ())
    assert old_reply.text == history.remembered_reply(REPLY, mode)
    assert (user.text, user.image) == ("u2<|image|>", "h")
    assert reply.text == REPLY


def test_what_is_remembered_of_a_reply():
    assert history.remembered_reply(REPLY, "full") == REPLY
    hidden = history.remembered_reply(REPLY, "hide_thinking")
    assert hidden == f"</think>\n{BLOCK}\n{BLOCK}"
    assert history.remembered_reply(REPLY, "action_only") == BLOCK + BLOCK


def test_a_block_is_remembered_whole_whatever_is_typed_in_it():
    calls = [
        ToolCall(name="write", arguments={"message": text})
        for text in ("a </tool_call> b", "<tool_call>", '"</tool_call>"')
    ]
    reply = grammar.render("a <tool_call> that is only thought of", calls)
    kept = "".join(map(grammar.call_block, calls))
    assert history.remembered_reply(reply, "action_only") == kept


@pytest.mark.parametrize("mode", history.MODES)
def test_a_malformed_reply_is_remembered_whole(mode):
    assert history.remembered_reply("no border", mode) == "no border"


def test_no_screenshot_at_all_and_unknown_modes_are_refused():
    with pytest.raises(ValueError, match="context_screenshots=0"):
        history.segments([], 0, "full")
    with pytest.raises(ValueError, match="unknown history mode 'none'"):
        history.remembered_reply("t", "none")
