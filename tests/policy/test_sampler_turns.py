"""Episodes of many turns: rows remember, and nothing else changes by that."""

import asyncio
import random
import threading

import numpy as np
import pytest

from openwebrl_jax.policy import generate, speaker
from tests.policy import episodes
from tests.policy.episodes import Player

LONG = {"context_tokens": 500, "prompt_buckets": (500,)}


@pytest.fixture(scope="module")
def make_short(make):
    """Makes a sampler whose calls end everywhere: in pictures, texts and replies."""

    def make_sampler(history="full", **sample):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generate, "WIDE_TOKENS", 20)
            patch.setattr(generate, "NARROW_TOKENS", 7)
            patch.setattr(generate, "NARROW_ROWS", 2)
            patch.setattr(generate, "DECODE_TOKENS", 3)
            return make(history, **LONG | sample)

    return make_sampler


@pytest.fixture(scope="module")
def crowded(make_short):
    sampler = make_short(slots=3)
    yield sampler
    asyncio.run(sampler.close())


@pytest.fixture(scope="module")
def alone(make_short):
    sampler = make_short(slots=1)
    yield sampler
    asyncio.run(sampler.close())


@pytest.fixture(scope="module")
def check(folder, make_params):
    """Fails unless the reply has the learner's log-probs under the seed's weights."""

    def check_turn(sampler, turn, seed=0):
        logps = episodes.learner_logps(folder, *make_params(seed), sampler.rule, turn)
        np.testing.assert_allclose(turn.reply.logprobs, logps, atol=1e-5, rtol=0)

    return check_turn


@pytest.mark.parametrize("history", ["full", "hide_thinking", "action_only"])
async def test_log_probs_are_the_learners_at_every_turn(
    make_short, png, check, history
):
    """R14: at a temperature of 0.6, to 1e-5."""
    sampler = make_short(history, slots=2, prompt_buckets=(128, 500))
    for newest in (1, 2, 3):
        player = Player(png, newest)
        for _ in range(5):
            check(sampler, await player.turn(sampler))
    stats = sampler.stats()
    assert stats["reused_tokens"] > stats["prompt_tokens"] / 4
    await sampler.close()


async def test_rows_that_are_shared_lost_and_outdated_change_no_log_prob(
    crowded, make_params, png, check
):
    """Five episodes on three rows: beginnings are copied, and rows go to others."""
    crowded.stats()
    players = [Player(png, 2, name=str(i), key=(0, 0, i)) for i in range(5)]
    for _ in range(2):
        for played in await asyncio.gather(*(p.turn(crowded) for p in players)):
            check(crowded, played)
    stats = crowded.stats()
    assert stats["copied_tokens"] > 0 and stats["reused_tokens"] > 0
    await crowded.load(8, make_params(1)[1])
    for played in await asyncio.gather(*(p.turn(crowded) for p in players)):
        assert played.reply.version == 8
        check(crowded, played, seed=1)
    await crowded.load(7, make_params(0)[1])
    check(crowded, await players[0].turn(crowded))
    assert crowded.stats()["prefilled_tokens"] >= len(players[0].played[-1].ids) - 1


async def test_a_stream_is_the_same_crowded_and_alone(crowded, alone, png):
    """In other orders, with other neighbours, in rows that others have used."""
    draw = random.Random(0)

    async def play(sampler, number):
        group = number // 3
        player = Player(
            png,
            1 + group,
            name=str(number),
            key=(0, group, number % 3),
            text="go " * (1 + group),
        )
        for _ in range(3):
            await asyncio.sleep(draw.random() / 50)
            await player.turn(sampler)
        await sampler.release(str(number))
        return [
            (turn.reply.response_ids, turn.reply.logprobs) for turn in player.played
        ]

    many = await asyncio.gather(*(play(crowded, number) for number in range(9)))
    for number in draw.sample(range(9), 9):
        for one, other in zip(await play(alone, number), many[number], strict=True):
            assert one[0] == other[0]
            np.testing.assert_allclose(one[1], other[1], atol=1e-5)
    assert len({tuple(ids for ids, _ in turns) for turns in many}) == 9


async def test_a_late_turn_prefills_no_more_than_an_early_one(alone, png):
    player, before = Player(png, 1, text="walk"), ()
    alone.stats()
    for turn in range(12):
        ids, reply, _ = await player.turn(alone)
        stats = alone.stats()
        known = stats["reused_tokens"] + stats["prefilled_tokens"]
        assert known == stats["prompt_tokens"] - 1 == len(ids) - 1
        if turn:
            assert stats["prefilled_tokens"] <= len(before) + len(reply.seen_ids)
        before = reply.remembered_ids
    assert len(ids) > 4 * stats["prefilled_tokens"]


async def test_long_prompts_hold_a_reply_for_a_few_chunks_only(
    crowded, png, check, monkeypatch
):
    monkeypatch.setattr(speaker, "HELD_CHUNKS", 2)

    def player(number, key=(0, 0, 0)):
        texts = ("go", "to the page " * 20, "a page " * 30)
        return Player(png, 1, name=f"{number} {key}", key=key, text=texts[number])

    keys = iter((0, number, 0) for number in range(50))
    while True:  # until a reply takes several decodes
        first = player(0, next(keys))
        if len((await first.turn(crowded)).reply.response_ids) == 8:
            break
    calls = []
    for call in ("_run_prefill", "_run_decode"):
        run = getattr(crowded._speaker, call)

        def noted(*arguments, call=call, run=run):
            calls.append(call[len("_run_")])
            return run(*arguments)

        monkeypatch.setattr(crowded._speaker, call, noted)
    all_are_there, turns = threading.Event(), []
    held_up = asyncio.create_task(crowded._batcher.between(all_are_there.wait))
    for one in (player(0, first.key), player(1), player(2)):
        turns.append(asyncio.create_task(one.turn(crowded)))
        while len(crowded._batcher._items) < len(turns):
            await asyncio.sleep(0.001)
    all_are_there.set()
    await held_up
    for played in await asyncio.gather(*turns):
        check(crowded, played)
    _, *held = "".join(calls).split("d")[:3]
    assert held == ["ppp", "ppp"]


async def test_a_group_prefills_its_prompt_once(make, png, check):
    sampler = make(slots=8, **LONG)
    text = "click the button that says OK "
    players = [Player(png, 1, name=str(i), key=(0, 0, i), text=text) for i in range(8)]
    played = await asyncio.gather(*(player.turn(sampler) for player in players))
    tokens = len(played[0].ids) - 1
    assert tokens > generate.NARROW_TOKENS
    stats = sampler.stats()
    assert stats["prefilled_tokens"] == tokens
    assert stats["copied_tokens"] == 7 * tokens
    assert len({turn.reply.response_ids for turn in played}) == 8
    for turn in played:
        check(sampler, turn)
    await sampler.close()


async def test_a_released_row_serves_who_comes_next(alone, make_params, png, check):
    await alone.load(7, make_params(0)[1])  # which empties the row
    alone.stats()
    for name in "ab":
        check(alone, await Player(png, 1, name=name, key=(0, 0, 1)).turn(alone))
        await alone.release(name)
    stats = alone.stats()
    assert stats["reused_tokens"] == stats["prefilled_tokens"]
    assert stats["copied_tokens"] == 0
