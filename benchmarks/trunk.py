"""One optimizer step on whole trajectories: trees against a row for each turn.

    python -m benchmarks.trunk

The same trajectories, model, attention and loss, warm, in turns: 500 tokens of system
and task, then 300 text and 900 image tokens a turn. Prints by turns T, screenshots K
and width: tokens, which `predicted` foretells; seconds, with micro-batches that waste
least (a tree alone, each turn alone); and peak temporary memory (XLA's own account)
with one trajectory a micro-batch in either layout, and of the longest turn alone. The
last line is JSON: `tokens_ratio_t30`, `update_ratio_t30`, `update_ratio_t5`,
`memory_ratio_t30` (K = 1, the widest model; above 1 = the tree is better).
"""

import functools
import io
import json
import math
import statistics
import time
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from absl import app, flags
from flax import nnx
from PIL import Image

from configs import common
from openwebrl_jax.batch import collate, rows
from openwebrl_jax.core import causes, types
from openwebrl_jax.learn import optim, state, update
from openwebrl_jax.models import init, mesh, sizes
from openwebrl_jax.tokens import images

_TURNS = flags.DEFINE_list("turns", ["5", "10", "15", "30"], "T, by trajectory.")
_NEWEST = flags.DEFINE_list("screenshots", ["1", "2"], "K.")
_WIDTHS = flags.DEFINE_list("widths", ["64", "256"], "Widths of the decoder.")
_REPEATS = flags.DEFINE_integer("repeats", 2, "Timed steps of each, after a warm one.")

VOCAB, PAD = 512, 2
SYSTEM, TEXT, REPLY, IMAGE = 500, 200, 100, 900  # tokens; a turn has text and reply
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
SIDE_PX = SPEC.patch_px * SPEC.merge * math.isqrt(IMAGE)
RULE = types.SamplingRule(temperature=1.0, forbidden_ids=(PAD,))


def predicted(turns: int, newest: int) -> tuple[int, int]:
    """Tokens of all rows of turns, and of the tree, without padding."""
    text, seen = TEXT + REPLY, TEXT + REPLY + IMAGE
    branches = sum(min(newest, t + 1) * seen for t in range(turns))
    trunks = [SYSTEM + max(0, t + 1 - newest) * text for t in range(turns)]
    return sum(trunks) + branches, trunks[-1] + branches


def make_trajectory(turns: int, newest: int, seed: int) -> types.Trajectory:
    """Random ids and noise for pages."""
    draw = np.random.default_rng(seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(int(x) for x in draw.integers(6, VOCAB, count))

    def turn() -> types.Turn:
        out = io.BytesIO()
        noise = draw.integers(0, 255, (SIDE_PX, SIDE_PX, 3), np.uint8)
        Image.fromarray(noise).save(out, format="PNG")
        return types.Turn(
            observation=types.Observation(
                screenshot=out.getvalue(),
                width_px=SIDE_PX,
                height_px=SIDE_PX,
                tabs=(),
                active_tab=0,
            ),
            segments=(types.Segment(role="user", text="", image="page"),),
            reply_text="",
            thought="",
            calls=(),
            seen_ids=(*tokens(TEXT // 2), *[PAD] * IMAGE, *tokens(TEXT // 2)),
            remembered_ids=tokens(TEXT + REPLY),
            response_ids=tokens(REPLY),
            logprobs=(-6.0,) * REPLY,
            version=0,
        )

    return types.Trajectory(
        task=types.Task(id="task", intent="", start_url="", max_turns=turns),
        system_segment=types.Segment(role="system", text=""),
        system_ids=tokens(SYSTEM),
        turns=tuple(turn() for _ in range(turns)),
        final=None,
        answer="",
        facts={},
        cause=causes.Cause.DONE,
        rule=RULE,
        context_screenshots=newest,
    )


@functools.cache
def make_learner(width: int) -> tuple[update.Update, Any]:
    """A model of that width with two layers and a very small tower."""
    model = sizes.Sizes(
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
            heads=2,
            kv_heads=1,
            head_width=width // 2,
            rope_theta=1e6,
            rope_section=(width // 8, width // 16, width // 16),
            norm_eps=1e-6,
        ),
        is_tied=True,
    )
    graphdef, params = nnx.split(init.init_model(model, 0), nnx.Param)
    devices = mesh.make_mesh(1, 1, 1, jax.devices()[:1])
    config = common.get_config()
    tx = optim.make_optimizer(config.optim)
    like = state.abstract_state(params, tx, devices)
    plain = SimpleNamespace(dtype="float32", remat=True, train_vision=True)
    made = update.make_update(graphdef, like, tx, devices, RULE, config.algo, plain)
    return made, state.init_state(params, tx, devices)


def make_batch(made: list[types.Row]) -> types.Batch:
    """A line for each row, as long as the longest one."""
    shape = collate.Lattice(
        rows=len(made),
        lengths=tuple(range(1024, 131_072, 1024)),
        loss_tokens=max(np.count_nonzero(row.loss_weight) for row in made),
        images=(len({png for row in made for png in row.images}),),
        patches=(IMAGE * SPEC.merge**2,),
    )
    lines = [[row] for row in made]
    return collate.collate(lines, shape, SPEC, image_id=PAD, table_side=8)


def peak_mb(learner: update.Update, params: Any, batch: types.Batch) -> float:
    """Temporary memory of the batch's program."""
    with jax.set_mesh(learner.mesh):
        sums = learner.start(params)
        program = learner.accumulate.lower(params, sums, learner.place(batch)).compile()
    return program.memory_analysis().temp_size_in_bytes / 2**20


def measure(turns: int, newest: int, width: int) -> dict[str, float]:
    """Ratios, rows of turns over tree, of one trajectory."""
    learner, start = make_learner(width)
    trajectory = make_trajectory(turns, newest, seed=turns)
    told: dict[str, dict[str, Any]] = {}
    for layout, make in (("turn", rows.turn_rows), ("tree", rows.tree_rows)):
        made = make(trajectory, "t")
        made = rows.weigh(made, "turn_mean", rows.turn_counts(made), 0.0)
        told[layout] = {
            "tokens": sum(len(row.ids) for row in made),
            "batches": [make_batch([row]) for row in made],
            "mb": peak_mb(learner, start.params, make_batch(made)),
            "seconds": [],
        }
    longest = told["turn"]["batches"][-1]
    alone_mb = peak_mb(learner, start.params, longest)
    for number in range(_REPEATS.value + 1):
        for each in told.values():
            copy = jax.tree.map(lambda leaf: leaf.copy(), start)  # it is donated
            began = time.perf_counter()
            jax.block_until_ready(learner.step(copy, each["batches"]))
            if number:
                each["seconds"].append(time.perf_counter() - began)
    turn, tree = told["turn"], told["tree"]
    assert (turn["tokens"], tree["tokens"]) == predicted(turns, newest)
    for each in told.values():
        each["s"] = statistics.median(each["seconds"])
    ratio = {name: turn[name] / tree[name] for name in ("tokens", "s", "mb")}
    print(
        f"{turns:3} {newest:2} {width:6}"
        f" {turn['tokens']:8} {tree['tokens']:8} {ratio['tokens']:6.2f}"
        f" {turn['s']:8.2f} {tree['s']:8.2f} {ratio['s']:6.2f}"
        f" {turn['mb']:7.0f} {tree['mb']:7.0f} {ratio['mb']:6.2f} {alone_mb:7.0f}",
        flush=True,
    )
    return ratio


def main(_: list[str]) -> None:
    """The table, then the line of ratios."""
    print(
        f"{'T':>3} {'K':>2} {'width':>6} {'tokens, turns, tree, ratio':>24}"
        f" {'seconds, turns, tree, ratio':>24} {'MB, turns, tree, ratio':>22}"
        f" {'a turn':>7}"
    )
    turns, newest, widths = (
        [int(x) for x in flag.value] for flag in (_TURNS, _NEWEST, _WIDTHS)
    )
    found = {
        (T, K, width): measure(T, K, width)
        for width in widths
        for K in newest
        for T in turns
    }
    last = {T: found.get((T, newest[0], widths[-1]), {}) for T in (5, 30)}
    ratios = {
        "tokens_ratio_t30": last[30].get("tokens"),
        "update_ratio_t30": last[30].get("s"),
        "update_ratio_t5": last[5].get("s"),
        "memory_ratio_t30": last[30].get("mb"),
    }
    print(json.dumps({k: v and round(v, 2) for k, v in ratios.items()}))


if __name__ == "__main__":
    app.run(main)
