"""Episodes of many turns: rows remember, and nothing else changes by that."""

import asyncio
import random

import numpy as np
import pytest

from openwebrl_jax.policy import generate
from tests.policy import episodes
from tests.policy.episodes import Player

LONG = {"context_tokens": 500, "prompt_buckets": (128, 256, 500)}


@pytest.fixture
def borders(monkeypatch):
    """Calls that end everywhere: in a picture, a text and a reply."""
    monkeypatch.setattr(generate, "WIDE_TOKENS", 20)
    monkeypatch.setattr(generate, "NARROW_TOKENS", 7)
    monkeypatch.setattr(generate, "NARROW_ROWS", 2)
    monkeypatch.setattr(generate, "DECODE_TOKENS", 3)


@pytest.fixture(scope="module")
def check(folder, make_params):
    """Fails unless the reply has the learner's log-probs under the seed's weights."""

    def check_turn(sampler, turn, seed=0):
        logps = episodes.learner_logps(folder, *make_params(seed), sampler.rule, turn)
        np.testing.assert_allclose(turn.reply.logprobs, logps, atol=1e-5, rtol=0)

    return check_turn


@pytest.mark.parametrize("history", ["full", "hide_thinking", "action_only"])
async def test_log_probs_are_the_learners_at_every_turn(
    make, png, check, borders, history
):
    sampler = make(history, slots=2, **LONG)
    for newest in (1, 2, 3):
        player = Player(png, newest)
        for _ in range(5):
            check(sampler, await player.turn(sampler))
    stats = sampler.stats()
    assert stats["reused_tokens"] > stats["prompt_tokens"] / 4
    await sampler.close()


async def test_rows_that_are_shared_lost_and_outdated_change_no_log_prob(
    make, make_params, png, check, borders
):
    """Five episodes on three rows: beginnings are copied, and rows go to others."""
    sampler = make(slots=3, **LONG)
    players = [Player(png, 2, name=str(i), key=(0, 0, i)) for i in range(5)]
    for turn in range(2):
        for played in await asyncio.gather(*(p.turn(sampler) for p in players)):
            check(sampler, played)
        assert turn > 0 or sampler.stats()["copied_tokens"] > 0
    await sampler.load(8, make_params(1)[1])
    sampler.stats()
    for played in await asyncio.gather(*(p.turn(sampler) for p in players)):
        assert played.reply.version == 8
        check(sampler, played, seed=1)
    assert sampler.stats()["reused_tokens"] < 5 * len(players[0].played[0].ids)
    await sampler.close()


async def test_a_stream_is_the_same_crowded_and_alone(make, png, borders):
    """Two and many at once, in other orders, with other neighbours in the rows."""
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

    crowded, alone = make(slots=4, **LONG), make(slots=1, **LONG)
    many = await asyncio.gather(*(play(crowded, number) for number in range(9)))
    assert crowded.stats()["copied_tokens"] > 0
    for number in draw.sample(range(9), 9):
        for one, other in zip(await play(alone, number), many[number], strict=True):
            assert one[0] == other[0]
            np.testing.assert_allclose(one[1], other[1], atol=1e-5)
    await crowded.close()
    await alone.close()


async def test_a_late_turn_prefills_no_more_than_an_early_one(make, png):
    sampler = make(slots=1, **LONG)
    player, before = Player(png, 1), ()
    for turn in range(12):
        ids, reply, _ = await player.turn(sampler)
        stats = sampler.stats()
        assert stats["prefilled_tokens"] <= len(before) + len(reply.seen_ids)
        known = stats["reused_tokens"] + stats["prefilled_tokens"]
        assert known == stats["prompt_tokens"] - 1 == len(ids) - 1
        before = reply.remembered_ids if turn else ids
    assert len(ids) > 4 * stats["prefilled_tokens"]
    await sampler.close()


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


async def test_a_released_row_serves_who_comes_next(make, png, check):
    sampler = make(slots=1, **LONG)
    for name in "ab":
        check(sampler, await Player(png, 1, name=name, key=(0, 0, 1)).turn(sampler))
        await sampler.release(name)
    stats = sampler.stats()
    assert stats["reused_tokens"] == stats["prefilled_tokens"]
    assert stats["copied_tokens"] == 0
    await sampler.close()
