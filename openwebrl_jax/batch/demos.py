"""Demonstrations -> rows of three abilities, and the endless stream of SFT steps.

    acting      the prompt as the policy sees it -> the whole reply
    grounding   the page and the name of what is on it -> the call that clicks it
    planning    the page, the wish and the calls -> what they change, says the browser

Trajectories come from a teacher, an oracle or the policy itself; turns that no
sampler of ours spoke get their ids here, by the chat format that the sampler uses.
Data sets of unequal size are balanced by effective number (arXiv 2602.13559):

    L = (1/B) sum_m alpha_d(m) (1/T_m) sum_t -log p(token t)
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from openwebrl_jax.batch import rows
from openwebrl_jax.core import types
from openwebrl_jax.tokens import chat as chats

# Pads of a screenshot: the PNG's own count, see tokens.images.token_count.
ImageTokens = Callable[[bytes], int]

# What a click's feedback calls the thing that it hit: "clicked button 'OK': ...".
_CLICKED = re.compile(r"clicked ([^':]+'.*?')(?:: |$)", re.DOTALL)
_CALL_BLOCK = re.compile(r"<tool_call>\n.*?\n</tool_call>", re.DOTALL)


def acting(
    trajectory: types.Trajectory,
    name: str,
    chat: chats.Chat,
    image_tokens: ImageTokens,
) -> list[types.Row]:
    """One row for each turn in the exact format: its prompt, then its reply."""
    made = rows.turn_rows(tokenise(trajectory, chat, image_tokens), name)
    return [
        row
        for row, turn in zip(made, trajectory.turns, strict=True)
        if not turn.parse_error and not turn.leniencies
    ]


def grounding(
    trajectory: types.Trajectory,
    name: str,
    chat: chats.Chat,
    image_tokens: ImageTokens,
) -> list[types.Row]:
    """One row for each turn that began with a click whose target has a name."""
    made = []
    for t, turn in enumerate(trajectory.turns):
        said = turn.feedback[0].text if turn.feedback else ""
        clicked, block = _CLICKED.match(said), _CALL_BLOCK.search(turn.reply_text)
        if clicked and block:
            question = f"Where is {_quote(clicked.group(1))}?\n{types.IMAGE_MARK}\n"
            pair = _pair(trajectory, t, question, block.group(), chat, image_tokens)
            made.append(dataclasses.replace(pair, source=f"{name}:{t}"))
    return made


def planning(
    trajectory: types.Trajectory,
    name: str,
    chat: chats.Chat,
    image_tokens: ImageTokens,
) -> list[types.Row]:
    """One row for each turn whose calls were run."""
    made = []
    for t, turn in enumerate(trajectory.turns):
        if not turn.feedback:
            continue
        calls = "\n".join(
            json.dumps({"name": call.name, "arguments": dict(call.arguments)})
            for call in turn.calls[: len(turn.feedback)]
        )
        wish, calls = _quote(trajectory.task.intent), _quote(calls)
        question = f"{wish}\n{types.IMAGE_MARK}\n{calls}\nThen?\n"
        changes = "\n".join(line.text for line in turn.feedback)
        pair = _pair(trajectory, t, question, changes, chat, image_tokens)
        made.append(dataclasses.replace(pair, source=f"{name}:{t}"))
    return made


ABILITIES = {"acting": acting, "grounding": grounding, "planning": planning}


def tokenise(
    trajectory: types.Trajectory, chat: chats.Chat, image_tokens: ImageTokens
) -> types.Trajectory:
    """The trajectory with the ids of this chat in every turn.

    Those that are there may be of another tokenizer or history.
    """
    return dataclasses.replace(
        trajectory,
        system_ids=chat.system(trajectory.system_segment),
        turns=tuple(
            _tokenise_turn(turn, chat, image_tokens) for turn in trajectory.turns
        ),
    )


def _tokenise_turn(
    turn: types.Turn, chat: chats.Chat, image_tokens: ImageTokens
) -> types.Turn:
    (segment,) = turn.segments
    pads = image_tokens(turn.observation.screenshot) if segment.image else 0
    seen_ids, remembered_user_ids = chat.user(segment, pads)
    response_ids = chat.encode_reply(turn.reply_text)
    return dataclasses.replace(
        turn,
        seen_ids=seen_ids,
        remembered_ids=chat.remembered(remembered_user_ids, response_ids),
        response_ids=response_ids,
        closing_ids=chat.closing(response_ids),
        logprobs=(),
    )


def _quote(text: str) -> str:
    """Foreign words that hold no mark of an image."""
    return text.replace("<|", "< |")


def _pair(
    trajectory: types.Trajectory,
    t: int,
    question: str,
    answer: str,
    chat: chats.Chat,
    image_tokens: ImageTokens,
) -> types.Row:
    """A question about the page of turn t, answered without a thought."""
    turn = trajectory.turns[t]
    asked = dataclasses.replace(
        turn,
        segments=(dataclasses.replace(turn.segments[0], text=question, ids=()),),
        reply_text=f"</think>\n{answer}" if chat.open_think else answer,
    )
    alone = dataclasses.replace(trajectory, turns=(asked,))
    (row,) = rows.turn_rows(tokenise(alone, chat, image_tokens), "")
    return row


def effective_weights(sizes: Sequence[int], k: float) -> list[float]:
    """alpha by effective number, b = 1 - 10^-k: mean 1, more for smaller data sets.

    Example: sizes (1e6, 1e6, 5e3) at k = 4 -> (0.661, 0.661, 1.679).
    """
    if min(sizes) <= 0:
        raise ValueError(f"data set sizes {tuple(sizes)}; each must be above 0")
    counts = np.asarray(sizes, np.float64)
    with np.errstate(divide="ignore"):  # k = 0: log 0 = -inf, and all weights are 1
        inverse = 1.0 / -np.expm1(counts * np.log1p(-(10.0**-k)))
    return list(len(counts) * inverse / inverse.sum())


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftStream:
    """The rows of every step of SFT, a pure function of (seed, step).

    Each ability gives a fixed number of rows a step and goes through its own data in
    seeded epochs, so a run goes on from its step number alone. Made by `make_stream`.
    """

    data: Mapping[str, Sequence[types.Row]]  # by ability, weights already final
    counts: Mapping[str, int]  # rows a step, by ability
    seed: int

    def rows_at(self, step: int) -> list[types.Row]:
        """The rows of one optimizer step."""
        return [
            row
            for place, (ability, count) in enumerate(self.counts.items())
            for row in self._draw(place, self.data[ability], step * count, count)
        ]

    def _draw(
        self, place: int, data: Sequence[types.Row], start: int, count: int
    ) -> Iterator[types.Row]:
        for position in range(start, start + count):
            epoch, index = divmod(position, len(data))
            yield data[_order(self.seed, place, epoch, len(data))[index]]


@functools.lru_cache(maxsize=16)
def _order(seed: int, place: int, epoch: int, size: int) -> np.ndarray:
    return np.random.default_rng((seed, place, epoch)).permutation(size)


def make_stream(
    config_sft,
    trajectories: Mapping[str, types.Trajectory],
    chat: chats.Chat,
    image_tokens: ImageTokens,
    *,
    context_screenshots: int,
    seed: int,
) -> SftStream:
    """The stream that `config.sft` asks for.

    Args:
      trajectories: by name, in a fixed order.
      context_screenshots: of the policy that is to be trained.
    """
    shown = {"context_screenshots": context_screenshots}
    seen = {name: dataclasses.replace(t, **shown) for name, t in trajectories.items()}
    counts = _row_counts(config_sft.abilities, config_sft.shares, config_sft.rows)
    data = {
        ability: [
            row
            for name, trajectory in seen.items()
            for row in ABILITIES[ability](
                trajectory, f"{name}/{ability}", chat, image_tokens
            )
        ]
        for ability in counts
    }
    for ability, made in data.items():
        if not made:
            raise ValueError(
                f"{len(trajectories)} demonstrations hold nothing for {ability}; set "
                "its config.sft.shares to 0 or add folders to config.sft.data"
            )
    sizes = [len(made) for made in data.values()]
    alphas = effective_weights(sizes, config_sft.weights_k)
    weighed = {
        ability: [_weighed(row, alpha / config_sft.rows) for row in made]
        for (ability, made), alpha in zip(data.items(), alphas, strict=True)
    }
    return SftStream(data=weighed, counts=counts, seed=seed)


def _weighed(row: types.Row, scale: float) -> types.Row:
    """`scale` spread evenly over the row's tokens."""
    tokens = np.count_nonzero(row.loss_weight)
    weight = row.loss_weight * np.float32(scale / tokens)
    return dataclasses.replace(row, loss_weight=weight)


def _row_counts(
    abilities: Sequence[str], shares: Sequence[float], total: int
) -> dict[str, int]:
    """Rows a step of each ability with a share, by largest remainder."""
    unknown = [ability for ability in abilities if ability not in ABILITIES]
    if unknown or len(shares) != len(abilities) or not sum(shares) > 0:
        raise ValueError(
            f"config.sft.abilities={tuple(abilities)} with shares={tuple(shares)}; "
            f"want some of {', '.join(ABILITIES)} and a share for each, not all 0"
        )
    exact = np.array(shares, np.float64) / sum(shares) * total
    counts = np.floor(exact).astype(int)
    order = np.argsort(counts - exact, kind="stable")  # largest remainder first
    counts[order[: total - counts.sum()]] += 1
    return {
        ability: int(count)
        for ability, count in zip(abilities, counts, strict=True)
        if count
    }
