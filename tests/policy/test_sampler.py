"""The sampler as a whole, on a real model with tiny random weights."""

import asyncio
import dataclasses
import functools
import hashlib
import random

import jax
import numpy as np
import pytest
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.models import head, load, qwen3_vl
from openwebrl_jax.models import sizes as sizes_of
from openwebrl_jax.policy import features, generate, prompt
from openwebrl_jax.policy import sampler as samplers
from openwebrl_jax.tokens import chat, images, positions


@functools.partial(jax.jit, static_argnums=(0, 2))
def _logps(graphdef, params, rule, pictures, ids_BL, positions_3BL, index_BL, loss_BN):
    model = nnx.merge(graphdef, params)
    hidden_BLD = qwen3_vl.forward(
        model,
        ids_BL,
        positions_3BL,
        np.zeros(ids_BL.shape, np.int32),
        index_BL,
        qwen3_vl.encode_images(model, *pictures),
    )
    hidden_ND, target_N = head.at_positions(hidden_BLD, ids_BL, loss_BN)
    return head.token_logps(hidden_ND, qwen3_vl.table_VD(model), target_N, rule)[0]


@pytest.fixture(scope="module")
def learner_logps(folder):
    """The learner's log-probs of a response: one forward pass, no cache."""
    spec, sizes = images.load_spec(folder), sizes_of.load_sizes(folder)
    image_id = chat.load_chat(folder, history="full", open_think=True).image_id
    tokens = 6  # of one picture

    def logps(graphdef, params, rule, prompt_ids, response_ids, pngs):
        ids = np.array([*prompt_ids, *response_ids], np.int32)
        cut = [images.patches(spec, png) for png in pngs]
        grids = [grid for _, grid in cut]
        places = positions.rope_positions(
            ids, grids, image_id=image_id, merge=spec.merge
        )
        index = positions.image_index(ids, image_id, [0, tokens][: len(pngs)])
        pictures = [prompt.Picture(patches_PN=p, grid=grid) for p, grid in cut]
        while len(pictures) < 2:
            pictures.append(pictures[0])
        fill = (0, 200 - len(ids))
        loss_N = np.arange(len(prompt_ids), len(ids), dtype=np.int32)
        logp_N = _logps(
            graphdef,
            params,
            rule,
            features.pad(pictures, 4 * tokens, spec.merge, sizes.vision.table_side),
            np.pad(ids, fill)[None],
            np.pad(places, ((0, 0), fill))[:, None],
            np.pad(index, fill, constant_values=-1)[None],
            np.pad(loss_N, (0, 8 - len(loss_N)))[None],
        )
        return np.asarray(logp_N)[: len(loss_N)]

    return logps


@pytest.fixture(scope="module")
def warm(make):
    """A sampler that has compiled all that it may need; it prefills row by row."""
    sampler = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "_PREFILL_TOKENS", 1)
        asyncio.run(sampler.warm_up())
    yield sampler
    asyncio.run(sampler.close())


async def play(sampler, png, context_screenshots, turns=4):
    """Plays an episode; for each turn the prompt's ids by the design, the reply, PNGs.

    The prompt of turn t is system + remembered turns 0..t-K + seen turns t-K+1..t.
    """
    system = types.Segment(role="system", text="You act.")
    past, users, shown, played = [], [], [], []
    for turn in range(turns):
        screenshot = png(turn)
        sha = hashlib.sha256(screenshot).hexdigest()
        user = types.Segment(
            role="user",
            text=f"step {turn}\n{types.IMAGE_MARK}\n",
            image=sha,
            remembered_text=f"step {turn}\n",
        )
        shown = [*shown, (sha, screenshot)][-context_screenshots:]
        segments, ids = [system], list(system.ids)
        for age, reply, old in zip(range(turn, 0, -1), past, users, strict=True):
            if age >= context_screenshots:
                kept = [types.Segment(role="user", text="", ids=reply.remembered_ids)]
            else:
                spoken = reply.response_ids + reply.closing_ids
                kept = [
                    dataclasses.replace(old, ids=reply.seen_ids),
                    types.Segment(role="assistant", text="", ids=spoken),
                ]
            segments += kept
            ids += [token for segment in kept for token in segment.ids]
        request = types.SampleRequest(
            episode_id="e",
            turn=turn,
            segments=(*segments, user),
            images=dict(shown),
            key=(1, 2, 3, turn),
        )
        reply = await sampler.sample(request)
        ids = [*(ids or reply.system_ids), *reply.seen_ids]
        system = dataclasses.replace(system, ids=reply.system_ids)
        past, users = [*past, reply], [*users, user]
        played.append((ids, reply, [picture for _, picture in shown]))
    return played


@pytest.mark.parametrize("history", ["full", "hide_thinking", "action_only"])
async def test_log_probs_are_the_learners_at_every_turn(
    make, make_params, learner_logps, png, history
):
    sampler = make(history, slots=1)
    for context_screenshots in (1, 2):
        for ids, reply, pngs in await play(sampler, png, context_screenshots):
            logps = learner_logps(
                *make_params(0), sampler.rule, ids, reply.response_ids, pngs
            )
            np.testing.assert_allclose(reply.logprobs, logps, atol=1e-5, rtol=0)
    await sampler.close()


async def test_a_reply_is_what_was_drawn_and_how_its_turn_goes_on(warm, ask, folder):
    chats = chat.load_chat(folder, history="full", open_think=True)
    replies = await asyncio.gather(
        *(warm.sample(ask(key=(0, i, 0, 0))) for i in range(24))
    )
    for reply in replies:
        has_end = reply.response_ids[-1] == chats.end_id
        assert reply.is_truncated == (not has_end)
        assert len(reply.response_ids) == 8 or has_end
        assert chats.end_id not in reply.response_ids[:-1]
        assert reply.closing_ids == chats.closing(reply.response_ids)
        assert reply.text == chats.decode(reply.response_ids)
        assert not set(reply.response_ids) & set(warm.rule.forbidden_ids)
        assert reply.seen_ids.count(chats.image_id) == 6
        user_ids = reply.remembered_ids[: reply.remembered_ids.index(chats.end_id)]
        assert chats.image_id not in user_ids
        assert reply.remembered_ids[-2 - len(reply.response_ids) :]
        assert reply.queued_s > 0 and reply.version == 7
    assert {reply.is_truncated for reply in replies} == {True, False}
    # Random bytes: to decode and to encode again would have changed some reply.
    assert any(
        chats.encode_reply(reply.text)[:-1] != reply.response_ids for reply in replies
    )


async def test_a_stream_depends_on_its_own_key_and_prompt_alone(warm, ask):
    requests = [ask(f"click {i % 3}", i, (0, i, i % 2, 0)) for i in range(9)]
    together = await asyncio.gather(*map(warm.sample, requests))
    order = random.Random(0).sample(range(9), 9)
    shuffled = dict(
        zip(
            order,
            await asyncio.gather(*(warm.sample(requests[i]) for i in order)),
            strict=True,
        )
    )
    for i, request in enumerate(requests):
        alone = await warm.sample(request)
        for other in (together[i], shuffled[i]):
            assert alone.response_ids == other.response_ids
            np.testing.assert_allclose(alone.logprobs, other.logprobs, atol=1e-5)
    longer = ask("click 0 " * 20, 0, (0, 0, 0, 0))  # makes its mates use another bucket
    alike, _ = await asyncio.gather(warm.sample(requests[0]), warm.sample(longer))
    assert alike.response_ids == together[0].response_ids


async def test_each_part_of_the_key_counts(warm, ask):
    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    keys += [(2**40, -1, 0, 0)]  # any integer is a key
    replies = await asyncio.gather(*(warm.sample(ask(key=key)) for key in keys))
    assert len({reply.response_ids for reply in replies}) == len(keys)


async def test_greedy_rows_share_a_batch_with_sampled_ones(warm, ask):
    keys = [(seed, 0, 0, 0) for seed in range(3)]
    greedy = [warm.sample(ask(key=key, is_greedy=True)) for key in keys]
    sampled = [warm.sample(ask(key=key)) for key in keys]
    replies = await asyncio.gather(*greedy, *sampled)
    assert len({reply.response_ids for reply in replies[:3]}) == 1
    assert len({reply.response_ids for reply in replies[3:]}) == 3


async def test_the_picture_is_seen(warm, ask):
    black, page = await asyncio.gather(
        *(warm.sample(ask(picture=picture, is_greedy=True)) for picture in (None, 0))
    )
    assert black.logprobs != page.logprobs


async def test_a_warm_sampler_compiles_nothing(warm, ask, make_params):
    before = warm.compilations()
    draw = random.Random(0)
    for _ in range(6):
        requests = [
            ask("x " * draw.randrange(60), draw.randrange(5), (0, i, 0, 0))
            for i in range(draw.randrange(1, 9))
        ]
        await asyncio.gather(*map(warm.sample, requests))
    await warm.load(7, make_params(0)[1])
    await warm.sample(ask())
    assert warm.compilations() == before
    stats = warm.stats()
    assert stats["replies"] > 0 and stats["compilations"] == before
    assert warm.stats()["replies"] == 0


async def test_what_is_wrong_with_a_request_fails_it_alone(warm, ask):
    good = ask(key=(5, 0, 0, 0))
    long = ask("too long " * 200)
    later = dataclasses.replace(long, turn=3)
    unseen = dataclasses.replace(good, images={})
    broken = dataclasses.replace(good, images=dict.fromkeys(good.images, b"no PNG"))
    cut = dataclasses.replace(
        good, images={key: png[:-40] for key, png in good.images.items()}
    )
    requests = [good, long, later, unseen, broken, cut, good]
    replies = await asyncio.gather(*map(warm.sample, requests), return_exceptions=True)
    assert replies[0].response_ids == replies[-1].response_ids
    assert [error.cause for error in replies[1:-1]] == [
        Cause.PROMPT_TOO_LONG,
        Cause.CONTEXT_FULL,
        Cause.SAMPLER_PROTOCOL,
        Cause.SAMPLER_PROTOCOL,
        Cause.SAMPLER_PROTOCOL,
    ]


async def test_weights_change_between_batches_and_replies_say_which(
    make, make_params, learner_logps, ask
):
    sampler = make(slots=1)
    before = asyncio.create_task(sampler.sample(ask()))
    while sampler.stats()["compilations"] == 0:  # until its batch runs
        await asyncio.sleep(0.01)
    graphdef, params = make_params(1)
    loading = asyncio.create_task(sampler.load(8, params))
    after = asyncio.create_task(sampler.sample(ask()))
    await loading
    jax.tree.map(lambda x: x.delete(), params)  # as donation would
    before, after = await before, await after
    assert (before.version, after.version) == (7, 8)
    for seed, reply in ((0, before), (1, after)):
        request = ask()
        logps = learner_logps(
            *make_params(seed),
            sampler.rule,
            reply.system_ids + reply.seen_ids,
            reply.response_ids,
            list(request.images.values()),
        )
        np.testing.assert_allclose(reply.logprobs, logps, atol=1e-5)
    await sampler.close()


async def test_weights_of_another_model_change_nothing(warm, make_params, ask):
    params = make_params(1)[1]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    with pytest.raises(ValueError, match="shape"):
        await warm.load_leaves(9, [leaves[0][..., :-1], *leaves[1:]])
    with pytest.raises(ValueError):
        await warm.load_leaves(9, leaves[1:])
    assert (await warm.sample(ask())).version == 7


async def test_log_probs_that_are_no_numbers_are_a_breach_of_protocol(
    warm, make_params, ask
):
    params = make_params(0)[1]
    await warm.load(8, jax.tree.map(lambda x: x * np.nan, params))
    with pytest.raises(Failure) as error:
        await warm.sample(ask())
    assert error.value.cause is Cause.SAMPLER_PROTOCOL
    await warm.load(7, params)
    assert (await warm.sample(ask())).version == 7


async def test_a_program_that_fails_leaves_the_sampler_whole(warm, ask, monkeypatch):
    expected = await warm.sample(ask())
    monkeypatch.setattr(warm, "_params", None)
    with pytest.raises(Failure) as error:
        await warm.sample(ask())
    assert error.value.cause is Cause.SAMPLER_UNAVAILABLE
    monkeypatch.undo()
    assert (await warm.sample(ask())).response_ids == expected.response_ids


async def test_a_closed_sampler_is_unavailable(make, ask):
    sampler = make()
    await sampler.close()
    with pytest.raises(Failure) as error:
        await sampler.sample(ask())
    assert error.value.cause is Cause.SAMPLER_UNAVAILABLE


def test_buckets_that_hold_no_full_prompt_are_refused(make):
    with pytest.raises(ValueError, match="prompt_buckets"):
        make(prompt_buckets=(64, 128))


def test_a_batch_has_few_widths():
    assert samplers.row_buckets(48) == [12, 24, 48]
    assert samplers.row_buckets(3) == [1, 2, 3]
    assert samplers.row_buckets(1) == [1]


async def test_greedy_tokens_are_torchs(warm, folder, make_params, ask, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    graphdef, params = make_params(0)
    sizes = sizes_of.load_sizes(folder)
    load.save_model(tmp_path, sizes, nnx.merge(graphdef, params), folder)
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float32
    )
    chats, spec = (
        chat.load_chat(folder, history="full", open_think=True),
        images.load_spec(folder),
    )
    for picture in range(3):
        request = ask(picture=picture, is_greedy=True)
        reply = await warm.sample(request)
        ids = torch.tensor([reply.system_ids + reply.seen_ids])
        patches, grid = images.patches(spec, *request.images.values())
        with torch.no_grad():
            spoken = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                mm_token_type_ids=(ids == chats.image_id).int(),
                pixel_values=torch.from_numpy(patches),
                image_grid_thw=torch.tensor([[1, *grid]]),
                do_sample=False,
                max_new_tokens=8,
                eos_token_id=chats.end_id,
                pad_token_id=chats.end_id,
                suppress_tokens=list(warm.rule.forbidden_ids),
            )
        assert tuple(spoken[0, ids.shape[1] :].tolist()) == reply.response_ids
