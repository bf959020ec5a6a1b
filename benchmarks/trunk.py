"""One optimizer step on whole trajectories: trees against a row for each turn.

    python -m benchmarks.trunk

The same trajectories, loss, attention and models of two layers, warm, taken in turns:
500 tokens of system and task, then 300 text and 900 image tokens a turn. The models
have about the share of attention of an 8B one: as many products with weights for each
product with a key. A micro-batch is one line: of a tree, as long as the tree; of turns,
packed, with the line length up to the tree's that wastes least. By width, screenshots K
and turns T it prints tokens (those that `trajectories.predicted` foretells), seconds a
step, the ratio of multiplications (`multiplications`) that the ratio of seconds should
be near, and peak temporary memory by XLA's own account with one trajectory a
micro-batch in either layout; the last column is that of a single line of turns. The
last line is JSON: `tokens_ratio_t30`, `update_ratio_t30`, `update_ratio_t5`,
`memory_ratio_t30` (K = 1, the widest model; above 1 = the tree is better).
"""

import functools
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags
from flax import nnx

from benchmarks import trajectories
from configs import common
from openwebrl_jax.batch import collate, rows
from openwebrl_jax.core import types
from openwebrl_jax.learn import optim, state, update
from openwebrl_jax.models import init, mesh, sizes
from openwebrl_jax.tokens import images

_TURNS = flags.DEFINE_list("turns", ["5", "10", "15", "30"], "T, by trajectory.")

CELLS = {256: {1: (5, 10, 15, 30), 2: (5, 10, 15, 30)}, 384: {1: (5, 30)}}
VOCAB, PAD, STEP = 512, 2, 256  # STEP: line lengths are multiples of it
ENOUGH_S, REPEATS = 6.0, 3  # a step is taken again until one of them is reached
SPEC = images.ImageSpec(
    patch_px=2,
    merge=2,
    temporal=2,
    pixels_min=64,
    pixels_max=65_536,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    rescale=1 / 255,
    resample=3,
)
SHAPE = trajectories.Shape(
    system=500,
    text=200,
    reply=100,
    page=(120, 120),
    image=900,
    image_id=PAD,
    ids=tuple(range(6, VOCAB)),
    rule=types.SamplingRule(temperature=1.0, forbidden_ids=(PAD,)),
)


def make_sizes(width: int) -> sizes.Sizes:
    """Two layers with one head, and a very small tower."""
    head = width // 12 // 16 * 16
    return sizes.Sizes(
        vision=sizes.VisionSizes(
            depth=1,
            width=16,
            mlp=16,
            heads=1,
            patch_shape=(3, SPEC.temporal, SPEC.patch_px, SPEC.patch_px),
            merge=SPEC.merge,
            table_side=8,
            taps=(0,),
            rope_theta=10_000.0,
        ),
        decoder=sizes.DecoderSizes(
            vocab=VOCAB,
            width=width,
            mlp=3 * width,
            layers=2,
            heads=1,
            kv_heads=1,
            head_width=head,
            rope_theta=1e6,
            rope_section=(head // 4, head // 8, head // 8),
            norm_eps=1e-6,
        ),
        is_tied=True,
    )


@functools.cache
def make_learner(width: int) -> tuple[update.Update, Any]:
    """A fresh model of that width and its programs."""
    graphdef, params = nnx.split(init.init_model(make_sizes(width), 0), nnx.Param)
    devices = mesh.make_mesh(1, 1, 1, jax.devices()[:1])
    config = common.get_config()
    tx = optim.make_optimizer(config.optim)
    like = state.abstract_state(params, tx, devices)
    config.model.dtype = "float32"
    made = update.make_update(
        graphdef, like, tx, devices, SHAPE.rule, config.algo, config.model
    )
    return made, state.init_state(params, tx, devices)


def multiplications(made: Sequence[types.Row], width: int, pages: int) -> int:
    """Of the forward pass: tokens with weights, queries with what they see; the
    decoder over the rows and the tower over so many pages."""
    model = make_sizes(width)
    decoder, tower = model.decoder, model.vision
    inner = decoder.heads * decoder.head_width
    weights = width * (2 * inner + 2 * decoder.kv_heads * decoder.head_width)
    weights += 3 * width * decoder.mlp
    tokens = sum(len(row.ids) for row in made)
    pairs = sum(
        (span.stop - span.start) * (run.limit + (span.stop - span.start + 1) // 2)
        for row in made
        for run, span in zip(row.runs, rows.spans(row), strict=True)
    )
    patches = SHAPE.image * SPEC.merge**2
    page = patches * (4 * tower.width**2 + 2 * tower.width * tower.mlp)
    page += 2 * patches**2 * tower.width
    return decoder.layers * (tokens * weights + 2 * pairs * inner) + pages * page


def lines_of(made: Sequence[types.Row], length: int) -> list[collate.Line]:
    """The rows packed in lines of that length."""
    shape = collate.Lattice(
        rows=1,
        lengths=(length,),
        loss_tokens=1 << 20,
        images=(1 << 20,),
        patches=(SHAPE.image * SPEC.merge**2,),
    )
    return [line for part in collate.split(made, shape) for line in part]


def pack(made: Sequence[types.Row], most: int) -> tuple[int, list[collate.Line]]:
    """The line length up to `most` that wastes least, and the rows in such lines."""
    longest = max(len(row.ids) for row in made)
    lengths = range(-(-longest // STEP) * STEP, most + 1, STEP)
    found = [(length, lines_of(made, length)) for length in lengths]
    return min(found, key=lambda each: each[0] * len(each[1]))


def make_batch(
    lines: Sequence[collate.Line], length: int, like: Sequence[collate.Line]
) -> types.Batch:
    """The lines as a batch; `like` are all those that share its shape."""
    counts = [sum(np.count_nonzero(row.loss_weight) for row in line) for line in like]
    pages = [len({png for row in line for png in row.images}) for line in like]
    shape = collate.Lattice(
        rows=len(lines),
        lengths=(length,),
        loss_tokens=max(counts),
        images=(max(pages) * len(lines),),
        patches=(SHAPE.image * SPEC.merge**2,),
    )
    return collate.collate(lines, shape, SPEC, image_id=PAD, table_side=8)


def peak_mb(learner: update.Update, params: Any, batch: types.Batch) -> float:
    """Temporary memory of the batch's program."""
    with jax.set_mesh(learner.mesh):
        sums = learner.start(params)
        program = learner.accumulate.lower(params, sums, learner.place(batch)).compile()
    return program.memory_analysis().temp_size_in_bytes / 2**20


def step_s(learner: update.Update, start: Any, batches: Sequence[types.Batch]) -> float:
    """Seconds of a step."""
    copy = jax.tree.map(lambda leaf: leaf.copy(), start)  # it is donated
    jax.block_until_ready(copy)
    began = time.perf_counter()
    jax.block_until_ready(learner.step(copy, batches))
    return time.perf_counter() - began


def measure(turns: int, newest: int, width: int) -> dict[str, float]:
    """Ratios, rows of turns over tree, of one trajectory."""
    learner, start = make_learner(width)
    trajectory = trajectories.make(SHAPE, turns, newest, seed=turns)
    told: dict[str, dict[str, Any]] = {}
    most = 1 << 17
    for layout, make in (("tree", rows.tree_rows), ("turn", rows.turn_rows)):
        made = make(trajectory, "t")
        made = rows.weigh(made, "turn_mean", rows.turn_counts(made), 0.0)
        most, lines = pack(made, most)
        batches = [make_batch([line], most, lines) for line in lines]
        pages = sum(np.count_nonzero(batch.patch_count_I) for batch in batches)
        told[layout] = {
            "tokens": sum(len(row.ids) for row in made),
            "work": multiplications(made, width, pages),
            "batches": batches,
            "mb": peak_mb(learner, start.params, make_batch(lines, most, lines)),
            "seconds": [],
        }
        step_s(learner, start, batches[:1])  # compiles
    turn, tree = told["turn"], told["tree"]
    want = trajectories.predicted(SHAPE, turns, newest)
    assert (turn["tokens"], tree["tokens"]) == want
    while sum(turn["seconds"]) < ENOUGH_S and len(turn["seconds"]) < REPEATS:
        for each in told.values():
            each["seconds"].append(step_s(learner, start, each["batches"]))
    for each in told.values():
        each["s"] = statistics.median(each["seconds"])
    ratio = {name: turn[name] / tree[name] for name in ("tokens", "work", "s", "mb")}
    line_mb = peak_mb(learner, start.params, turn["batches"][0])
    print(
        f"{width:5} {newest:2} {turns:3}"
        f" {turn['tokens']:8} {tree['tokens']:7} {ratio['tokens']:6.2f}"
        f" {turn['s']:8.2f} {tree['s']:7.2f} {ratio['s']:6.2f} {ratio['work']:9.2f}"
        f" {turn['mb']:8.0f} {tree['mb']:7.0f} {ratio['mb']:6.2f} {line_mb:7.0f}",
        flush=True,
    )
    return ratio


def main(_: list[str]) -> None:
    """The table, then the line of ratios."""
    print(
        "width  K   T   tokens    tree  ratio  seconds    tree  ratio predicted"
        "       MB    tree  ratio  a line"
    )
    wanted = {int(turns) for turns in _TURNS.value}
    found = {
        (width, newest, turns): measure(turns, newest, width)
        for width, cells in CELLS.items()
        for newest, all_turns in cells.items()
        for turns in all_turns
        if turns in wanted
    }
    last = {turns: found.get((max(CELLS), 1, turns), {}) for turns in (5, 30)}
    ratios = {
        "tokens_ratio_t30": last[30].get("tokens"),
        "update_ratio_t30": last[30].get("s"),
        "update_ratio_t5": last[5].get("s"),
        "memory_ratio_t30": last[30].get("mb"),
    }
    print(json.dumps({k: v and round(v, 2) for k, v in ratios.items()}))


if __name__ == "__main__":
    app.run(main)
