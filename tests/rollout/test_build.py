"""A Runner hands environments around, rewards what was played, and needs no jax."""

import asyncio
import random
import subprocess
import sys

import pytest

from configs import mt_sft
from openwebrl_jax.agent import grammar
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rollout import build, store

CHECKS = ({"kind": "fact", "name": "raw_reward", "equals": 1.0},)
CLICK = types.ToolCall(name="click", arguments={"point_2d": [1, 2]})


def task(name: str = "good") -> types.Task:
    return types.Task(
        id=f"t/{name}",
        intent=name,
        start_url="http://fake.test/",
        max_turns=1,
        checks=CHECKS,
        oracle={"script": "() => []"},
    )


class Env:
    """Ends at the first call; the task's intent says how the world behaves."""

    made: list["Env"] = []

    def __init__(self):
        self.is_closed = False
        self.is_busy = False
        self.made.append(self)

    async def reset(self, task):
        assert not self.is_closed and not self.is_busy
        self.is_busy, self.intent = True, task.intent
        await asyncio.sleep(0.01)
        if task.intent == "dead":
            raise Failure(Cause.BROWSER_CRASH, "gone")
        if task.intent == "bug":
            raise KeyError("bug")
        return task, self.observation()

    async def step(self, calls):
        if self.intent == "slow":
            await asyncio.sleep(9.0)
        self.is_busy = False
        feedback = types.Feedback(tool=calls[0].name, state="effect", text="ok")
        return types.Step(
            observation=self.observation(),
            feedback=(feedback,),
            cause=Cause.PAGE_DONE,
            answer="",
            facts={"raw_reward": 1.0},
            asked_s=0.0,
        )

    async def facts(self, script, url=""):
        call = {"name": "click", "arguments": {"point_2d": [1, 2]}}
        return [{"thought": "OK", "call": call, "others": []}]

    async def close(self):
        self.is_closed = True

    def observation(self):
        return types.Observation(
            screenshot=b"\x89PNG", width_px=4, height_px=4, tabs=(), active_tab=0
        )


class Sampler:
    """Clicks, and counts how many are asked at once."""

    def __init__(self):
        self.now = self.most = 0

    async def sample(self, request):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.01)
        finally:  # whoever asked may go away
            self.now -= 1
        return types.Reply(text=grammar.render("hm", (CLICK,)))

    async def release(self, episode_id):
        pass


@pytest.fixture
async def runner(monkeypatch):
    Env.made = []
    monkeypatch.setattr(build.env, "make_env", lambda pool: Env())
    config = mt_sft.get_config("tiny")
    config.rollout.contexts = 3
    config.rollout.task_timeout_s = 2.0
    made = build.make_runner(config)
    await made.start()
    made.connect(Sampler(), None)
    yield made
    await made.close()
    assert all(env.is_closed for env in Env.made)


async def test_environments_are_few_and_used_again(runner):
    sampler = Sampler()
    runner.connect(sampler, None)
    played = await asyncio.gather(
        *(runner.run(task(), key=(0, n, 0)) for n in range(12))
    )
    assert len(Env.made) == sampler.most == 3
    for trajectory, reward in played:
        assert trajectory.cause is Cause.PAGE_DONE and reward.value == 1.0


@pytest.mark.parametrize(
    ("name", "cause"), [("dead", Cause.BROWSER_CRASH), ("slow", Cause.ENV_TIMEOUT)]
)
async def test_what_the_world_has_spoilt_is_closed_and_replaced(runner, name, cause):
    trajectory, reward = await runner.run(task(name), key=(0, 0, 0))
    assert trajectory.cause is cause and not reward.is_valid
    assert Env.made[0].is_closed
    trajectory, _ = await runner.run(task(), key=(0, 1, 0))
    assert trajectory.cause is Cause.PAGE_DONE and len(Env.made) == 2


async def test_a_bug_goes_up_and_its_environment_goes_away(runner):
    with pytest.raises(KeyError):
        await runner.run(task("bug"), key=(0, 0, 0))
    assert Env.made[0].is_closed
    assert (await runner.run(task(), key=(0, 1, 0)))[1].value == 1.0


async def test_a_retry_plays_apart_from_the_others(runner):
    await runner.run(task(), key=(0, 0, 0))
    await runner.run(task(), key=(0, 1, 0), fresh_browser=True)
    assert len(Env.made) == 2 and not Env.made[0].is_closed
    Env.made[1].is_closed = True  # it went with its own Chromium


async def test_whoever_plays_apart_tells_when_it_has_its_turn(runner):
    told = []

    async def on_turn():
        told.append(len(Env.made))

    await runner.run(task(), key=(0, 0, 0), on_turn=on_turn)
    await asyncio.gather(
        *(
            runner.run(task(), key=(0, n, 0), fresh_browser=True, on_turn=on_turn)
            for n in (1, 2)
        )
    )
    assert told == [1, 2]
    for place in Env.made[1:]:
        place.is_closed = True  # they went with their own Chromium


async def test_permits_come_back_once_however_an_episode_ends(runner, monkeypatch):
    """R30: callers go away at any moment, and cleaning up fails at times."""
    draw, close = random.Random(0), Env.close

    async def at_times_fails(self):
        await close(self)
        if draw.random() < 0.3:
            raise OSError("cleaning up failed")

    monkeypatch.setattr(Env, "close", at_times_fails)
    sampler = Sampler()
    runner.connect(sampler, None)

    async def play(number):
        name = draw.choice(["good", "good", "dead", "bug"])
        await asyncio.wait_for(
            runner.run(task(name), key=(0, number, 0)), draw.uniform(0.0, 0.08)
        )

    ended = []
    for first in range(0, 300, 10):  # few at once: a time limit starts near its play
        plays = (play(n) for n in range(first, first + 10))
        ended += await asyncio.gather(*plays, return_exceptions=True)
    assert {TimeoutError, OSError, KeyError} <= {type(each) for each in ended}
    assert sampler.most <= 3 and runner._turnstile._value == 3
    assert sum(not env.is_closed for env in Env.made) <= 3
    monkeypatch.setattr(Env, "close", close)
    await asyncio.gather(*(runner.run(task(), key=(0, n, 0)) for n in range(6)))


async def test_an_oracle_plays_through_the_same_code(runner):
    trajectory, reward = await runner.run(task(), key=(0, 0, 0), error_rate=0.0)
    assert reward.value == 1.0 and trajectory.rule is None
    assert trajectory.turns[0].reply_text == grammar.render("OK", (CLICK,))


async def test_a_stored_episode_can_be_judged_again(runner, tmp_path):
    trajectory, reward = await runner.run(task(), key=(0, 0, 0))
    name = store.save(tmp_path, trajectory, reward)
    again, _ = store.load(tmp_path, name)
    assert await runner.judge(again) == reward


async def test_scripted_pages_need_no_browser_and_play_the_same_in_any_order():
    # R50: what an episode sees does not depend on what else runs.
    config = mt_sft.get_config("tiny")
    config.tasks.suite = "fake"
    config.web.chromium = "/nowhere"
    build.check(config)
    tasks = build.make_source(config, "train")
    told = []
    for contexts in (1, 4):
        config.rollout.contexts = contexts
        runner = build.make_runner(config)
        await runner.start()
        order = range(8) if contexts == 1 else reversed(range(8))
        runs = (
            runner.run(tasks.task_at(n), key=(0, n, 0), error_rate=0.3) for n in order
        )
        played = await asyncio.gather(*runs)
        await runner.close()
        told.append({it.task.id: (it.turns, reward) for it, reward in played})
    assert told[0] == told[1]
    assert {reward.value for _, reward in told[0].values()} == {0.0, 1.0}


async def test_without_a_sampler_nothing_is_played():
    runner = build.make_runner(mt_sft.get_config("tiny"))
    await runner.start()
    with pytest.raises(RuntimeError, match="no sampler"):
        await runner.run(task(), key=(0, 0, 0))
    await runner.close()


def test_unknown_tasks_and_a_missing_browser_are_refused_at_start(tmp_path):
    config = mt_sft.get_config("tiny")
    config.web.chromium = str(tmp_path / "none")
    with pytest.raises(ValueError, match="config.web.chromium"):
        build.check(config)
    config = mt_sft.get_config("tiny")
    config.tasks.names = ("click-tset",)
    with pytest.raises(ValueError, match="click-tset"):
        build.check(config)


def test_a_worker_brings_in_no_jax():
    script = (
        "import sys\n"
        "from openwebrl_jax.rollout import build, episode, ledger, oracle, store\n"
        "found = {'jax', 'jaxlib', 'flax', 'torch', 'ray'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.browser
async def test_the_oracle_solves_pages_in_a_real_browser(chromium):
    config = mt_sft.get_config("tiny")
    config.web.chromium = chromium
    config.rollout.contexts = 2
    runner = build.make_runner(config)
    tasks = build.make_source(config, "train")
    await runner.start()
    try:
        for number, is_fresh in ((0, False), (2, True)):
            trajectory, reward = await runner.run(
                tasks.task_at(number),
                key=(0, number, 0),
                error_rate=0.0,
                fresh_browser=is_fresh,
            )
            assert (trajectory.cause, reward.value) == (Cause.PAGE_DONE, 1.0)
            assert trajectory.final is not None and trajectory.turns
    finally:
        await runner.close()
