import math

import pytest

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Reply
from openwebrl_jax.policy import served
from openwebrl_jax.rewards import evidence

ASK = evidence.ask("judge", evidence.image(b"png"), "done?")


class Scripted:
    def __init__(self, reply):
        self.reply, self.asked, self.released = reply, [], []

    async def sample(self, request):
        self.asked.append(request)
        if isinstance(self.reply, Failure):
            raise self.reply
        return self.reply

    async def release(self, episode_id):
        self.released.append(episode_id)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            Reply(text='it is </think>\n{"verdict": "success"}'),
            '{"verdict": "success"}',
        ),
        (Reply(text='{"verdict": "success"}'), ""),  # never ended its thought
        (Reply(text="a</think>succ", is_truncated=True), ""),
    ],
)
async def test_the_answer_is_what_stands_behind_the_thought(reply, text):
    sampler = Scripted(reply)
    assert await served.Served(sampler)(ASK, seed=42) == text
    assert sampler.released == [sampler.asked[0].episode_id]


async def test_the_first_try_is_greedy_and_equal_questions_have_equal_keys():
    sampler = Scripted(Reply(text="</think>x"))
    complete = served.Served(sampler)
    for seed in (42, 42, 43):
        await complete(ASK, seed=seed)
    first, again, other = sampler.asked
    assert [it.is_greedy for it in sampler.asked] == [True, True, False]
    assert first.key == again.key != other.key
    assert first.episode_id != again.episode_id


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (Cause.PROMPT_TOO_LONG, Cause.PROMPT_TOO_LONG),  # it is cut and asked again
        (Cause.CONTEXT_FULL, Cause.PROMPT_TOO_LONG),
        (Cause.SAMPLER_UNAVAILABLE, Cause.JUDGE_UNAVAILABLE),
    ],
)
async def test_what_a_sampler_cannot_do_is_the_judges_failure(cause, told):
    sampler = Scripted(Failure(cause, "why"))
    with pytest.raises(Failure) as failure:
        await served.Served(sampler)(ASK, seed=42)
    assert failure.value.cause is told
    assert len(sampler.released) == 1


def test_how_sure_it_is_of_the_verdict_and_not_of_its_own_words():
    words = (math.log(0.3),) * 10  # of a rationale, its end included
    verdict = (math.log(0.99), 0.0)
    reply = Reply(
        text="",
        response_ids=tuple(range(12)),
        thought_ids=10,
        logprobs=words + verdict,
    )
    assert served.confidence(reply) == pytest.approx(0.99)
