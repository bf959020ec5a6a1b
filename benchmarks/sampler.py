"""The sampler against torch's `generate`, against itself later, and without slots.

    python -m benchmarks.sampler

Two tables of times that were taken in turns, in one process, warm. First: eight new
prompts with a screenshot each, as many tokens from both sides, greedy, float32, two
threads, from ids and patches to ids; torch runs the very same checkpoint folder,
left-padded and with its cache. Second: one turn of an episode with 300 text
and 900 image tokens a turn, where only the newest screenshot is seen, with its row and
with the row forgotten before; the model has the share of attention of an 8B one. The
last line is JSON: `vs_torch_generate` on the demo's model, `vs_torch_generate_512` on
a wider one, `turn30_over_turn3`, and `vs_no_slots` (sums over the turns of the table).
"""

import asyncio
import dataclasses
import hashlib
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags
from flax import nnx
from ml_collections import ConfigDict

from benchmarks import checkpoints, trajectories
from openwebrl_jax.core import types
from openwebrl_jax.models import load
from openwebrl_jax.policy import prompt as prompts
from openwebrl_jax.policy import sampler as samplers
from openwebrl_jax.policy import speaker
from openwebrl_jax.tokens import chat as chats
from openwebrl_jax.tokens import images

_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each, after warm ones.")
_TURNS = flags.DEFINE_list("turns", ["3", "10", "20", "30"], "Turns of the episode.")

ROWS, REPLY = 8, 32
WARM = 3  # runs that are not timed: they compile
# For each product of a token with a weight as many with keys, and as many scores, as
# in an 8B model.
EPISODE = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 128,
}
SYSTEM, TEXT, SPOKEN, IMAGE = 500, 200, 100, 900  # tokens; a turn has text and reply
PAGE = (160, 224)  # pixels, of the demo
LARGE_PAGE = (960, 960)  # 900 tokens


class EndlessChat(chats.Chat):
    """A chat in which the end of a turn is never sampled."""

    def rule(self, temperature: float) -> types.SamplingRule:
        rule = super().rule(temperature)
        return dataclasses.replace(
            rule, forbidden_ids=(*rule.forbidden_ids, self.end_id)
        )


def make_sampler(
    folder: pathlib.Path, page: tuple[int, int], **sample: Any
) -> samplers.Sampler:
    """A sampler of the folder whose replies never end."""
    shape, model = load.load_model(folder, dtype=jnp.float32)
    graphdef, params = nnx.split(model, nnx.Param)
    return samplers.Sampler(
        graphdef,
        params,
        0,
        chat=load_chat(folder),
        spec=images.load_spec(folder),
        sizes=shape,
        config=ConfigDict({"temperature": 1.0, "static": False, **sample}),
        image_px=page,
        context_screenshots=1,
    )


def load_chat(folder: pathlib.Path) -> EndlessChat:
    """The folder's chat without an end."""
    chat = chats.load_chat(folder, history="full", open_think=False)
    fields = {
        field.name: getattr(chat, field.name) for field in dataclasses.fields(chat)
    }
    return EndlessChat(**fields)


def make_request(
    text: str,
    png: bytes,
    *,
    system: types.Segment,
    past: tuple[types.Segment, ...] = (),
    name: str = "e",
    is_greedy: bool = True,
) -> types.SampleRequest:
    """A turn with one screenshot."""
    sha = hashlib.sha256(png).hexdigest()
    mark = f"{text}\n{types.IMAGE_MARK}\n"
    user = types.Segment(role="user", text=mark, image=sha, remembered_text=text)
    return types.SampleRequest(
        episode_id=name,
        turn=len(past),
        segments=(system, *past, user),
        images={sha: png},
        key=(0, 0, 0, len(past)),
        is_greedy=is_greedy,
    )


def new_requests(draw: np.random.Generator) -> list[types.SampleRequest]:
    """Prompts that nobody has seen, of the demo's length."""
    system = types.Segment(role="system", text="Do the task.")
    words = ("click", "the", "button", "tab", "link", "OK", "Cancel", "page")
    return [
        make_request(
            " ".join(draw.choice(words, 6 + row)),
            trajectories.noise(draw, PAGE),
            system=system,
            name=f"{draw.integers(1 << 40)}",
        )
        for row in range(ROWS)
    ]


async def speak(
    one: samplers.Sampler, call: Callable[..., Any], asked: Sequence[Any]
) -> tuple[float, list[Any]]:
    """Seconds and what the sampler's `call` gives; the episodes end with it."""
    start_s = time.perf_counter()
    told = await asyncio.gather(*map(call, asked))
    seconds = time.perf_counter() - start_s
    for each in asked:
        await one.release(each.episode_id)
    return seconds, told


async def speak_ids(
    one: samplers.Sampler, params: Any, read: list[prompts.Prompt]
) -> tuple[float, list[speaker.Spoken]]:
    """Seconds and what is drawn for prompts of which nothing was computed yet."""
    await one.load(0, params)  # as new weights do, it empties all rows
    return await speak(one, one.speak, read)


def torch_inputs(
    folder: pathlib.Path,
    requests: list[types.SampleRequest],
    read: list[prompts.Prompt],
) -> dict[str, torch.Tensor]:
    """The same prompts, left-padded."""
    chat, spec = load_chat(folder), images.load_spec(folder)
    ids = [prompt.ids_L.tolist() for prompt in read]
    length = max(map(len, ids))
    mask = [[0] * (length - len(row)) + [1] * len(row) for row in ids]
    ids = torch.tensor([[chat.end_id] * (length - len(row)) + row for row in ids])
    cut = [images.patches(spec, *request.images.values()) for request in requests]
    return {
        "input_ids": ids,
        "attention_mask": torch.tensor(mask),
        "mm_token_type_ids": (ids == chat.image_id).int(),
        "pixel_values": torch.from_numpy(np.concatenate([p for p, _ in cut])),
        "image_grid_thw": torch.tensor([[1, *grid] for _, grid in cut]),
    }


def against_torch(folder: pathlib.Path) -> float:
    """Tokens a second of ours over torch's."""
    ours = make_sampler(
        folder,
        PAGE,
        response_tokens=REPLY,
        context_tokens=160,
        slots=ROWS,
        prompt_buckets=(128,),
    )
    params = nnx.split(load.load_model(folder, dtype=jnp.float32)[1], nnx.Param)[1]
    theirs = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32
    )
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0
    draw, seconds, told = np.random.default_rng(0), [], []
    for number in range(_REPEATS.value + WARM):
        requests = new_requests(draw)
        read = [ours.read(request) for request in requests]
        our_s, spoken = asyncio.run(speak_ids(ours, params, read))
        assert all(len(each.ids) == REPLY for each in spoken)
        inputs = torch_inputs(folder, requests, read)
        start_s = time.perf_counter()
        with torch.inference_mode():
            rows = theirs.generate(**inputs, do_sample=False, max_new_tokens=REPLY)
        their_s = time.perf_counter() - start_s
        assert rows.shape == (ROWS, inputs["input_ids"].shape[1] + REPLY)
        if number >= WARM:
            seconds.append((our_s, their_s))
        told.append(inputs["input_ids"].shape[1])
    asyncio.run(ours.close())
    our_s, their_s = (statistics.median(side) for side in zip(*seconds, strict=True))
    width, tokens = theirs.config.text_config.hidden_size, ROWS * REPLY
    print(
        f"{width:6} {told[-1]:6} {tokens / our_s:9.0f} {tokens / their_s:9.0f}"
        f" {their_s / our_s:6.2f}",
        flush=True,
    )
    return their_s / our_s


def words(chat: chats.Chat, tokens: int) -> str:
    """A text of so many tokens."""
    one = len(chat.plain.encode(" click").ids)
    return " click" * (tokens // one)


def of_turn(
    chat: chats.Chat, turn: int, draw: np.random.Generator
) -> types.SampleRequest:
    """The request of a turn; earlier turns are the same in every one."""
    fixed = np.random.default_rng(0)
    plain = sorted({*chat.plain.get_vocab().values()} - {*chat.control.values()})

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(int(x) for x in fixed.choice(plain, count))

    return make_request(
        words(chat, TEXT),
        trajectories.noise(draw, LARGE_PAGE),
        system=types.Segment(role="system", text="", ids=tokens(SYSTEM)),
        past=tuple(
            types.Segment(role="user", text="", ids=tokens(TEXT + SPOKEN))
            for _ in range(turn)
        ),
    )


async def play_turn(
    one: samplers.Sampler,
    params: Any,
    chat: chats.Chat,
    turn: int,
    draw: np.random.Generator,
) -> tuple[float, float]:
    """Seconds of a turn whose row holds the turn before it, and of one without."""
    await one.sample(of_turn(chat, turn - 1, draw))
    kept_s, _ = await speak(one, one.sample, [of_turn(chat, turn, draw)])
    await one.load(0, params)  # as new weights do, it empties all rows
    lost_s, _ = await speak(one, one.sample, [of_turn(chat, turn, draw)])
    return kept_s, lost_s


def episode(folder: pathlib.Path) -> dict[int, tuple[float, float]]:
    """Seconds of each turn, with its row and without."""
    context = SYSTEM + (1 + max(map(int, _TURNS.value))) * (TEXT + SPOKEN) + 2 * IMAGE
    _, model = load.load_model(folder, dtype=jnp.float32)
    params = nnx.split(model, nnx.Param)[1]
    one = make_sampler(
        folder,
        LARGE_PAGE,
        response_tokens=SPOKEN,
        context_tokens=context,
        slots=1,
        prompt_buckets=(2048, 3072, 4096, 6144, 8192, context),
    )
    chat, draw, found = load_chat(folder), np.random.default_rng(1), {}
    for turn in map(int, _TURNS.value):
        pairs = [
            asyncio.run(play_turn(one, params, chat, turn, draw))
            for _ in range(1 + max(1, _REPEATS.value // 2))
        ]
        kept_s, lost_s = (statistics.median(x) for x in zip(*pairs[1:], strict=True))
        found[turn] = kept_s, lost_s
        print(
            f"{turn:6} {kept_s:9.2f} {lost_s:9.2f} {lost_s / kept_s:6.2f}", flush=True
        )
    asyncio.run(one.close())
    return found


def main(_: list[str]) -> None:
    """The tables, then the line of ratios."""
    torch.set_num_threads(2)
    jax.config.update("jax_default_matmul_precision", "highest")
    with tempfile.TemporaryDirectory() as folder:
        tiny, wide, long = (pathlib.Path(folder) / name for name in "twl")
        checkpoints.make_tiny(tiny)
        checkpoints.make_folder(tiny, wide, checkpoints.WIDE)
        checkpoints.make_folder(tiny, long, EPISODE)
        print(" width prompt    ours/s   torch/s  ratio")
        ratios = {
            "vs_torch_generate": against_torch(tiny),
            "vs_torch_generate_512": against_torch(wide),
        }
        print("  turn    kept s    lost s  ratio")
        found = episode(long)
    kept, lost = (sum(side) for side in zip(*found.values(), strict=True))
    late = found[30][0] / found[3][0] if {3, 30} <= found.keys() else None
    told = ratios | {"turn30_over_turn3": late, "vs_no_slots": lost / kept}
    print(json.dumps({k: v and round(v, 2) for k, v in told.items()}))


if __name__ == "__main__":
    app.run(main)
