"""One episode: a task, an environment and a sampler in, a Trajectory out.

Each turn: the agent makes the prompt, the sampler speaks, the agent reads the reply,
the environment runs its calls. This is the one place where a `Failure` becomes the
cause of an ending; any other exception is a bug and goes on its way. Each await is
bounded by the task's time, and what it cost is noted by whom it was waited for: when
the time runs out, that decides who is answerable.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from openwebrl_jax.agent import grammar, prompts, single
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure

WORLD_SHARE = 0.8  # of the time; above it a time-out is the world's fault
RELEASE_S = 5.0

# Tools whose time the policy itself asks for. A step that is cut off in one of them
# counts as asked: else a long wait would be a way to void a failure.
_ASKING = ("wait", "goto_url")

T = TypeVar("T")


async def run_episode(
    task: types.Task,
    *,
    env: types.Env,
    sampler: types.Sampler,
    config: Any,
    key: tuple[int, int, int],
    episode_id: str,
    rule: types.SamplingRule | None = None,
    is_greedy: bool = False,
) -> types.Trajectory:
    """Plays the task to its end, whatever that is.

    `config` is the whole tree (agent, rollout.task_timeout_s, sample.timeout_s), `key`
    is (seed, group ordinal, slot), `rule` that of the sampler if it is one of ours.
    """
    clock = _Clock(config.rollout.task_timeout_s, config.sample.timeout_s)
    more_tools = (prompts.GO_FORWARD,) if config.web.go_forward else ()
    play = _Play(task=task, memory=single.first(task, config.agent, more_tools))
    request = types.SampleRequest(
        episode_id=episode_id,
        turn=0,
        segments=(),
        images={},
        key=(*key, 0),
        is_greedy=is_greedy,
    )
    detail = ""
    try:
        cause = await _play_out(play, env, sampler, clock, config.agent, request, rule)
    except _OutOfTime:
        cause, detail = clock.answerable(), clock.told()
    except Failure as failure:
        cause, detail = failure.cause, failure.detail
    finally:
        await _release(sampler, episode_id)
    return types.Trajectory(
        task=play.task,
        system_segment=dataclasses.replace(play.memory.system, ids=()),
        system_ids=play.memory.system.ids,
        turns=play.memory.turns,
        final=play.page,
        answer=play.answer,
        facts=play.facts,
        cause=cause,
        detail=detail,
        waits=clock.waits,
        rule=rule,
        history_mode=config.agent.history,
        context_screenshots=config.agent.context_screenshots,
        grammar=grammar.GRAMMAR_VERSION,
    )


@dataclass(slots=True, kw_only=True)
class _Play:
    """What there is of an episode so far: it is kept however the episode ends."""

    task: types.Task
    memory: single.Memory
    page: types.Observation | None = None  # None = nothing was shown yet
    answer: str = ""
    facts: Any = dataclasses.field(default_factory=dict)


class _OutOfTime(Exception):
    """The task's time is over."""


class _Clock:
    """Bounds the awaits of one episode and notes whom they waited for."""

    def __init__(self, task_timeout_s: float, sample_timeout_s: float):
        self._now = asyncio.get_running_loop().time
        self._begun = self._now()
        self._end = self._begun + task_timeout_s
        self._sample_timeout_s = sample_timeout_s
        self.waits = types.Waits()

    async def env(self, call: Awaitable[T], is_asking: bool = False) -> T:
        """Waits for the environment; `is_asking` = the policy wants to wait."""
        begun = self._now()
        try:
            return await self._bounded(call, self._end, Cause.ENV_TIMEOUT)
        except _OutOfTime:
            self._add(asked_s=self._now() - begun if is_asking else 0.0)
            raise
        finally:
            self._add(env_s=self._now() - begun)

    async def step(self, call: Awaitable[types.Step], is_asking: bool) -> types.Step:
        """Waits for the calls of a reply."""
        step = await self.env(call, is_asking)
        self._add(asked_s=step.asked_s)
        return step

    async def sample(self, call: Awaitable[types.Reply]) -> types.Reply:
        """Waits for the sampler; the queue is the world's, decoding the policy's."""
        begun = self._now()
        end = min(self._end, begun + self._sample_timeout_s)
        queued_s = None
        try:
            reply = await self._bounded(call, end, Cause.SAMPLER_UNAVAILABLE)
            queued_s = reply.queued_s
            return reply
        finally:
            spent_s = self._now() - begun
            queued_s = spent_s if queued_s is None else min(queued_s, spent_s)
            self._add(sampler_queue_s=queued_s, sampler_s=spent_s - queued_s)

    def answerable(self) -> Cause:
        """Whose fault it is that the time ran out."""
        waits = self.waits
        world_s = waits.env_s - waits.asked_s + waits.sampler_queue_s
        is_world = world_s > WORLD_SHARE * (self._now() - self._begun)
        return Cause.ENV_TIMEOUT if is_world else Cause.DAWDLED

    def told(self) -> str:
        """Where the time went, for a human."""
        waits = dataclasses.asdict(self.waits)
        return ", ".join(f"{name} {value:.1f}" for name, value in waits.items())

    async def _bounded(self, call: Awaitable[T], end: float, cause: Cause) -> T:
        """A time-out of the callee, or of its own bound, is a Failure of that cause."""
        bound = asyncio.timeout_at(end)
        try:
            async with bound:
                return await call
        except TimeoutError as error:
            if bound.expired() and end >= self._end:
                raise _OutOfTime from error
            raise Failure(cause, f"no answer in time ({self.told()})") from error

    def _add(self, **seconds: float) -> None:
        told = {key: getattr(self.waits, key) + value for key, value in seconds.items()}
        self.waits = dataclasses.replace(self.waits, **told)


async def _play_out(
    play: _Play,
    env: types.Env,
    sampler: types.Sampler,
    clock: _Clock,
    config: Any,
    request: types.SampleRequest,
    rule: types.SamplingRule | None,
) -> Cause:
    """Turn after turn until something ends the episode."""
    play.task, play.page = await clock.env(env.reset(play.task))
    play.memory = dataclasses.replace(play.memory, intent=play.task.intent)
    for turn in range(play.task.max_turns):
        ask = single.prompt(play.memory, play.page, config)
        reply = await clock.sample(
            sampler.sample(
                dataclasses.replace(
                    request,
                    turn=turn,
                    segments=ask.segments,
                    images=ask.images,
                    key=(*request.key[:3], turn),
                )
            )
        )
        _check_reply(reply, rule)
        play.memory = single.read(play.memory, play.page, ask, reply, config)
        cause = await _act(play, env, clock, config, reply)
        if cause is not None:
            return cause
    return Cause.MAX_TURNS


async def _act(
    play: _Play, env: types.Env, clock: _Clock, config: Any, reply: types.Reply
) -> Cause | None:
    """Runs the newest turn's calls; None = the episode goes on."""
    turn = play.memory.turns[-1]
    if reply.is_truncated:
        return Cause.RESPONSE_TRUNCATED
    if turn.parse_error:
        return single.ending(play.memory, config)
    is_asking = any(call.name in _ASKING for call in turn.calls)
    step = await clock.step(env.step(turn.calls), is_asking)
    play.memory = single.feel(play.memory, step.feedback)
    play.page, play.answer, play.facts = step.observation, step.answer, step.facts
    return step.cause


def _check_reply(reply: types.Reply, rule: types.SamplingRule | None) -> None:
    """A sampler of ours gives ids and log-probs, or the episode cannot be trained."""
    if rule is None:
        return
    for name in ("system_ids", "seen_ids", "response_ids"):
        if not getattr(reply, name):
            raise Failure(Cause.SAMPLER_PROTOCOL, f"a reply without {name}")
    if reply.version < 0:
        raise Failure(Cause.SAMPLER_PROTOCOL, "a reply without a version")


async def _release(sampler: types.Sampler, episode_id: str) -> None:
    """Tells the sampler; one that is gone has nothing to release."""
    with contextlib.suppress(Failure, TimeoutError):
        async with asyncio.timeout(RELEASE_S):
            await sampler.release(episode_id)
