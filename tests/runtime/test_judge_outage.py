"""R39 over real HTTP: worker and ledger outlive a judge that is killed in mid-run, and
stop by a typed error under one that never says anything."""

import asyncio
import itertools
import json
import time
from types import SimpleNamespace

import pytest

from configs import grpo_short
from openwebrl_jax.agent import grammar
from openwebrl_jax.core.types import Reply, ToolCall
from openwebrl_jax.policy import remote
from openwebrl_jax.rollout import books, ledger, store
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

    def __init__(self):
        self.episodes = 0

    async def sample(self, request):
        self.episodes += 1
        call = ToolCall(name="done", arguments={"response": f"no. {self.episodes}."})
        return Reply(text=grammar.render("t", (call,)))

    async def release(self, episode_id):
        pass


async def until(is_true, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.02)


async def steady(read):
    """The value once it has been the same for a while."""
    value, same = read(), 0
    while same < 30:
        await asyncio.sleep(0.02)
        now = read()
        value, same = now, same + 1 if now == value else 0
    return value


class Run:
    """A ledger and a worker that plays for it, on this event loop."""

    def __init__(self, workdir):
        self.workdir, self.policy = workdir, Policy()
        self.queue, self.worker = queues.Queue(), workers.Worker()

    async def start(self, config):
        await self.queue.start(config, str(self.workdir), None, 0)
        await self.worker.start(config, "w")
        self.worker._runner.connect(self.policy, None)
        kept = str(self.workdir / store.FOLDER)
        self.playing = asyncio.create_task(self.worker.serve(Calls(self.queue), kept))

    async def close(self):
        self.playing.cancel()
        await asyncio.gather(self.playing, return_exceptions=True)
        await self.worker.close()
        await self.worker._judge.close()
        self.queue._journal.close()
        self.queue._fence.close()

    def slots(self):
        """Counts that add up, or it raises."""
        books.check(self.queue._state)
        return books.counts(self.queue._state)["slots"]

    def has_given_up(self):
        """A slot is void for good, since there is no verdict on it."""
        voids = [event for event in self.events() if event["kind"] == "voided"]
        return any(it["is_last"] for it in voids if it["cause"] == "judge_unavailable")

    def events(self):
        lines = (self.workdir / queues.JOURNAL).read_text().splitlines()
        return [json.loads(line.partition(" ")[2]) for line in lines]


@pytest.fixture
def config():
    made = grpo_short.get_config("tiny")
    made.tasks.suite = "fake"
    made.algo.group = made.algo.groups = made.rollout.contexts = 2
    made.algo.eta, made.algo.iterations = 1, 3
    made.rollout.lease_timeout_s = 2.0  # what is parked is leased again after it
    made.reward.judge.api_key_env, made.reward.judge.rest_s = "", 0.05
    with made.reward.unlocked():
        made.reward.weights = {"judge": 1.0}
    return made


@pytest.fixture
async def begin(config, tmp_path, monkeypatch):
    """`await begin(endpoint)`: a run that asks it."""
    monkeypatch.setattr(remote, "PAUSE_S", (0.001, 0.002))
    monkeypatch.setattr(remote, "RETRIES", 0)
    run = Run(tmp_path)

    async def begin(endpoint):
        config.reward.judge.base_url = endpoint.url
        await run.start(config)
        return run

    yield begin
    await run.close()


async def test_no_reward_is_written_while_the_judge_is_dead(begin):
    words = itertools.cycle(["success", "failure"])
    verdicts = []

    def said(body):
        if body["messages"] == workers._ASIDE:
            return endpoints.text("yes")
        verdicts.append(next(words))
        return endpoints.verdict(verdicts[-1])

    endpoint = endpoints.Endpoint()
    endpoint.script = [said]
    run = await begin(endpoint)
    queue = run.queue
    await until(lambda: ledger.waiting_groups(queue._state))
    endpoint.close()  # its port is closed: connections are refused
    await queue.take(1)
    before, told = await steady(lambda: (run.slots()["scored"], len(verdicts)))
    await until(lambda: run.slots()["awaiting_judge"] >= 1)
    await asyncio.sleep(2.4)  # some leases' time
    assert run.slots()["scored"] == before and len(verdicts) == told
    assert run.slots()["void"] == 0
    parked = [event for event in run.events() if event["kind"] == "parked"]
    played = run.policy.episodes
    assert played <= run.slots()["leased"]  # none was played twice
    again = endpoints.Endpoint(endpoint.server_port)
    again.script = [said]
    try:
        await until(lambda: run.slots()["awaiting_judge"] == 0)
        slots = run.slots()
        assert slots["scored"] > before and slots["void"] == 0
        assert run.policy.episodes <= slots["leased"]
        for group in queue._state.groups.values():
            for place in group.places:
                if place.record and place.record.reward.is_valid:
                    parts = place.record.reward.parts
                    assert parts.keys() == {"judge", "checker"}
                    assert place.record.reward.spent["replies"] == 1.0
    finally:
        again.close()
    scored = [event for event in run.events() if event["kind"] == "scored"]
    assert parked and "voided" not in {event["kind"] for event in run.events()}
    assert len(scored) <= len(verdicts) <= len(scored) + 2 + len(parked)
    at = {(event["ordinal"], event["slot"]) for event in scored}
    assert {(event["ordinal"], event["slot"]) for event in parked} <= at


async def until_given_up(begin, said):
    """A run whose judge answers by `said`, until a slot of it is void."""
    endpoint = endpoints.Endpoint()
    endpoint.script = [said]
    run = await begin(endpoint)
    try:
        await until(run.has_given_up)
    finally:
        endpoint.close()


@pytest.mark.parametrize("is_alone", [True, False])
async def test_what_alone_cannot_be_judged_is_void_after_its_tries(
    begin, config, is_alone
):
    """R32: others are answered, or none is left that could ask."""
    config.rollout.retries = 1
    if is_alone:
        config.algo.groups, config.algo.eta, config.algo.iterations = 1, 0, 1
    words = itertools.cycle(["success", "failure"])
    asked = []

    def said(body):
        if "no. 1." in json.dumps(body):
            asked.append(body)
            return endpoints.Say({}, 500)
        return endpoints.verdict(next(words))

    await until_given_up(begin, said)
    assert len(asked) == 3  # at its end, from disk, and the try that it has


async def test_what_brings_the_judge_down_is_void_after_its_tries(begin, config):
    """R32: it is away for a while whenever it is asked that question."""
    config.algo.groups, config.algo.eta, config.algo.iterations = 1, 0, 1
    config.rollout.retries = 0
    asked, hurt = [], []

    def said(body):
        if "no. 1." in json.dumps(body):
            asked.append(body)
            hurt[:] = [endpoints.Say({}, 500)] * 3
        return hurt.pop() if hurt else endpoints.verdict("success")

    await until_given_up(begin, said)
    assert len(asked) <= 2 + workers._OUTAGES


async def test_a_judge_that_takes_longer_than_a_lease_is_waited_for(begin, config):
    """And the episode, parked and then judged, is told once."""
    config.algo.groups, config.algo.eta, config.algo.iterations = 1, 0, 1
    config.rollout.retries = 0
    words, asked = itertools.cycle(["success", "failure"]), set()

    def said(body):
        if body["messages"] == workers._ASIDE:
            return endpoints.text("yes")
        question = json.dumps(body["messages"])
        if question not in asked:
            asked.add(question)
            return endpoints.Say({}, 500)
        time.sleep(2.5)
        return endpoints.verdict(next(words))

    endpoint = endpoints.Endpoint()
    endpoint.script = [said]
    run = await begin(endpoint)
    try:
        await asyncio.wait_for(run.queue.take(1), 20.0)
    finally:
        endpoint.close()
    kinds = [event["kind"] for event in run.events()]
    assert "parked" in kinds and "voided" not in kinds
    assert len(run.queue._slots) == 2
    assert (await run.worker.stats())["judge_s"] > 2.0


async def test_a_key_that_is_refused_is_said_and_ends_the_run(
    begin, config, monkeypatch, caplog
):
    monkeypatch.setattr(queues, "_PATIENCE_S", 0.5)
    endpoint = endpoints.Endpoint()
    endpoint.script = [endpoints.Say({"error": {"message": "who?"}}, 401)]
    run = await begin(endpoint)
    try:
        with pytest.raises(ledger.StallError, match="the judge is away"):
            await asyncio.wait_for(run.queue.take(2), 20.0)
    finally:
        endpoint.close()
    assert run.slots()["awaiting_judge"] == 8 and run.slots()["void"] == 0
    (line,) = [it.getMessage() for it in caplog.records if "judge" in it.getMessage()]
    for part in ("401", "config.reward.judge.api_key_env", "base_url", "model"):
        assert part in line


async def test_a_judge_that_never_says_anything_starves_the_run(begin, config):
    """Typed, with what made the slots void; no reward is written, nothing is taken."""
    config.algo.starve_batches, config.algo.iterations = 2, 100
    config.rollout.lease_timeout_s = 20.0
    endpoint = endpoints.Endpoint()
    endpoint.script = [endpoints.text("It went well, I think.")]
    run = await begin(endpoint)
    try:
        with pytest.raises(ledger.StarvationError) as caught:
            await asyncio.wait_for(run.queue.take(2), 20.0)
        await until(lambda: run.slots()["running"] == 0)  # nothing new is begun
    finally:
        endpoint.close()
    assert caught.value.reasons.keys() == {"too_few_valid"}
    assert caught.value.reasons["too_few_valid"] >= 4
    voids = caught.value.voids
    assert voids.keys() == {"judge_unparseable"} and voids["judge_unparseable"] >= 8
    assert "judge_unparseable" in str(caught.value)
    assert {event["kind"] for event in run.events()} == {
        "opened",
        "leased",
        "voided",
        "closed",
    }
    slots = run.slots()
    assert slots["scored"] == slots["awaiting_judge"] == 0
    kept = run.workdir / store.FOLDER
    for name in store.listing(kept):
        assert not store.load(kept, name)[1].is_valid
    asked = len(endpoint.asked)
    assert asked == 3 * run.policy.episodes  # tries of each, and no slot played again
