"""Batches fill, and neither an error, a cancelled caller nor the end wedges any."""

import asyncio
import threading
import time

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import batcher


class Gate:
    """A run function that waits until it is opened; keeps the batches that it saw."""

    def __init__(self):
        self.seen = []
        self.is_running = threading.Event()
        self.opened = threading.Event()

    def __call__(self, items, waited_s):
        self.seen.append(list(items))
        self.is_running.set()
        assert self.opened.wait(10)
        return [(item, seconds) for item, seconds in zip(items, waited_s, strict=True)]


async def _begun(gate, one):
    """A task that submits to `one`, once its batch runs."""
    task = asyncio.create_task(one.submit("first"))
    await asyncio.to_thread(gate.is_running.wait, 10)
    return task


async def test_items_that_wait_go_together_and_in_order():
    gate = Gate()
    one = batcher.Batcher(gate, slots=4)
    first = await _begun(gate, one)
    others = [asyncio.create_task(one.submit(i)) for i in range(6)]
    await asyncio.sleep(0.05)
    gate.opened.set()
    results = await asyncio.gather(first, *others)
    assert [item for item, _ in results] == ["first", *range(6)]
    assert gate.seen == [["first"], [0, 1, 2, 3], [4, 5]]
    assert results[1][1] >= 0.05  # it waited for the batch before it
    await one.close()


async def test_an_idle_batcher_gathers_what_comes_in_quick_succession():
    gate = Gate()
    gate.opened.set()
    one = batcher.Batcher(gate, slots=64)
    await asyncio.gather(*(one.submit(i) for i in range(32)))
    assert len(gate.seen) <= 2
    await one.close()


async def test_the_event_loop_stays_live_while_a_batch_runs():
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
    waiting = asyncio.create_task(one.submit("second"))
    last = asyncio.create_task(one.submit("third"))
    await asyncio.sleep(0.01)
    running.cancel()
    waiting.cancel()
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await last)[0] == "third"
    assert gate.seen == [["first"], ["third"]]
    await one.close()


async def test_a_failed_batch_fails_its_own_items_only():
    def run(items, waited_s):
        if "bad" in items:
            raise RuntimeError("out of memory")
        return items

    one = batcher.Batcher(run, slots=1)
    bad, good = await asyncio.gather(
        one.submit("bad"), one.submit("good"), return_exceptions=True
    )
    assert isinstance(bad, Failure) and bad.cause is Cause.SAMPLER_UNAVAILABLE
    assert "out of memory" in bad.detail
    assert good == "good"
    await one.close()


async def test_a_chore_runs_between_batches_and_before_the_next():
    gate = Gate()
    one = batcher.Batcher(gate, slots=1)
    first = await _begun(gate, one)
    waiting = asyncio.create_task(one.submit("second"))
    chore = asyncio.create_task(one.between(lambda: list(gate.seen)))
    await asyncio.sleep(0.01)
    assert not chore.done()
    gate.opened.set()
    await asyncio.gather(first, waiting)
    assert await chore == [["first"]]
    with pytest.raises(ZeroDivisionError):
        await one.between(lambda: 1 // 0)
    await one.close()


async def test_close_answers_the_running_and_fails_the_waiting():
    gate = Gate()
    one = batcher.Batcher(gate, slots=1)
    running = await _begun(gate, one)
    waiting = asyncio.create_task(one.submit("second"))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(one.close())
    await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await running)[0] == "first"
    for late in (waiting, one.submit("third")):
        with pytest.raises(Failure) as error:
            await late
        assert error.value.cause is Cause.SAMPLER_UNAVAILABLE
    await closing
