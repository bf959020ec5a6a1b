"""Every way in which an episode ends, and who is answerable for it."""

import asyncio
import dataclasses

import pytest

from configs import common
from openwebrl_jax.agent import grammar
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure, Owner
from openwebrl_jax.rollout import episode

CLICK = types.ToolCall(name="click", arguments={"point_2d": [1, 2]})
WAIT = types.ToolCall(name="wait", arguments={"seconds": 9})
DONE = types.ToolCall(name="done", arguments={"response": "42"})
RULE = types.SamplingRule(temperature=0.8, forbidden_ids=(7,))
TASK = types.Task(id="t/1", intent="", start_url="http://fake.test/", max_turns=4)


class Env:
    """Pages 0, 1, 2, ...; each step does what the script says, then goes on a page."""

    def __init__(self, *script):
        self.script = list(script)  # of each step: Cause, None, exception or seconds
        self.page = 0
        self.calls = []

    async def reset(self, task):
        self.page, reset = 0, self.script.pop(0) if self.script else None
        await self._do(reset)
        return dataclasses.replace(task, intent="click OK"), self.observation()

    async def step(self, calls):
        self.calls.append(calls)
        cause = await self._do(self.script.pop(0) if self.script else None)
        self.page += 1
        feedback = types.Feedback(tool=calls[0].name, state="effect", text="ok")
        is_done = calls[-1].name == "done"
        return types.Step(
            observation=self.observation(),
            feedback=(feedback,) * len(calls),
            cause=Cause.DONE if is_done else cause,
            answer="42" if is_done else "",
            facts={"raw_reward": 1.0} if cause else {},
            asked_s=0.05 if calls[0].name == "wait" else 0.0,
        )

    async def _do(self, what):
        if isinstance(what, Exception):
            raise what
        if isinstance(what, float):
            await asyncio.sleep(what)
            return None
        return what

    def observation(self):
        return types.Observation(
            screenshot=b"\x89PNG page %d" % self.page,
            width_px=4,
            height_px=4,
            tabs=(),
            active_tab=0,
        )


class Sampler:
    """Says the replies in order; an exception is raised, a number of seconds slept."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.released = []

    async def sample(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0)
        while isinstance(reply, float):
            await asyncio.sleep(reply)
            reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def release(self, episode_id):
        self.released.append(episode_id)


def say(*calls: types.ToolCall, **changes) -> types.Reply:
    values = {
        "text": grammar.render("hm", calls),
        "system_ids": (1,),
        "seen_ids": (2, 3),
        "remembered_ids": (2, 5),
        "response_ids": (5, 6),
        "closing_ids": (8,),
        "logprobs": (-0.5, -0.1),
        "version": 3,
    }
    return types.Reply(**(values | changes))


def malformed() -> types.Reply:
    return say(CLICK, text="no thought, no call")


async def play(env, sampler, task=TASK, rule=RULE, **changes) -> types.Trajectory:
    config = common.get_config()
    config.rollout.task_timeout_s = changes.pop("task_timeout_s", 5.0)
    config.sample.timeout_s = changes.pop("sample_timeout_s", 5.0)
    played = await episode.run_episode(
        task,
        env=env,
        sampler=sampler,
        config=config,
        key=(11, 7, 2),
        episode_id="e",
        rule=rule,
        **changes,
    )
    assert sampler.released == ["e"]
    return played


async def test_an_episode_that_is_done():
    env, sampler = Env(), Sampler(say(CLICK), say(WAIT, DONE))
    played = await play(env, sampler, is_greedy=True)
    assert played.cause is Cause.DONE and played.answer == "42"
    assert played.task.intent == "click OK"
    assert played.rule == RULE and played.system_ids == (1,)
    assert played.system_segment.ids == ()
    first, second = played.turns
    assert first.observation.screenshot == b"\x89PNG page 0"
    assert second.observation.screenshot == b"\x89PNG page 1"
    assert played.final is not None and played.final.screenshot == b"\x89PNG page 2"
    assert first.calls == (CLICK,) and env.calls[1] == (WAIT, DONE)
    assert [len(turn.feedback) for turn in played.turns] == [1, 2]
    assert (first.response_ids, first.logprobs, first.version) == (
        (5, 6),
        (-0.5, -0.1),
        3,
    )
    keys = [request.key for request in sampler.requests]
    assert keys == [(11, 7, 2, 0), (11, 7, 2, 1)]
    assert all(request.is_greedy for request in sampler.requests)
    assert "click OK" in sampler.requests[0].segments[-1].text
    assert len(sampler.requests[1].images) == 1
    assert played.waits.asked_s == pytest.approx(0.05)


async def test_the_page_ends_the_task():
    played = await play(Env(None, Cause.PAGE_DONE), Sampler(say(CLICK)))
    assert played.cause is Cause.PAGE_DONE and played.facts == {"raw_reward": 1.0}


@pytest.mark.parametrize("max_turns", [0, 1, 3])
async def test_exactly_max_turns_are_played(max_turns):
    # R45.
    task = dataclasses.replace(TASK, max_turns=max_turns)
    env = Env()
    played = await play(env, Sampler(*[say(CLICK)] * 5), task=task)
    assert played.cause is Cause.MAX_TURNS
    assert len(played.turns) == len(env.calls) == max_turns


async def test_done_on_the_last_turn_is_done():
    """R45."""
    task = dataclasses.replace(TASK, max_turns=1)
    played = await play(Env(), Sampler(say(DONE)), task=task)
    assert played.cause is Cause.DONE


async def test_a_last_turn_that_cannot_be_read_is_the_limit_and_no_ending():
    """R45: it counts as an action, and the episode is cut off, not judged as done."""
    task = dataclasses.replace(TASK, max_turns=2)
    played = await play(Env(), Sampler(say(CLICK), malformed()), task=task)
    assert played.cause is Cause.MAX_TURNS and len(played.turns) == 2


async def test_three_unreadable_replies_in_a_row_end_it():
    env = Env()
    sampler = Sampler(malformed(), malformed(), malformed())
    played = await play(env, sampler)
    assert played.cause is Cause.FORMAT_ERROR and len(played.turns) == 3
    assert env.calls == []
    assert "could not be read" in sampler.requests[1].segments[-1].text


async def test_a_readable_reply_forgives():
    sampler = Sampler(malformed(), malformed(), say(CLICK), malformed())
    played = await play(Env(), sampler)
    assert played.cause is Cause.MAX_TURNS
    assert [bool(turn.parse_error) for turn in played.turns] == [1, 1, 0, 1]


async def test_a_truncated_reply_ends_it_and_is_kept_for_learning():
    env = Env()
    played = await play(env, Sampler(say(CLICK, is_truncated=True)))
    assert played.cause is Cause.RESPONSE_TRUNCATED and env.calls == []
    assert played.turns[0].response_ids == (5, 6)


@pytest.mark.parametrize(
    "cause", [Cause.DNS, Cause.BROWSER_CRASH, Cause.SITE_TIMEOUT, Cause.PAGE_CRASH]
)
async def test_a_failure_at_reset_leaves_no_turns(cause):
    # R51: a terminal slot with a cause and zero turns.
    sampler = Sampler()
    played = await play(Env(Failure(cause, "why")), sampler)
    assert (played.cause, played.detail) == (cause, "why")
    assert played.turns == () and played.final is None and played.system_ids == ()
    assert not played.cause.is_scored and sampler.requests == []


async def test_a_browser_crash_keeps_the_turn_in_which_it_happened():
    crash = Failure(Cause.BROWSER_CRASH, "gone")
    played = await play(Env(None, None, crash), Sampler(say(CLICK), say(CLICK)))
    assert played.cause is Cause.BROWSER_CRASH
    assert [len(turn.feedback) for turn in played.turns] == [1, 0]


@pytest.mark.parametrize(
    ("failure", "is_scored"),
    [(Cause.CONTEXT_FULL, True), (Cause.SAMPLER_UNAVAILABLE, False)],
)
async def test_what_the_sampler_refuses(failure, is_scored):
    played = await play(Env(), Sampler(say(CLICK), Failure(failure, "no")))
    assert played.cause is failure and len(played.turns) == 1
    assert played.cause.is_scored is is_scored


async def test_a_prompt_too_long_at_once_has_no_turns():
    refusal = Failure(Cause.PROMPT_TOO_LONG, "9000 tokens")
    played = await play(Env(), Sampler(refusal))
    assert played.cause.owner is Owner.OPERATOR and played.turns == ()
    assert played.final is not None


@pytest.mark.parametrize(
    "reply",
    [
        say(CLICK, response_ids=(), logprobs=()),
        say(CLICK, seen_ids=()),
        say(CLICK, version=-1),
    ],
)
async def test_a_sampler_of_ours_must_give_ids(reply):
    # R15, R51: zero tokens are no turn.
    played = await play(Env(), Sampler(reply))
    assert played.cause is Cause.SAMPLER_PROTOCOL and played.turns == ()


async def test_a_teacher_needs_no_ids():
    text = types.Reply(text=grammar.render("hm", (DONE,)))
    played = await play(Env(), Sampler(text), rule=None)
    assert played.cause is Cause.DONE and played.rule is None


async def test_a_hung_page_is_the_worlds_fault():
    played = await play(Env(None, 9.0), Sampler(say(CLICK)), task_timeout_s=0.3)
    assert played.cause is Cause.ENV_TIMEOUT
    assert len(played.turns) == 1 and played.waits.env_s > 0.25


async def test_waiting_is_the_policys_own_doing_even_if_cut_off():
    # R40: an endless wait must not void the failure.
    played = await play(Env(None, 9.0), Sampler(say(WAIT)), task_timeout_s=0.3)
    assert played.cause is Cause.DAWDLED and played.cause.is_scored


async def test_slow_decoding_is_dawdling_and_a_long_queue_is_not():
    replies = [0.8, say(CLICK), 0.8, say(CLICK)]
    played = await play(Env(), Sampler(*replies), task_timeout_s=1.52)
    assert played.cause is Cause.DAWDLED
    queued = say(CLICK, queued_s=0.8)
    replies = [0.8, queued, 0.8, queued]
    played = await play(Env(), Sampler(*replies), task_timeout_s=1.52)
    assert played.cause is Cause.ENV_TIMEOUT
    assert played.waits.sampler_queue_s > 1.2


async def test_a_sampler_that_does_not_answer_is_unavailable():
    sampler = Sampler(9.0, say(CLICK))
    played = await play(Env(), sampler, sample_timeout_s=0.1)
    assert played.cause is Cause.SAMPLER_UNAVAILABLE and played.turns == ()


@pytest.mark.parametrize(
    ("env", "sampler", "cause"),
    [
        (Env(TimeoutError()), Sampler(), Cause.ENV_TIMEOUT),
        (Env(), Sampler(TimeoutError()), Cause.SAMPLER_UNAVAILABLE),
    ],
)
async def test_time_outs_of_others_are_typed(env, sampler, cause):
    assert (await play(env, sampler)).cause is cause


async def test_bugs_go_on_their_way_and_the_sampler_is_still_told():
    sampler = Sampler(say(CLICK))
    with pytest.raises(KeyError):
        await play(Env(None, KeyError("bug")), sampler)
    assert sampler.released == ["e"]


async def test_a_sampler_that_is_gone_cannot_spoil_the_end():
    sampler = Sampler(say(DONE))

    async def release(episode_id):
        sampler.released.append(episode_id)
        raise Failure(Cause.SAMPLER_UNAVAILABLE, "gone")

    sampler.release = release
    assert (await play(Env(), sampler)).cause is Cause.DONE


async def test_a_cancelled_episode_releases_its_slot():
    sampler = Sampler(9.0)
    running = asyncio.create_task(play(Env(), sampler))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sampler.released == ["e"]
