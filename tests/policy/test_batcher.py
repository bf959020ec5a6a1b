"""Items come and go; neither an error, a cancelled caller nor the end wedges any."""

import asyncio
import threading
import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import batcher


class Gate:
    """Work that waits until it is opened; keeps what was inside at each step.

    An item is (name, steps that it takes); its result is its name and how long it
    waited. The item "bad" makes its first step fail.
    """

    def __init__(self):
        self.seen = []
        self.inside = []
        self.is_running = threading.Event()
        self.opened = threading.Event()

    def add(self, item, came_s, finish):
        name, steps = item
        self.inside.append([name, steps, time.monotonic() - came_s, finish])

    def step(self):
        self.seen.append([name for name, *_ in self.inside])
        self.is_running.set()
        assert self.opened.wait(10)
        if "bad" in self.seen[-1]:
            raise RuntimeError("out of memory")
        for line in self.inside:
            line[1] -= 1
            if line[1] == 0:
                line[3]((line[0], line[2]))
        self.inside = [line for line in self.inside if line[1]]

    def drop(self):
        self.inside = []


async def _begun(gate, one, steps=1):
    """A task that submits to `one`, once its first step runs."""
    task = asyncio.create_task(one.submit(("first", steps)))
    await asyncio.to_thread(gate.is_running.wait, 10)
    return task


def _submit(one, *items):
    return [asyncio.create_task(one.submit(item)) for item in items]


async def test_items_that_wait_go_together_and_in_order():
    gate = Gate()
    one = batcher.Batcher(gate, slots=4)
    first = await _begun(gate, one)
    others = _submit(one, *((i, 1) for i in range(6)))
    await asyncio.sleep(0)  # they are handed in
    await asyncio.sleep(0.05)
    gate.opened.set()
    results = await asyncio.gather(first, *others)
    assert [item for item, _ in results] == ["first", *range(6)]
    assert gate.seen == [["first"], [0, 1, 2, 3], [4, 5]]
    assert results[1][1] >= 0.05  # it waited for the step before it
    await one.close()


async def test_who_is_done_makes_room_at_once():
    gate = Gate()
    one = batcher.Batcher(gate, slots=3)
    first = await _begun(gate, one, steps=4)
    others = _submit(one, ("a", 2), ("b", 1), ("c", 1), ("d", 1))
    await asyncio.sleep(0.01)
    gate.opened.set()
    await asyncio.gather(first, *others)
    assert gate.seen == [
        ["first"],
        ["first", "a", "b"],
        ["first", "a", "c"],
        ["first", "d"],
    ]
    await one.close()


async def test_an_idle_batcher_gathers_what_comes_in_quick_succession():
    gate = Gate()
    gate.opened.set()
    one = batcher.Batcher(gate, slots=64)
    await asyncio.gather(*(one.submit((i, 1)) for i in range(32)))
    assert len(gate.seen) <= 2
    await one.close()


async def test_the_event_loop_stays_live_while_a_step_runs():
    gate = Gate()
    one = batcher.Batcher(gate, slots=1)
    first = await _begun(gate, one)
    start_s = time.monotonic()
    await asyncio.sleep(0.01)
    assert time.monotonic() - start_s < 2 and not first.done()
    gate.opened.set()
    await first
    await one.close()


async def test_a_cancelled_caller_leaves_the_others_alone():
    gate = Gate()
    one = batcher.Batcher(gate, slots=1)
    running = await _begun(gate, one)
    waiting, last = _submit(one, ("second", 1), ("third", 1))
    await asyncio.sleep(0.01)
    running.cancel()
    waiting.cancel()
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await last)[0] == "third"
    assert gate.seen == [["first"], ["third"]]
    await one.close()


async def test_a_failed_step_fails_what_is_inside_and_no_more():
    gate = Gate()
    one = batcher.Batcher(gate, slots=2)
    first = await _begun(gate, one, steps=2)
    bad, good = _submit(one, ("bad", 1), ("good", 1))
    await asyncio.sleep(0.01)
    gate.opened.set()
    for error in await asyncio.gather(first, bad, return_exceptions=True):
        assert isinstance(error, Failure) and error.cause is Cause.SAMPLER_UNAVAILABLE
        assert "out of memory" in error.detail
    assert (await good)[0] == "good"
    assert gate.seen == [["first"], ["first", "bad"], ["good"]]
    await one.close()


async def test_a_chore_runs_while_nothing_is_inside_and_before_who_waits():
    gate = Gate()
    one = batcher.Batcher(gate, slots=2)
    first = await _begun(gate, one, steps=2)
    chore = asyncio.create_task(one.between(lambda: list(gate.seen)))
    await asyncio.sleep(0.01)
    (waiting,) = _submit(one, ("second", 1))
    await asyncio.sleep(0.01)
    assert not chore.done()
    gate.opened.set()
    await asyncio.gather(first, waiting)
    assert await chore == [["first"], ["first"]]
    with pytest.raises(ZeroDivisionError):
        await one.between(lambda: 1 // 0)
    await one.close()


async def test_close_answers_the_running_and_fails_the_waiting():
    gate = Gate()
    one = batcher.Batcher(gate, slots=2)
    running = await _begun(gate, one, steps=3)
    closing = asyncio.create_task(one.close())
    chore = asyncio.create_task(one.between(list))
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await running)[0] == "first"
    for late in (chore, one.submit(("third", 1))):
        with pytest.raises(Failure) as error:
            await late
        assert error.value.cause is Cause.SAMPLER_UNAVAILABLE
    await closing


async def test_who_waits_at_the_end_is_told():
    gate = Gate()
    one = batcher.Batcher(gate, slots=1)
    running = await _begun(gate, one)
    (waiting,) = _submit(one, ("second", 1))
    chore = asyncio.create_task(one.between(list))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(one.close())
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await running)[0] == "first"
    for late in (waiting, chore):
        with pytest.raises(Failure) as error:
            await late
        assert error.value.cause is Cause.SAMPLER_UNAVAILABLE
    await closing
