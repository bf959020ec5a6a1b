"""A browser worker as an actor: episodes for the ledger, or for a list of jobs.

It imports no jax. Each of its contexts pulls a lease, runs the episode, makes the
trajectory durable and only then reports it.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray.exceptions

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import remote, served
from openwebrl_jax.rollout import build, ledger, score, store

# A sampler that is gone fails every episode at once: they must not use up their tries.
_CALM_S = 2.0
# So often a stored episode may find the judge away; then it may be what brings it down.
_OUTAGES = 5
_ASIDE = [
    {"role": "system", "content": "Answer with one word."},
    {"role": "user", "content": [{"type": "text", "text": "Are you there?"}]},
]

COUNTED: tuple[str, ...] = ("busy_s", "wait_s", "judge_s", "report_s", "leases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An episode outside the ledger: of an evaluation, or a demonstration."""

    task: types.Task
    key: tuple[int, int, int]  # seed, ordinal, slot
    is_greedy: bool = False
    error_rate: float | None = None  # of the task's oracle; None = the policy plays


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a Job. `trajectory` is its content hash in the store."""

    task_id: str
    trajectory: str
    is_success: bool | None  # None = void
    cause: Cause
    turns: int
    format: Mapping[str, int]  # see score.format_counts
    spent: Mapping[str, float]  # on judging, see Reward


class Worker:
    """Owns a Runner (browser, local sites, rewards) with several contexts."""

    async def start(
        self,
        config: Any,
        name: str,
        judge: Any = None,
        serving: Any = None,
        rule: types.SamplingRule | None = None,
    ) -> None:
        """Starts the local sites, and connects where there is a serving actor.

        `judge` = the actor that serves a judge of our own; None = there is none.
        """
        self._name, self._seed = name, config.seed
        self._contexts = config.rollout.contexts
        self._timeout_s = config.sample.timeout_s
        self._lease_s = config.rollout.lease_timeout_s
        self._is_routed = config.cluster.serving_replicas > 1
        asked = config.reward.judge
        self._rest_s = asked.rest_s
        self._judge: Any = None  # None = nobody but the checks
        if judge is not None:
            self._judge = served.Served(RemoteSampler(judge, self._timeout_s))
        elif asked.base_url:
            self._judge = remote.make_remote(asked)
        self._runner = build.make_runner(config, self._judge)
        self._turnstile = asyncio.Semaphore(self._contexts)
        self._told = dict.fromkeys(COUNTED, 0.0)
        await self._runner.start()
        if rule is not None:
            await self.connect(serving, rule)

    async def connect(self, serving: Any, rule: types.SamplingRule) -> None:
        """From now on the policy speaks through this serving actor."""
        kind = RoutedSampler if self._is_routed else RemoteSampler
        self._runner.connect(kind(serving, self._timeout_s), rule)

    async def serve(self, queue: Any, folder: str) -> None:
        """Plays the ledger's leases into a store's folder, until there is no more."""
        pulls = (self._pull(queue, folder) for _ in range(self._contexts))
        await asyncio.gather(*pulls)

    async def play(self, jobs: Sequence[Job], folder: str) -> list[Result]:
        """Plays the jobs, as many at once as there are contexts."""
        return await asyncio.gather(*(self._play(job, folder) for job in jobs))

    async def stats(self) -> dict[str, float]:
        """Since the last call: seconds of all contexts with a lease and without."""
        told, self._told = self._told, dict.fromkeys(COUNTED, 0.0)
        return told

    async def close(self) -> None:
        """Ends the browser and the sites."""
        await self._runner.close()

    async def _pull(self, queue: Any, folder: str) -> None:
        since_s = time.monotonic()
        while lease := await queue.lease.remote(self._name):
            leased_s = time.monotonic()
            await queue.received.remote(lease.ordinal, lease.slot, lease.attempt)
            record = await self._fill(lease, folder, queue)
            self._told["wait_s"] += leased_s - since_s
            since_s = time.monotonic()
            self._told["busy_s"] += since_s - leased_s
            self._told["leases"] += 1
            await queue.finish.remote(lease.ordinal, lease.slot, lease.attempt, record)
            self._told["report_s"] += time.monotonic() - since_s
            if record.cause is Cause.SAMPLER_UNAVAILABLE:
                await asyncio.sleep(_CALM_S)

    async def _fill(self, lease: ledger.Lease, folder: str, queue: Any) -> types.Slot:
        """Plays a slot, or judges what was played, and stores it."""
        at = lease.ordinal, lease.slot, lease.attempt
        if lease.trajectory:
            trajectory, _ = store.load(folder, lease.trajectory)
            async with self._held(queue, at):
                reward = await self._judge_stored(trajectory)
        else:
            trajectory, reward = await self._runner.run(
                lease.task,
                key=(self._seed, lease.ordinal, lease.slot),
                fresh_browser=lease.fresh_browser,
                on_turn=lambda: queue.renew.remote(*at),
            )
            self._told["judge_s"] += trajectory.waits.judge_s
        reward = self._with_bill(reward)
        name = await asyncio.to_thread(store.save, folder, trajectory, reward)
        return types.Slot(
            index=lease.slot,
            trajectory=name,
            reward=reward,
            cause=trajectory.cause,
            versions=tuple(turn.version for turn in trajectory.turns),
            turns=len(trajectory.turns),
            format=score.format_counts(trajectory),
        )

    @contextlib.asynccontextmanager
    async def _held(self, queue: Any, at: tuple[int, int, int]) -> AsyncIterator[None]:
        """Keeps a lease for judging while the judge lets us wait: each call is bounded,
        but all its tries may take longer than a lease."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._lease_s / 3)
                await queue.renew.remote(*at)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _judge_stored(self, trajectory: types.Trajectory) -> types.Reward:
        """Its reward; a judge that answers nobody is waited for, which costs no try.

        Void by JUDGE_UNAVAILABLE = it is this trajectory that cannot be judged.
        """
        for _ in range(_OUTAGES):
            reward = await self._judge_now(trajectory)
            is_open = reward.cause is Cause.JUDGE_UNAVAILABLE
            if not is_open or not await self._outlast():
                return reward
        return await self._judge_now(trajectory)

    async def _judge_now(self, trajectory: types.Trajectory) -> types.Reward:
        begun_s = time.monotonic()
        reward = await self._runner.judge(trajectory)
        self._told["judge_s"] += time.monotonic() - begun_s
        return reward

    async def _outlast(self) -> bool:
        """Waits while the judge answers nobody; False = it does answer."""
        has_waited = False
        while await self._is_away():
            has_waited = True
            await asyncio.sleep(self._rest_s)
            # Others may be let through first.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rest_s):
                    await self._judge.recovered()
        return has_waited

    async def _is_away(self) -> bool:
        """True = the judge does not even answer a bare question."""
        if self._judge is None:
            return False
        try:
            await self._judge(_ASIDE, seed=0)
        except Failure as failure:
            return failure.cause is Cause.JUDGE_UNAVAILABLE
        return False

    def _with_bill(self, reward: types.Reward) -> types.Reward:
        """The reward with what the judge has cost since the last one."""
        spent = self._judge.spent() if self._judge is not None else {}
        return dataclasses.replace(reward, spent={**reward.spent, **spent})

    async def _play(self, job: Job, folder: str) -> Result:
        async with self._turnstile:
            trajectory, reward = await self._runner.run(
                job.task,
                key=job.key,
                is_greedy=job.is_greedy,
                error_rate=job.error_rate,
            )
        reward = self._with_bill(reward)
        name = await asyncio.to_thread(store.save, folder, trajectory, reward)
        return Result(
            task_id=job.task.id,
            trajectory=name,
            is_success=score.is_success(reward),
            spent=reward.spent,
            cause=reward.cause or trajectory.cause,
            turns=len(trajectory.turns),
            format=score.format_counts(trajectory),
        )


class RemoteSampler:
    """A `types.Sampler` that speaks through the serving actor."""

    def __init__(self, serving: Any, timeout_s: float):
        self._serving = serving
        self._timeout_s = timeout_s

    async def sample(self, request: types.SampleRequest) -> types.Reply:
        """Raises Failure(SAMPLER_UNAVAILABLE) when the actor is gone, or hangs."""
        try:
            async with asyncio.timeout(self._timeout_s):
                speaker = await self._speaker(request)
                return await speaker.sample.remote(request)
        except TimeoutError as error:
            detail = f"no reply within {self._timeout_s} s"
            raise Failure(Cause.SAMPLER_UNAVAILABLE, detail) from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise Failure(Cause.SAMPLER_UNAVAILABLE, str(error)) from error

    async def release(self, episode_id: str) -> None:
        """Best effort: a lost actor has nothing to release."""
        self._serving.release.remote(episode_id)

    async def _speaker(self, request: types.SampleRequest) -> Any:
        return self._serving


class RoutedSampler(RemoteSampler):
    """Of serving replicas an episode keeps the one that its group has when it begins.

    Where what is remembered of its turns lies, there it goes on; it dies with that.
    """

    def __init__(self, serving: Any, timeout_s: float):
        """`serving` = the actor `runtime.replicas.Replicas`."""
        super().__init__(serving, timeout_s)
        self._kept: dict[str, Any] = {}  # episode -> replica

    async def release(self, episode_id: str) -> None:
        """Best effort, as above."""
        if replica := self._kept.pop(episode_id, None):
            replica.release.remote(episode_id)

    async def _speaker(self, request: types.SampleRequest) -> Any:
        name = request.episode_id
        if name not in self._kept:
            self._kept[name] = await self._serving.route.remote(request.key[:2])
        return self._kept[name]
