"""R39 over real HTTP: worker and ledger outlive a judge that goes away in mid-run."""

import asyncio
import itertools
import json
from types import SimpleNamespace

from configs import grpo_short
from openwebrl_jax.agent import grammar
from openwebrl_jax.core.types import Reply, ToolCall
from openwebrl_jax.policy import remote
from openwebrl_jax.rollout import books, ledger
from openwebrl_jax.runtime import queue as queues
from openwebrl_jax.runtime import worker as workers
from tests.policy import endpoints


class Calls:
    """An object whose methods are called as an actor's are."""

    def __init__(self, owner):
        self._owner = owner

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._owner, name))


class Policy:
    """Answers at once, so that the judge is asked of every episode."""

    async def sample(self, request):
        call = ToolCall(name="done", arguments={"response": "done"})
        return Reply(text=grammar.render("t", (call,)))

    async def release(self, episode_id):
        pass


async def until(is_true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.02)


async def test_no_reward_is_written_while_the_judge_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_S", (0.001, 0.002))
    monkeypatch.setattr(remote, "RETRIES", 0)
    endpoint = endpoints.Endpoint()
    is_down, words = [False], itertools.cycle(["success", "failure"])

    def said(body):
        return endpoints.Say({}, 500) if is_down[0] else endpoints.verdict(next(words))

    endpoint.script = [said]
    config = grpo_short.get_config("tiny")
    config.tasks.suite = "fake"
    config.algo.group = config.algo.groups = config.rollout.contexts = 2
    config.algo.eta, config.algo.iterations = 1, 3
    config.rollout.lease_timeout_s = 0.2  # what is parked is leased again after it
    config.reward.judge.base_url, config.reward.judge.api_key_env = endpoint.url, ""
    config.reward.judge.rest_s = 0.05
    with config.reward.unlocked():
        config.reward.weights = {"judge": 1.0}
    queue, worker = queues.Queue(), workers.Worker()
    await queue.start(config, str(tmp_path), None, 0)
    await worker.start(config, "w")
    worker._runner.connect(Policy(), None)
    playing = asyncio.create_task(
        worker.serve(Calls(queue), str(tmp_path / "trajectories"))
    )

    def slots():
        books.check(queue._state)
        return books.counts(queue._state)["slots"]

    try:
        await until(lambda: ledger.waiting_groups(queue._state))
        is_down[0] = True
        await asyncio.sleep(0.1)  # verdicts that were on their way
        await queue.take(1)
        before = slots()["scored"]
        await until(lambda: slots()["awaiting_judge"] >= 1)
        await asyncio.sleep(0.7)  # some leases' time
        assert slots()["scored"] == before
        assert slots()["void"] == 0
        is_down[0] = False
        await until(lambda: slots()["awaiting_judge"] == 0)
        assert slots()["scored"] > before
        assert slots()["void"] == 0
        for group in queue._state.groups.values():
            for place in group.places:
                if place.record and place.record.reward.is_valid:
                    assert place.record.reward.parts.keys() == {"judge"}
                    assert place.record.reward.spent["replies"] == 1.0
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await worker.close()
        await worker._judge.close()
        queue._journal.close()
        queue._fence.close()
        endpoint.close()
    lines = (tmp_path / queues.JOURNAL).read_text().splitlines()
    kinds = [json.loads(line.partition(" ")[2])["kind"] for line in lines]
    assert "parked" in kinds and "voided" not in kinds
