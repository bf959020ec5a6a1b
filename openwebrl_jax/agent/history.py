"""What stays in the prompt: the finished turns as Segments.

Of the T finished turns and the observation that is now seen, the newest K
observations are seen; older turns stand in their remembered form, which has no
screenshot. A turn that our sampler spoke comes back as the ids that it had, never as
text; one without ids (a teacher, an oracle, an endpoint) comes back as text.
"""

import hashlib
from collections.abc import Sequence

from openwebrl_jax.agent import grammar
from openwebrl_jax.core.types import Segment, Turn

MODES = ("full", "hide_thinking", "action_only")


def segments(
    turns: Sequence[Turn], context_screenshots: int, mode: str
) -> tuple[Segment, ...]:
    """The finished turns as later turns see them, in order.

    With K = 1 all of them are remembered: the one screenshot is the coming turn's.
    """
    if context_screenshots < 1:
        raise ValueError(
            f"context_screenshots={context_screenshots}: a prompt shows at least the "
            "newest screenshot; set config.agent.context_screenshots to 1 or more"
        )
    first_seen = len(turns) - (context_screenshots - 1)
    return tuple(
        segment
        for index, turn in enumerate(turns)
        for segment in (_seen(turn) if index >= first_seen else _remembered(turn, mode))
    )


def remembered_reply(text: str, mode: str) -> str:
    """What later turns keep of a reply; a malformed one is kept whole."""
    if mode == "full":
        return text
    if mode == "hide_thinking":
        _, border, after = text.partition(grammar.THINK_CLOSE)
        return border + after if border else text
    if mode == "action_only":
        spans = grammar.blocks(text)
        return "".join(text[start:end] for start, end in spans) or text
    raise ValueError(f"unknown history mode {mode!r}; set it to one of {MODES}")


def image_hash(screenshot: bytes) -> str:
    """The name of a screenshot: the sha256 of its PNG."""
    return hashlib.sha256(screenshot).hexdigest()


def _seen(turn: Turn) -> tuple[Segment, ...]:
    (user,) = turn.segments
    reply_ids = turn.response_ids + turn.closing_ids
    return (
        Segment(
            role="user",
            text=user.text,
            image=user.image,
            remembered_text=user.remembered_text,
            ids=turn.seen_ids,
        ),
        Segment(role="assistant", text=turn.reply_text, ids=reply_ids),
    )


def _remembered(turn: Turn, mode: str) -> tuple[Segment, ...]:
    (user,) = turn.segments
    kept, reply = user.remembered_text, remembered_reply(turn.reply_text, mode)
    if turn.remembered_ids:
        return (Segment(role="user", text=kept + reply, ids=turn.remembered_ids),)
    return (
        Segment(role="user", text=kept, remembered_text=kept),
        Segment(role="assistant", text=reply),
    )
