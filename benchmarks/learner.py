"""One optimizer step against torch's on the same rows, and what trees add to it.

    python -m benchmarks.learner

MM-GRPO in float32 on two threads, warm, taken in turns, images cut beforehand. Torch
runs the very same checkpoint folder with its fastest attention and fused AdamW, its
rows sorted by length so that little is padding, logits only where the loss stands.
Both sides' losses must agree at every step. By width and turns T: seconds of torch on
rows of turns, of ours on them, and of ours on trees; the last ratio is the product of
the two before it. The last line is JSON: `vs_torch_update` on the demo's model with
trajectories like the demo's, `vs_torch_update_512` on a wider one, and with trees of
eight turns `tree_vs_torch_update` and `tree_vs_torch_update_512`.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import transformers
from absl import app, flags

from benchmarks import checkpoints, trajectories
from configs import grpo_short
from openwebrl_jax.batch import feed, rows
from openwebrl_jax.core import types
from openwebrl_jax.learn import folder, setup
from openwebrl_jax.tokens import images

_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed steps of each, after warm ones.")

WARM = 2


class Case(NamedTuple):
    """Trajectories of a step, rows of torch's micro-batches, and our lattice."""

    trajectories: int
    torch_rows: int
    rows: int
    lengths: tuple[int, ...]  # tokens; of rows of turns, then of trees
    loss_tokens: int


# By turns. Rows of two turns are batches without any padding for either side.
CASES = {2: Case(16, 16, 16, (74, 97, 155), 22), 8: Case(4, 16, 4, (448, 641), 88)}


def make_config(case: Case) -> Any:
    """The demo's experiment."""
    config = grpo_short.get_config("tiny")
    config.batch.rows, config.batch.lengths = case.rows, case.lengths
    config.batch.loss_tokens = case.loss_tokens
    config.optim.warmup_steps = 0
    config.optim.lr_peak = 1e-4
    return config


def make_shape(fed: feed.Feed, config: Any) -> trajectories.Shape:
    """Turns as long as the demo's."""
    page = (config.web.width_px, config.web.height_px)
    return trajectories.Shape(
        system=16,
        text=12,
        reply=11,
        page=page,
        image=images.token_count(fed.spec, *page),
        image_id=fed.chat.image_id,
        ids=tuple({*fed.chat.plain.get_vocab().values()} - set(fed.rule.forbidden_ids)),
        rule=fed.rule,
    )


class Ours:
    """A learner and the micro-batches of one layout."""

    def __init__(
        self, source: pathlib.Path, config: Any, fed: feed.Feed, made: list[types.Row]
    ):
        policy = folder.read(source)
        self._update, self._state = setup.make(policy, config, fed.rule)
        self._batches = list(fed.batches(made))

    def step(self) -> float:
        """Takes a step and returns its loss."""
        self._state, metrics = self._update.step(self._state, self._batches)
        return float(metrics["learner/loss"])


@dataclasses.dataclass(frozen=True)
class Part:
    """A micro-batch of torch: its inputs, and what belongs to the loss positions."""

    inputs: dict[str, torch.Tensor]
    where: tuple[torch.Tensor, torch.Tensor]  # row and index of each
    weight: torch.Tensor
    old_logp: torch.Tensor
    advantage: torch.Tensor


class Theirs:
    """The same model and the same rows in torch."""

    def __init__(
        self,
        source: pathlib.Path,
        config: Any,
        fed: feed.Feed,
        made: list[types.Row],
        count: int,  # rows of a micro-batch
    ):
        self._config = config
        self._model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
            source, dtype=torch.float32, attn_implementation="sdpa"
        )
        is_matrix = [p.ndim > 1 for p in self._model.parameters()]
        groups = [
            {
                "params": [
                    p
                    for p, yes in zip(self._model.parameters(), is_matrix, strict=True)
                    if yes == wanted
                ],
                "weight_decay": config.optim.weight_decay * wanted,
            }
            for wanted in (True, False)
        ]
        self._optimizer = torch.optim.AdamW(
            groups,
            lr=config.optim.lr_peak,
            betas=(config.optim.b1, config.optim.b2),
            fused=True,
        )
        vocab = self._model.config.text_config.vocab_size
        self._forbidden = torch.zeros(vocab, dtype=torch.bool)
        self._forbidden[list(fed.rule.forbidden_ids)] = True
        ordered = sorted(made, key=lambda row: len(row.ids))
        self._parts = [
            make_part(ordered[start : start + count], fed)
            for start in range(0, len(ordered), count)
        ]

    def step(self) -> float:
        """Takes a step and returns its loss."""
        self._optimizer.zero_grad()
        total = 0.0
        for part in self._parts:
            loss = self._loss(part)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(
            self._model.parameters(), self._config.optim.clip_norm
        )
        self._optimizer.step()
        return total

    def _loss(self, part: Part) -> torch.Tensor:
        algo = self._config.algo
        hidden = self._model.model(**part.inputs, use_cache=False).last_hidden_state
        row, index = part.where
        logits = self._model.lm_head(hidden[row, index - 1])
        logits = logits / self._config.sample.temperature
        logits = logits.masked_fill(self._forbidden, -1e30)
        target = part.inputs["input_ids"][row, index]
        logp = logits.log_softmax(-1).gather(-1, target[:, None])[:, 0]
        ratio = (logp - part.old_logp).exp()
        bound = ratio.clamp(1 - algo.clip_low, 1 + algo.clip_high)
        worst = torch.maximum(-ratio * part.advantage, -bound * part.advantage)
        return (worst * part.weight).sum()


def make_part(made: Sequence[types.Row], fed: feed.Feed) -> Part:
    """Rows as torch eats them, padded on the right."""
    sizes = torch.tensor([len(row.ids) for row in made])
    index = torch.arange(int(sizes.max()))[None]
    ids = torch.zeros((len(made), index.shape[1]), dtype=torch.long)
    weight, old_logp, advantage = torch.zeros((3, *ids.shape))
    for b, row in enumerate(made):
        used = slice(0, len(row.ids))
        ids[b, used] = torch.from_numpy(row.ids)
        weight[b, used] = torch.from_numpy(row.loss_weight)
        old_logp[b, used] = torch.from_numpy(row.old_logp)
        advantage[b, used] = row.advantage
    cut = [images.patches(fed.spec, png) for row in made for png in row.images]
    where = weight.nonzero(as_tuple=True)
    return Part(
        inputs={
            "input_ids": ids,
            "attention_mask": (index < sizes[:, None]).long(),
            "mm_token_type_ids": (ids == fed.chat.image_id).int(),
            "pixel_values": torch.cat([torch.from_numpy(p) for p, _ in cut]),
            "image_grid_thw": torch.tensor([[1, *grid] for _, grid in cut]),
        },
        where=(where[0], where[1]),
        weight=weight[where],
        old_logp=old_logp[where],
        advantage=advantage[where],
    )


def make_rows(shape: trajectories.Shape, turns: int, make: Any) -> list[types.Row]:
    """All rows of a step, with advantages of both signs."""
    made = [
        dataclasses.replace(row, advantage=1.0 if number % 2 else -0.7)
        for number in range(CASES[turns].trajectories)
        for row in make(trajectories.make(shape, turns, 1, number), f"t{number}")
    ]
    return rows.weigh(made, "turn_mean", rows.turn_counts(made), 0.0)


def measure(source: pathlib.Path, turns: int) -> tuple[float, float]:
    """Torch over ours, on rows of turns and on trees."""
    case = CASES[turns]
    config = make_config(case)
    fed = feed.make_feed(source, config)
    shape = make_shape(fed, config)
    by_turn = make_rows(shape, turns, rows.turn_rows)
    trees = make_rows(shape, turns, rows.tree_rows)
    sides = {
        "torch": Theirs(source, config, fed, by_turn, case.torch_rows),
        "ours": Ours(source, config, fed, by_turn),
        "tree": Ours(source, config, fed, trees),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(_REPEATS.value + WARM):
        losses = {}
        for name, side in sides.items():
            began_s = time.perf_counter()
            losses[name] = side.step()
            seconds[name].append(time.perf_counter() - began_s)
        spread = max(losses.values()) - min(losses.values())
        if spread > 1e-4:
            raise AssertionError(f"step {number}: the losses differ: {losses}")
    torch_s, our_s, tree_s = (
        statistics.median(taken[WARM:]) for taken in seconds.values()
    )
    width = json.loads((source / "config.json").read_text())["text_config"][
        "hidden_size"
    ]
    tokens = sum(len(row.ids) for row in by_turn), sum(len(row.ids) for row in trees)
    print(
        f"{width:6} {turns:3} {tokens[0]:7} {tokens[1]:7}"
        f" {torch_s:8.3f} {our_s:8.3f} {tree_s:8.3f}"
        f" {torch_s / our_s:6.2f} {our_s / tree_s:6.2f} {torch_s / tree_s:6.2f}",
        flush=True,
    )
    return torch_s / our_s, torch_s / tree_s


def main(_: list[str]) -> None:
    """The table, then the line of ratios."""
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # ours has as many
    print(
        " width   T  tokens in trees  torch s   ours s   tree s  ratio  trees product"
    )
    told = {}
    with tempfile.TemporaryDirectory() as made:
        tiny, wide = pathlib.Path(made) / "tiny", pathlib.Path(made) / "wide"
        checkpoints.make_tiny(tiny)
        checkpoints.make_folder(tiny, wide, checkpoints.WIDE)
        for source, end in ((tiny, ""), (wide, "_512")):
            told[f"vs_torch_update{end}"], _ = measure(source, 2)
            _, told[f"tree_vs_torch_update{end}"] = measure(source, 8)
    print(json.dumps({name: round(ratio, 2) for name, ratio in told.items()}))


if __name__ == "__main__":
    app.run(main)
