"""A finished turn costs the same ids whether it comes back as ids or as text."""

import pytest

from openwebrl_jax.agent import grammar, history, prompts
from openwebrl_jax.core.types import Feedback, Observation, Segment, ToolCall, Turn
from openwebrl_jax.tokens import chat

PAGE = Observation(screenshot=b"", width_px=160, height_px=224, tabs=(), active_tab=0)
PADS = 35


def _turn(number: int) -> Turn:
    """A teacher's turn: two calls, no ids."""
    calls = tuple(
        ToolCall(name="write", arguments={"message": f"{number} {text}"})
        for text in ("Deneen", "<tool_call> </think>")
    )
    thought = f"write {number}"
    seen, remembered = prompts.first_text("short", f"Enter {number}", PAGE)
    user = Segment(
        role="user", text=seen, image=str(number), remembered_text=remembered
    )
    return Turn(
        observation=PAGE,
        segments=(user,),
        reply_text=grammar.render(thought, calls),
        thought=thought,
        calls=calls,
        feedback=(Feedback(tool="write", state="effect", text="wrote"),),
    )


def _spoken(talk: chat.Chat, turn: Turn) -> Turn:
    """The same turn with the ids that a sampler would have noted."""
    seen, remembered = talk.user(turn.segments[0], PADS)
    response = talk.encode_reply(turn.reply_text)
    return Turn(
        observation=turn.observation,
        segments=turn.segments,
        reply_text=turn.reply_text,
        thought=turn.thought,
        calls=turn.calls,
        feedback=turn.feedback,
        seen_ids=seen,
        remembered_ids=talk.remembered(remembered, response),
        response_ids=response,
        closing_ids=talk.closing(response),
        logprobs=(0.0,) * len(response),
        version=0,
    )


@pytest.mark.parametrize("screenshots", [1, 2, 3])
@pytest.mark.parametrize("mode", chat.HISTORY_MODES)
def test_ids_and_texts_make_the_same_prompt(tiny_folder, mode, screenshots):
    talk = chat.load_chat(tiny_folder, history=mode, open_think=True)
    turns = [_turn(number) for number in range(3)]
    (now,) = _turn(3).segments
    written, spoken = (
        talk.prompt(
            [*history.segments(form, screenshots, mode), now], lambda image: PADS
        )
        for form in (turns, [_spoken(talk, turn) for turn in turns])
    )
    assert written == spoken
    assert written.count(talk.image_id) == PADS * screenshots
