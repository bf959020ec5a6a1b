"""The sampler as a whole, on a real model with tiny random weights."""

import asyncio
import dataclasses
import random

import jax
import numpy as np
import pytest
from flax import nnx

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.models import load
from openwebrl_jax.models import sizes as sizes_of
from openwebrl_jax.tokens import chat, images
from tests.policy import episodes


@pytest.fixture(scope="module")
def warm(make):
    """A sampler that has compiled all that it may need."""
    sampler = make()
    asyncio.run(sampler.warm_up())
    assert sampler.compilations() == sampler.lattice.size(encodings=2)
    yield sampler
    asyncio.run(sampler.close())


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


async def test_static_shapes_make_replies_equal_to_the_bit(make, ask):
    """R50: whatever else runs, in whatever order, and however often it was asked."""
    static = make(static=True, slots=3)
    requests = [ask(f"click {i % 3} " * (1 + i), i % 4, (0, i, 0, 0)) for i in range(7)]
    order = random.Random(0).sample(range(7), 7)

    def together(numbers):
        return asyncio.gather(*(static.sample(requests[i]) for i in numbers))

    told = [
        dict(zip(order, await together(order), strict=True)),
        dict(enumerate(await together(range(7)))),
        {i: await static.sample(request) for i, request in enumerate(requests)},
    ]
    await static.close()
    for i in range(7):
        assert len({each[i].response_ids for each in told}) == 1
        assert len({each[i].logprobs for each in told}) == 1


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


async def test_a_warm_sampler_compiles_nothing(warm, png, make_params):
    """R48: episodes of random lengths, pictures and screenshots, and other weights."""
    before, draw = warm.compilations(), random.Random(0)

    async def play(number):
        player = episodes.Player(
            png,
            newest=draw.randrange(1, 4),
            name=str(number),
            key=(0, number, 0),
            text="x " * draw.randrange(16),
            first=draw.randrange(5),
        )
        for _ in range(draw.randrange(1, 5)):
            try:
                await player.turn(warm)
            except Failure as failure:
                assert failure.cause is Cause.CONTEXT_FULL
        await warm.release(str(number))

    await asyncio.gather(*map(play, range(40)))
    await warm.load(7, make_params(0)[1])
    await play(40)
    assert warm.compilations() == before
    stats = warm.stats()
    assert stats["replies"] > 80 and stats["compilations"] == before
    assert 0 < stats["prefilled_tokens"] < stats["prefill_places"]
    steps, rows = stats["steps"], stats["row_steps"]
    assert stats["replies"] < rows <= stats["row_steps_sq"]
    assert 0 < steps <= rows and stats["busy_s"] <= stats["row_s"]
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


async def test_weights_change_between_replies_and_these_say_which(
    make, make_params, folder, ask
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
        turn = episodes.Played(
            [*reply.system_ids, *reply.seen_ids], reply, [*request.images.values()]
        )
        logps = episodes.learner_logps(folder, *make_params(seed), sampler.rule, turn)
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
    monkeypatch.setattr(warm._speaker, "params", None)
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


def test_rows_that_fit_no_device_are_refused(make):
    with pytest.raises(ValueError, match=r"slots=1000000000 .* GB .* set slots to at"):
        make(slots=10**9)


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
