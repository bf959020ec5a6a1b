"""Trajectories of random ids and noise for pages, all turns of one shape."""

import dataclasses
import io

import numpy as np
from PIL import Image

from openwebrl_jax.core import causes, types


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Tokens by their place, and what they are drawn from."""

    system: int
    text: int  # of a turn, beside its image
    reply: int
    page: tuple[int, int]  # width and height in pixels
    image: int  # tokens of a page
    image_id: int
    ids: tuple[int, ...]  # that may stand anywhere
    rule: types.SamplingRule


def predicted(shape: Shape, turns: int, newest: int) -> tuple[int, int]:
    """Tokens of all rows of turns, and of the tree, without padding.

    With s tokens of system, r remembered and b seen a turn, T turns, K screenshots:
    sum over t of s + max(0, t + 1 - K) r + min(K, t + 1) b, against
    s + max(0, T - K) r + sum over t of min(K, t + 1) b.
    """
    text = shape.text + shape.reply
    branches = sum(min(newest, t + 1) * (text + shape.image) for t in range(turns))
    trunks = [shape.system + max(0, t + 1 - newest) * text for t in range(turns)]
    return sum(trunks) + branches, trunks[-1] + branches


def make(shape: Shape, turns: int, newest: int, seed: int) -> types.Trajectory:
    """A trajectory whose prompts show the `newest` pages."""
    draw = np.random.default_rng(seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(int(x) for x in draw.choice(shape.ids, count))

    def turn() -> types.Turn:
        width, height = shape.page
        before, after = shape.text // 2, shape.text - shape.text // 2
        seen = (*tokens(before), *[shape.image_id] * shape.image, *tokens(after))
        return types.Turn(
            observation=types.Observation(
                screenshot=noise(draw, shape.page),
                width_px=width,
                height_px=height,
                tabs=(),
                active_tab=0,
            ),
            segments=(types.Segment(role="user", text="", image="page"),),
            reply_text="",
            thought="",
            calls=(),
            seen_ids=seen,
            remembered_ids=tokens(shape.text + shape.reply),
            response_ids=tokens(shape.reply),
            logprobs=(-float(np.log(len(shape.ids))),) * shape.reply,
            version=0,
        )

    return types.Trajectory(
        task=types.Task(id="task", intent="", start_url="", max_turns=turns),
        system_segment=types.Segment(role="system", text=""),
        system_ids=tokens(shape.system),
        turns=tuple(turn() for _ in range(turns)),
        final=None,
        answer="",
        facts={},
        cause=causes.Cause.DONE,
        rule=shape.rule,
        context_screenshots=newest,
    )


def noise(draw: np.random.Generator, page: tuple[int, int]) -> bytes:
    """A page of noise as a PNG."""
    out = io.BytesIO()
    values = draw.integers(0, 255, (page[1], page[0], 3), np.uint8)
    Image.fromarray(values).save(out, format="PNG", compress_level=0)
    return out.getvalue()
