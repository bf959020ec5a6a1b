"""The ledger's actor on this event loop: nobody waits for ever, nothing blocks."""

import asyncio
import time

import pytest

from configs import grpo_short
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, ledger
from openwebrl_jax.runtime import cluster, queue
from tests.rollout import ledger_moves as moves


@pytest.fixture
def config():
    config = grpo_short.get_config("tiny")
    config.update_from_flattened_dict(
        {
            "tasks.suite": "fake",
            "algo.eta": 1,
            "algo.groups": 2,
            "algo.group": 2,
            "rollout.retries": 2,
            "rollout.task_timeout_s": 0.2,
            "rollout.lease_timeout_s": 1.0,
        }
    )
    return config


@pytest.fixture
async def started(config, tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "_LOOK_AGAIN_S", 0.05)
    made = queue.Queue()
    await made.start(config, str(tmp_path), None, 0)
    yield made
    end(made)


def end(made):
    """What the system does at a process's death."""
    made._fence.close()
    made._journal.close()


async def finish(made, lease, value, cause=Cause.DONE):
    record = moves.result(lease.slot, value, cause)
    await made.finish(lease.ordinal, lease.slot, lease.attempt, record)


async def test_slots_that_never_return_are_played_by_others(started):
    """R23: three leases of a worker that hangs; the batch comes all the same."""
    taken = asyncio.create_task(started.take(4))
    hung = [await started.lease("hangs") for _ in range(3)]

    async def play():
        while lease := await started.lease("works"):
            await finish(started, lease, float(lease.slot))

    playing = asyncio.create_task(play())
    groups = await asyncio.wait_for(taken, 5.0)
    assert [group.ordinal for group in groups] == [0, 1, 2, 3]
    assert {lease.ordinal for lease in hung} <= {0, 1}
    assert (await started.news()).counts["void"] == {"worker_lost": 3}
    await started.close()
    await playing


async def test_what_a_restart_gives_up_is_news(started, config, tmp_path):
    """Leases of before it are cancelled, and told as such; nothing else is twice."""
    await finish(started, await started.lease("w"), 1.0)
    await started.lease("w")
    end(started)
    again = queue.Queue()
    await again.start(config, str(tmp_path), None, 0)
    before, now = await again.before(), (await again.news()).counts
    end(again)
    assert before["void"].get("cancelled", 0) == 0
    assert now["void"]["cancelled"] == 1
    assert before["slots"]["scored"] == now["slots"]["scored"] == 1


async def test_if_nobody_plays_it_is_said_who_holds_what(started, monkeypatch):
    """R23: a typed report names lease, page, worker and the last event."""
    monkeypatch.setattr(queue, "_PATIENCE_S", -0.8)  # before the lease itself is over
    lease = await started.lease("worker-7")
    with pytest.raises(ledger.StallError) as caught:
        await asyncio.wait_for(started.take(1), 5.0)
    told = str(caught.value)
    for part in (
        "group 0 slot 0 attempt 0",
        "worker-7",
        lease.task.start_url,
        "leased",
    ):
        assert part in told


async def test_results_are_taken_in_while_nobody_takes_groups(started):
    """R25: at capacity admission stops; no put waits, and the loop stays live."""
    started._state = ledger.new_state(moves.limits(eta=1))  # its leases are long
    beats, is_over = [], False

    async def heart():
        while not is_over:
            beats.append(time.monotonic())
            await asyncio.sleep(0.002)

    beating = asyncio.create_task(heart())
    leases = [await started.lease("w") for _ in range(8)]  # (1 + 1) x 2 groups x 2
    more = asyncio.create_task(started.lease("w"))
    slowest = 0.0
    for lease in leases:
        begun = time.monotonic()
        await finish(started, lease, float(lease.slot))
        slowest = max(slowest, time.monotonic() - begun)
        await asyncio.sleep(0)
    assert slowest < 1.0 and not more.done()
    await started.take(2)
    await asyncio.sleep(0.02)
    assert not more.done()  # taken, and not yet spoken with
    is_over = True
    await beating
    lags = [b - a for a, b in zip(beats, beats[1:], strict=False)]
    assert lags and sorted(lags)[len(lags) // 2] < 0.05
    more.cancel()


async def test_a_result_that_is_none_is_no_result(started):
    """R22: it is refused where it comes in, and the lease ends by its deadline."""
    lease = await started.lease("w")
    with pytest.raises(AttributeError):
        await started.finish(lease.ordinal, lease.slot, lease.attempt, None)
    told = await started.news()
    assert told.counts["slots"]["running"] == told.counts["slots"]["leased"] == 1
    assert not told.slots


async def test_a_successor_waits_until_the_one_before_is_dead(
    started, config, tmp_path
):
    """R33: two ledgers never write one journal."""
    lease = await started.lease("w")
    successor = queue.Queue()
    starting = asyncio.create_task(
        asyncio.to_thread(
            lambda: asyncio.run(successor.start(config, str(tmp_path), None, 0))
        )
    )
    await asyncio.sleep(0.25)
    assert not starting.done()
    end(started)
    await asyncio.wait_for(starting, 5.0)
    assert successor._state.groups[lease.ordinal].places[0].attempt == 0
    end(successor)


async def test_what_came_since_is_told_once(started):
    lease = await started.lease("w")
    await finish(started, lease, 1.0)
    told = await started.news()
    assert [slot.index for slot in told.slots] == [lease.slot]
    assert told.memory_mb > 1.0
    assert not (await started.news()).slots


async def test_a_duplicate_is_in_no_statistic(started):
    """R33."""
    lease = await started.lease("w")
    for value in (1.0, 0.0):
        await finish(started, lease, value)
    told = await started.news()
    assert [slot.reward.value for slot in told.slots] == [1.0]
    assert told.counts["other"]["duplicates"] == 1


async def test_a_journal_that_lacks_what_a_checkpoint_saw_is_refused(
    started, config, tmp_path
):
    lease = await started.lease("w")
    await finish(started, lease, 1.0)
    snapshot = books.snapshot(started._state)
    end(started)
    path = tmp_path / queue.JOURNAL
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")
    again = queue.Queue()
    with pytest.raises(ValueError, match="has 1 events, the checkpoint of iteration 7"):
        await again.start(config, str(tmp_path), snapshot, 7)
    again._fence.close()


def count_offers(monkeypatch):
    """How often it was looked for a slot to lease, as a list that grows."""
    offers, offer = [], ledger.offer

    def counted(*arguments):
        offers.append(arguments)
        return offer(*arguments)

    monkeypatch.setattr(ledger, "offer", counted)
    return offers


@pytest.fixture
async def crowded(started, monkeypatch):
    """No slot is free: the leases that are out, and fifty contexts that wait."""
    monkeypatch.setattr(queue, "_LOOK_AGAIN_S", 60.0)
    started._state = ledger.new_state(moves.limits(eta=1))
    leases = [await started.lease("w") for _ in range(8)]
    waiting = [asyncio.create_task(started.lease("w")) for _ in range(50)]
    await asyncio.sleep(0)
    yield leases, waiting
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def settle():
    """Until all that can run has run."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_an_event_makes_one_of_those_who_wait_look(started, crowded, monkeypatch):
    leases, waiting = crowded
    offers = count_offers(monkeypatch)
    for lease in leases:
        await started.renew(lease.ordinal, lease.slot, lease.attempt)
        await settle()
    assert len(offers) <= len(leases)
    for lease in leases:  # three of the groups are dropped, and others opened
        await finish(started, lease, float(lease.ordinal == 0 and lease.slot))
        await settle()
    played = sum(task.done() for task in waiting)
    assert played == 6
    assert len(offers) <= 2 * len(leases) + played


async def test_an_acknowledgement_is_passed_on_until_no_slot_is_left(started, crowded):
    leases, waiting = crowded
    for lease in leases:
        await finish(started, lease, float(lease.slot))
    groups = await started.take(2)
    await settle()
    assert not any(task.done() for task in waiting)
    await started.trained(1, [group.ordinal for group in groups], 1)
    await started.acknowledged(1)
    await settle()
    assert [task.done() for task in waiting] == [True] * 4 + [False] * 46


async def test_who_gives_up_waiting_takes_no_slot_with_him(started, crowded):
    leases, waiting = crowded
    first, second, third, *_ = waiting
    second.cancel()
    await finish(started, leases[0], None, Cause.CANCELLED)
    first.cancel()  # it has been woken, and has not looked yet
    await settle()
    assert first.cancelled() and second.cancelled()
    assert third.result().slot == leases[0].slot


async def test_nobody_waits_for_a_lease_or_a_death_that_came(started, crowded):
    leases, waiting = crowded
    others = [asyncio.create_task(started.lease("gone")) for _ in range(3)]
    taken = asyncio.create_task(started.take(1))
    await settle()
    for lease in leases[:2]:
        await finish(started, lease, float(lease.slot))
    await settle()
    assert [group.ordinal for group in taken.result()] == [0]
    await started.worker_lost("gone")
    await started.worker_lost("w")
    await asyncio.wait_for(asyncio.gather(*waiting, *others), 5.0)
    assert not any(task.result() for task in (*waiting, *others))


async def test_the_end_is_told_to_all(started, crowded):
    _, waiting = crowded
    await started.close()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5.0) == [None] * 50


async def test_a_lease_that_reached_nobody_is_played_as_if_it_had_not_been(started):
    """A dead worker's calls are answered until its death is known."""
    heard = await started.lease("dead")
    await started.received(heard.ordinal, heard.slot, heard.attempt)
    unheard = await started.lease("dead")
    await started.worker_lost("dead")
    told = await started.news()
    assert told.counts["void"] == {"worker_lost": 1, "cancelled": 1}
    again = {lease.slot: lease for lease in [await started.lease("w") for _ in "ab"]}
    assert again[heard.slot].fresh_browser and not again[unheard.slot].fresh_browser
    assert set(started._unheard.values()) == {"w"}


async def test_waiting_for_the_judge_gets_a_run_nowhere(started, monkeypatch):
    monkeypatch.setattr(queue, "_PATIENCE_S", 0.2)
    lease = await started.lease("w")
    at = lease.ordinal, lease.slot, lease.attempt
    record = moves.result(lease.slot, None, Cause.DONE, Cause.JUDGE_UNAVAILABLE)
    await started.finish(*at, record)
    while not lease.trajectory:
        lease = await started.lease("w")
        if not lease.trajectory:
            await finish(started, lease, float(lease.slot))
    taken = asyncio.create_task(started.take(4))
    async with asyncio.timeout(10.0):
        while not taken.done():
            await started.renew(lease.ordinal, lease.slot, lease.attempt)
            await asyncio.sleep(0.05)
    with pytest.raises(ledger.StallError, match="wait for the judge: 1"):
        await taken


async def test_an_episode_that_began_late_has_its_whole_lease(started, monkeypatch):
    """It had to wait for a browser of its own; nothing else happens meanwhile."""
    monkeypatch.setattr(queue, "_PATIENCE_S", 0.05)
    taken = asyncio.create_task(started.take(1))
    lease, other = [await started.lease("w") for _ in range(2)]
    await asyncio.sleep(0.6)
    for each in (lease, other):
        await started.renew(each.ordinal, each.slot, each.attempt)
    await asyncio.sleep(0.6)
    for each in (lease, other):
        await finish(started, each, float(each.slot))
    assert [group.ordinal for group in await taken] == [0]


def test_all_contexts_can_wait_beside_those_who_bring_results(config):
    """Ray answers so many calls at once; another one waits for its turn."""
    config.rollout.workers, config.rollout.contexts = 200, 8
    most = cluster.options(config, "ledger")["max_concurrency"]
    assert most > 2 * 1600  # also while the dead's calls are still there
    assert "max_concurrency" not in cluster.options(config, "browser")
