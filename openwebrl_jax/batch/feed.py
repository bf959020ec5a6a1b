"""What a learner is fed with, for one checkpoint folder and one config.

In: rows, or demonstrations. Out: batches of the lattice, or the stream of SFT rows,
and the sampling rule that the learner shares with the sampler.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openwebrl_jax.batch import collate, demos, rows
from openwebrl_jax.core import checks, types
from openwebrl_jax.tokens import chat as chats
from openwebrl_jax.tokens import images


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Made by `make_feed`; eaten by the learner's loop."""

    chat: chats.Chat
    spec: images.ImageSpec
    lattice: collate.Lattice
    table_side: int
    rule: types.SamplingRule
    layout: str  # config.batch.layout

    def batches(self, made: Sequence[types.Row]) -> Iterator[types.Batch]:
        """The rows of one optimizer step as micro-batches, made one by one."""
        return (self.batch(part) for part in collate.split(made, self.lattice))

    def batch(self, lines: Sequence[collate.Line]) -> types.Batch:
        """At most `lattice.rows` lines as one checked batch."""
        made = collate.collate(
            lines,
            self.lattice,
            self.spec,
            image_id=self.chat.image_id,
            table_side=self.table_side,
        )
        checks.check_batch(made, image_id=self.chat.image_id)
        return made

    def scored(
        self, made: Sequence[types.Row], logps: Callable[[types.Batch], np.ndarray]
    ) -> Iterator[tuple[types.Row, np.ndarray]]:
        """Each row with the log-probs of its loss positions, in another order."""
        for part in collate.split(made, self.lattice):
            for line, logp_N in zip(part, logps(self.batch(part)), strict=False):
                for row, used in zip(line, collate.loss_slices(line), strict=True):
                    yield row, logp_N[used]

    def rows(
        self,
        groups: Sequence[types.Group],
        trajectories: Mapping[str, types.Trajectory],
    ) -> list[types.Row]:
        """The rows of finished groups in the configured layout, see batch.rows."""
        make = rows.turn_rows
        if self.layout == "tree":
            make = functools.partial(
                rows.tree_rows,
                longest=self.lattice.lengths[-1],
                loss_tokens=self.lattice.loss_tokens,
            )
        return rows.rows(groups, trajectories, self.rule, make)

    def image_tokens(self, png: bytes) -> int:
        """Pads that stand for a screenshot."""
        return images.token_count(self.spec, *images.size_of(png))

    def sft_stream(
        self, config: Any, trajectories: Mapping[str, types.Trajectory]
    ) -> demos.SftStream:
        """The rows of every SFT step; `trajectories` by name, in a fixed order.

        ValueError: a row fits no bucket.
        """
        stream = demos.make_stream(
            config.sft,
            trajectories,
            self.chat,
            self.image_tokens,
            context_screenshots=config.agent.context_screenshots,
            seed=config.seed,
        )
        for row in itertools.chain(*stream.data.values()):
            collate.check(row, self.lattice)
        return stream


def make_feed(folder: str | Path, config: Any) -> Feed:
    """Reads the folder's tokenizer, preprocessor and sizes."""
    chat = chats.load_chat(
        folder, history=config.agent.history, open_think=config.agent.open_think
    )
    spec = images.load_spec(folder)
    grid = images.grid(spec, config.web.width_px, config.web.height_px)
    sizes = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return Feed(
        chat=chat,
        spec=spec,
        lattice=collate.make_lattice(config.batch, grid, spec.merge),
        table_side=math.isqrt(sizes["vision_config"]["num_position_embeddings"]),
        rule=chat.rule(config.sample.temperature),
        layout=config.batch.layout,
    )


def check(
    folder: str | Path, config: Any, opening: Sequence[types.Segment] = ()
) -> None:
    """Refuses a tokenizer or preprocessor that cannot be read, or has no room.

    `opening` is the shortest prompt of any episode: a system and a user segment.
    """
    try:
        feed = make_feed(folder, config)
    except Exception as error:  # of several libraries, which agree on no kind
        told = " ".join(str(error).split())
        raise ValueError(
            f"{folder}: its tokenizer or preprocessor cannot be used: {told}"
        ) from error
    if not opening:
        return
    system, user = opening
    pads = images.token_count(feed.spec, config.web.width_px, config.web.height_px)
    tokens = len(feed.chat.system(system)) + len(feed.chat.user(user, pads)[0])
    room = config.sample.context_tokens - config.sample.response_tokens
    if tokens > room:
        raise ValueError(
            f"config.agent.prompt={config.agent.prompt!r} and one screenshot are "
            f"{tokens} tokens before the task has said a word; config.sample."
            f"context_tokens less response_tokens leaves {room}: raise it, or take "
            "a shorter prompt or a smaller config.web.width_px and height_px"
        )
