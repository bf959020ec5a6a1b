"""Config -> what plays episodes: the task source and a worker's Runner.

This is where the rooms meet: tasks, web, agent and rewards are put together here and
nowhere else. No jax comes in with it: it runs in browser workers.
"""

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from openwebrl_jax.agent import single
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Owner
from openwebrl_jax.rewards import combine, judge
from openwebrl_jax.rollout import afterwards, canary, cooldown, episode, oracle
from openwebrl_jax.tasks import formats, sites, source
from openwebrl_jax.web import browser, env, fake

Key = tuple[int, int, int]  # seed, group ordinal, slot

FAKE = "fake"  # suite and tag of tasks on scripted pages


def make_source(config: Any, split: source.Split) -> source.Source:
    """The tasks of a split, for the ledger or an evaluation."""
    if config.tasks.suite == FAKE:
        return _fake_source(config.tasks, split)
    return source.make_source(config.tasks, config.seed, split)


def check(config: Any) -> None:
    """Refuses, before anything starts, tasks or a browser that are not there."""
    asked = config.reward.judge
    has_judge = bool(asked.base_url or asked.workdir)
    tasks = make_source(config, "train")
    cooldown.check_blocklist(config.tasks.blocklist, tasks.length, tasks.task_at)
    if config.tasks.suite == "file":
        every = formats.load(config.tasks.path, max_turns=config.tasks.max_turns)
        has_grader = bool(asked.base_url) and not asked.workdir
        combine.check_tasks(every, has_judge, has_grader)
    if dict(config.reward.weights).get("judge") and not has_judge:
        raise ValueError(
            "config.reward.weights has judge, and there is none; set "
            "config.reward.judge.base_url or workdir"
        )
    if config.tasks.suite != FAKE:
        browser.find_chromium(config.web.chromium)
    combine.make_reward(config.reward, None)


def opening(config: Any) -> tuple[types.Segment, ...]:
    """The shortest prompt that there is: of a task without words, on a bare page."""
    task = types.Task(id="", intent="", start_url="", max_turns=1)
    bare = types.Observation(
        screenshot=b"",
        width_px=config.web.width_px,
        height_px=config.web.height_px,
        tabs=(),
        active_tab=0,
    )
    return single.prompt(single.first(task, config.agent), bare, config.agent).segments


async def judge_of(
    trajectory: types.Trajectory,
    complete: types.Complete,
    config: Any,
    seed: int = judge.SEED,
) -> types.Reward:
    """The judge's word on a trajectory; `config` is config.reward.judge."""
    return await judge.judge(trajectory, complete, config, seed)


def judge_identity(config: Any) -> dict[str, Any]:
    """Which judge scores: results under two of them cannot be compared."""
    return judge.identity(config.reward.judge)


def make_runner(config: Any, complete: types.Complete | None = None) -> "Runner":
    """A runner that is not started; `complete` = the judge's endpoint, None = none."""
    return Runner(config, complete)


class Runner:
    """Owns a worker's browser, local sites and idle environments.

    Use: `runner = make_runner(config)`, `await runner.start()`, for the policy
    `runner.connect(sampler, rule)`, any number of `run`s at once, `await close()`.
    """

    def __init__(self, config: Any, complete: types.Complete | None):
        self._config = config
        self._reward = combine.make_reward(config.reward, complete)
        self._turnstile = asyncio.Semaphore(config.rollout.contexts)
        self._apart = asyncio.Lock()  # one Chromium beside the pool's is enough
        self._idle: dict[bool, list[types.Env]] = {True: [], False: []}  # is it fake
        self._sampler: types.Sampler | None = None
        self._rule: types.SamplingRule | None = None

    async def start(self, ports: Mapping[str, int] | None = None) -> None:
        """Starts the local sites; Chromium comes with the first task that needs it.

        `ports` are further local sites, served by somebody else: name -> port.
        """
        self._sites = sites.serve(sites.SITES)
        self._ports = {**self._sites.ports, **(ports or {})}
        self._pool = browser.Pool(self._config.web, self._ports)

    def connect(self, sampler: types.Sampler, rule: types.SamplingRule | None) -> None:
        """From now on this sampler is the policy; no rule = it is not one of ours."""
        self._sampler, self._rule = sampler, rule

    async def run(
        self,
        task: types.Task,
        *,
        key: Key,
        is_greedy: bool = False,
        error_rate: float | None = None,
        fresh_browser: bool = False,
        on_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[types.Trajectory, types.Reward]:
        """Plays the task and rewards it, when there is a free context.

        Args:
          task: what to do.
          key: fixes the token stream together with the turn.
          is_greedy: True = argmax in place of sampling.
          error_rate: of the task's oracle, which then plays; None = the policy does.
          fresh_browser: True = in a Chromium of its own that nothing has touched.
          on_turn: told when such an episode begins; they play one at a time.
        """
        how = {"key": key, "is_greedy": is_greedy, "error_rate": error_rate}
        gate = self._apart if fresh_browser else self._turnstile
        play = self._play_apart if fresh_browser else self._play_pooled
        async with gate:
            if on_turn and fresh_browser:
                await on_turn()
            trajectory = await play(task, how)
        begun = time.monotonic()
        reward = await self.judge(trajectory)
        waits = dataclasses.replace(trajectory.waits, judge_s=time.monotonic() - begun)
        return dataclasses.replace(trajectory, waits=waits), reward

    def lend(self, task: types.Task) -> types.Env:
        """An environment for one who plays without a sampler, and then closes it."""
        return self._make_env(task, self._pool)

    async def judge(self, trajectory: types.Trajectory) -> types.Reward:
        """The reward of a trajectory, played just now or long ago."""
        return await self._reward(trajectory)

    async def close(self) -> None:
        """Ends environments, browser and sites."""
        for place in self._idle[True] + self._idle[False]:
            await place.close()
        await self._pool.close()
        await asyncio.to_thread(self._sites.close)

    async def _play_pooled(
        self, task: types.Task, how: dict[str, Any]
    ) -> types.Trajectory:
        """In an idle environment; one that the world has spoilt is not used again."""
        idle = self._idle[FAKE in task.tags]
        place = idle.pop() if idle else self._make_env(task, self._pool)
        is_sound = False
        try:
            trajectory = await self._play(task, place, **how)
            is_sound = _leaves_sound(trajectory.cause)
        finally:
            if is_sound:
                idle.append(place)
            else:
                await place.close()
        return trajectory

    async def _play_apart(
        self, task: types.Task, how: dict[str, Any]
    ) -> types.Trajectory:
        pool = browser.Pool(self._config.web, self._ports)
        try:
            return await self._play(task, self._make_env(task, pool), **how)
        finally:
            await pool.close()

    def _make_env(self, task: types.Task, pool: browser.Pool) -> types.Env:
        is_fake = FAKE in task.tags
        return fake.FakeEnv(self._config.web) if is_fake else env.make_env(pool)

    async def _play(
        self,
        task: types.Task,
        place: types.Env,
        *,
        key: Key,
        is_greedy: bool,
        error_rate: float | None,
    ) -> types.Trajectory:
        if error_rate is not None:
            sampler, rule = oracle.make_oracle(place, task, error_rate, key[0]), None
        elif self._sampler is not None:
            sampler, rule = self._sampler, self._rule
        else:
            raise RuntimeError("no sampler is connected; Runner.connect comes first")
        trajectory = await episode.run_episode(
            task,
            env=place,
            sampler=sampler,
            config=self._config,
            key=key,
            episode_id=uuid.uuid4().hex,
            rule=rule,
            is_greedy=is_greedy,
        )
        trajectory = await afterwards.look(trajectory, place)
        return await canary.confirm(trajectory, place, self._config.rollout)


def _leaves_sound(cause: Cause) -> bool:
    """False = the environment was hurt, or cut off in the middle of a call."""
    return cause.owner not in (Owner.SITE, Owner.INFRA) and cause is not Cause.DAWDLED


def _fake_source(config: Any, split: source.Split) -> source.Source:
    """Scripted pages by seed, in order."""
    ranges = {"train": config.train_seeds, "heldout": config.heldout_seeds}
    first, end = ranges[split]

    def task_at(ordinal: int) -> types.Task:
        seed = first + ordinal % (end - first)
        return fake.make_task(seed, squares=2, max_turns=config.max_turns, split=split)

    return source.Source(
        task_at=task_at,
        digest=f"{FAKE}/{first}/{end}/{config.max_turns}",
        length=end - first,
        sites=(),
    )
