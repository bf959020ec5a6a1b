"""Several serving actors speak as one, and one of them may die."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rollout import ledger
from openwebrl_jax.runtime import replicas, worker

GROUPS = [(0, ordinal) for ordinal in range(3000)]
DEATH = ray.exceptions.ActorDiedError()


def test_a_group_belongs_to_one_replica_and_moves_only_with_its_death():
    of = {group: replicas.choose(group, [0, 1, 2]) for group in GROUPS}
    assert all(900 < n < 1100 for n in Counter(of.values()).values())
    without = {group: replicas.choose(group, [0, 2]) for group in GROUPS}
    moved = {group for group in GROUPS if of[group] != without[group]}
    assert moved == {group for group in GROUPS if of[group] == 1}
    heirs = Counter(without[group] for group in moved)
    assert set(heirs) == {0, 2} and min(heirs.values()) > 400


def test_the_choice_is_the_same_in_every_process_and_life():
    first = [replicas.choose((0, ordinal), range(4)) for ordinal in range(8)]
    assert first == [1, 0, 0, 2, 1, 0, 3, 1]


class Actor:
    """A serving actor as its handle shows it; `die` is what a kill is."""

    def __init__(self, gate):
        self.gate = gate  # what a new version waits for
        self.spoken: list[int] = []  # versions, in order
        self.served = 0
        self.told = {"replies": 2.0, "compilations": 5.0, "replicas": 1.0}
        self.is_hung = False
        self.dead = asyncio.Event()

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(Actor, f"_{name}").__get__(self))

    def die(self):
        self.dead.set()

    async def _alive(self, coroutine):
        """What a call comes to, or the death before that."""
        work = asyncio.ensure_future(coroutine)
        death = asyncio.ensure_future(self.dead.wait())
        await asyncio.wait([work, death], return_when="FIRST_COMPLETED")
        death.cancel()
        if self.dead.is_set():
            work.cancel()
            raise DEATH
        return work.result()

    async def _serve(self, config, folder):
        if config == "bad":
            raise ray.exceptions.RayTaskError(
                "serve", "lines", ValueError("slots"), "title", 1, "ip"
            )
        return await self._alive(self._begin())

    async def _begin(self):
        self.served += 1
        return "rule"

    async def _load(self, version, leaves):
        assert leaves == f"leaves of {version}"
        await self._alive(self.gate.wait())
        self.spoken.append(version)

    async def _watch(self):
        await self._alive(asyncio.Event().wait())

    async def _stats(self):
        return await self._alive(
            asyncio.sleep(60.0 if self.is_hung else 0.0, self.told)
        )


@pytest.fixture
def serving(monkeypatch):
    """(count) -> Replicas, and its actors as they are made; `gate` lets weights in."""
    made = []
    gate = asyncio.Event()
    gate.set()

    def make(kind):
        assert kind is replicas.Serving
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=born))

    def born():
        made.append(Actor(gate))
        return made[-1]

    monkeypatch.setattr(replicas.ray, "remote", make)
    monkeypatch.setattr(replicas.cluster, "kill", lambda *_: None)
    return SimpleNamespace(of=lambda n: replicas.Replicas(n, {}), made=made, gate=gate)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def load(one, version):
    return asyncio.create_task(one.load(version, [f"leaves of {version}"]))


async def test_a_version_is_acknowledged_once_every_replica_has_it(serving):
    one = serving.of(2)
    assert await one.serve("config", "folder") == "rule"
    first, second = serving.made
    assert await load(one, 0) == 0  # on top of the folder's, which is 0 too
    second.gate = asyncio.Event()
    loading = load(one, 1)
    await settled()
    assert first.spoken == [0, 1] and not loading.done()
    second.gate.set()
    assert await loading == 1
    assert second.spoken == [0, 1]


async def test_who_dies_with_a_version_on_the_way_is_waited_for_in_its_successor(
    serving,
):
    one = serving.of(2)
    await one.serve("config", "folder")
    first, second = serving.made
    second.gate = asyncio.Event()
    loading = load(one, 1)
    await settled()
    second.die()
    serving.gate.clear()
    await settled()
    heir = serving.made[2]
    assert heir.served and not heir.spoken and not loading.done()
    serving.gate.set()
    assert await loading == 1
    assert first.spoken == heir.spoken == [1]


async def test_a_replica_that_hangs_with_a_version_is_replaced(serving, monkeypatch):
    monkeypatch.setattr(replicas, "_LOAD_S", 0.5)
    one = serving.of(2)
    await one.serve("config", "folder")
    serving.made[1].gate = asyncio.Event()
    assert await asyncio.wait_for(load(one, 1), 5.0) == 1
    first, second, heir = serving.made
    assert first.spoken == heir.spoken == [1] and not second.spoken


async def test_a_dead_replicas_groups_go_elsewhere_until_its_successor_is_up_to_date(
    serving,
):
    one = serving.of(2)
    await one.serve("config", "folder")
    await load(one, 1)
    first, second = serving.made
    own = {g: await one.route(g) for g in GROUPS[:64]}
    serving.gate.clear()
    second.die()
    await settled()
    assert {id(await one.route(g)) for g in own} == {id(first)}
    serving.gate.set()
    await settled()
    heir = serving.made[2]
    assert heir.spoken == [1]
    for group, replica in own.items():
        assert await one.route(group) is (first if replica is first else heir)


async def test_while_all_are_dead_an_episode_waits(serving):
    one = serving.of(2)
    await one.serve("config", "folder")
    await load(one, 1)
    serving.gate.clear()
    for actor in serving.made[:2]:
        actor.die()
    await settled()
    waiting = asyncio.create_task(one.route((0, 0)))
    await settled()
    assert not waiting.done()
    serving.gate.set()
    assert await waiting in serving.made[2:]


async def test_deaths_without_progress_and_errors_reach_who_watches(serving, capsys):
    one = serving.of(2)
    await one.serve("config", "folder")
    watching = asyncio.create_task(one.watch())
    for _ in range(13):
        serving.made[-1].die()
        await settled()
    with pytest.raises(ledger.StallError, match="a serving replica died"):
        await watching
    assert len(capsys.readouterr().err.splitlines()) == 12
    with pytest.raises(ValueError, match="slots"):
        await serving.of(2).serve("bad", "folder")


async def test_counts_are_sums_and_a_new_life_compiles_nothing_anew(
    serving, monkeypatch
):
    monkeypatch.setattr(replicas, "_STATS_S", 0.5)
    one = serving.of(2)
    await one.serve("config", "folder")
    first, second = serving.made
    assert await one.stats() == {"replies": 4.0, "compilations": 0.0, "replicas": 2.0}
    first.told = first.told | {"compilations": 6.0}
    second.die()
    await settled()
    assert (await one.stats())["compilations"] == 1.0
    serving.made[2].is_hung = True
    assert await one.stats() == {"replies": 2.0, "compilations": 1.0, "replicas": 1.0}
    first.is_hung = True
    assert await one.stats() == {}


class Voice:
    """A replica as a worker calls it."""

    def __init__(self, name):
        self.name, self.is_dead, self.released = name, False, []
        self.sample = SimpleNamespace(remote=self._sample)
        self.release = SimpleNamespace(remote=self.released.append)

    async def _sample(self, request):
        if self.is_dead:
            raise DEATH
        return types.Reply(text=self.name)


def request(episode, ordinal, turn=0):
    return types.SampleRequest(
        episode_id=episode, turn=turn, segments=(), images={}, key=(7, ordinal, 0, turn)
    )


async def test_an_episode_keeps_its_replica_and_dies_with_it():
    voices, asked = [Voice("a"), Voice("b")], []

    async def route(group):
        asked.append(group)
        return voices[group[1]]

    one = worker.RoutedSampler(
        SimpleNamespace(route=SimpleNamespace(remote=route)), 10.0
    )
    for turn in range(3):
        assert (await one.sample(request("x", 0, turn))).text == "a"
        assert (await one.sample(request("y", 1, turn))).text == "b"
    assert asked == [(7, 0), (7, 1)]
    voices[0].is_dead = True
    with pytest.raises(Failure) as caught:
        await one.sample(request("x", 0, 3))
    assert caught.value.cause is Cause.SAMPLER_UNAVAILABLE
    assert (await one.sample(request("y", 1, 3))).text == "b"
    await one.release("x")
    await one.release("never began")
    assert voices[0].released == ["x"] and not voices[1].released
    voices[0] = Voice("heir of a")
    assert (await one.sample(request("z", 0))).text == "heir of a"
