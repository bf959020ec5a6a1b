"""Every way in which an endpoint can answer, over real HTTP on loopback."""

import asyncio

import pytest

from configs import common
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import remote
from openwebrl_jax.rewards import judge
from tests.policy import endpoints
from tests.policy.endpoints import Say, text
from tests.rewards import stories

ASK = [{"role": "user", "content": "hi"}]
HANG = Say(how="hang")
EMPTY = text("x").body | {"choices": []}


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_S", (0.001, 0.01))
    made = endpoints.Endpoint()
    yield made
    made.close()


@pytest.fixture
async def ask(endpoint, monkeypatch):
    """Sets the script and makes the client: `ask(script...)`."""
    made = []

    def prepare(*script, **overrides):
        monkeypatch.setenv("JUDGE_KEY", "sk-secret")
        endpoint.script = list(script)
        config = common.get_config().reward.judge
        config.base_url, config.api_key_env = endpoint.url, "JUDGE_KEY"
        config.update(overrides)
        made.append(remote.make_remote(config))
        return made[0]

    yield prepare
    for client in made:
        await client.close()


async def fails(complete) -> Failure:
    with pytest.raises(Failure) as failure:
        await complete(ASK, seed=0)
    assert failure.value.cause is Cause.JUDGE_UNAVAILABLE
    assert "secret" not in str(failure.value)
    return failure.value


async def test_a_good_answer_is_its_text(ask, endpoint):
    complete = ask(text("hello"))
    assert await complete(ASK, seed=42) == "hello"
    (body,) = endpoint.asked
    assert (body["model"], body["messages"], body["seed"]) == ("gpt-4.1", ASK, 42)
    assert endpoint.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize(
    "trouble",
    [
        Say({}, 429),
        Say({}, 429, headers={"retry-after": "0"}),
        Say("<html>", 500),
        Say("<html>", 503, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Say({}, 408),
        Say({"a": "b" * 99}, how="cut"),
        Say(how="drop"),
    ],
)
async def test_passing_trouble_is_tried_again(ask, endpoint, trouble):
    complete = ask(trouble, trouble, text("at last"))
    assert await complete(ASK, seed=0) == "at last"
    assert len(endpoint.asked) == 3
    assert complete.spent() == {"calls": 3, "retries": 2}


@pytest.mark.parametrize(
    ("say", "calls"),
    [
        (Say({"error": {"message": "key sk-secret"}}, 500), 1 + remote.RETRIES),
        (Say({}, 429), 1 + remote.RETRIES),
        (Say({}, 429, headers={"retry-after": "3600"}), 1),
        (Say({}, 429, headers={"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}), 1),
        (Say({"error": {"message": "bad key sk-secret"}}, 401), 1),
        (Say({"error": {"message": "no credit"}}, 402), 1),
        (Say("<html>out of order</html>"), 1),
        (Say('{"choices": ['), 1),
        (Say({}), 1),
        (Say({"choices": []}), 1),
        (Say({"choices": [{"message": None}]}), 1),
        (Say({"choices": "abc"}), 1),
        (text(["no", "text"]), 1),
        (Say([1]), 1),
        (Say("null"), 1),
        (Say({"a": "b" * 99}, how="cut"), 1 + remote.RETRIES),
    ],
)
async def test_lasting_trouble_and_garbage_are_an_unavailable_judge(
    ask, endpoint, say, calls
):
    await fails(ask(say))
    assert len(endpoint.asked) == calls


@pytest.mark.parametrize("how", ["hang", "drip"])
async def test_an_answer_that_does_not_come_is_bounded(ask, monkeypatch, how):
    # A dripping answer is never silent for long: only a bound on the whole ends it.
    monkeypatch.setattr(remote, "RETRIES", 1)
    late = Say(text("x" * 200).body, how=how)
    complete = ask(late, timeout_s=0.1)
    failure = await asyncio.wait_for(fails(complete), 5)
    assert "no answer" in failure.detail
    assert complete.spent()["calls"] == 2


async def test_an_endpoint_that_is_gone_is_an_unavailable_judge(ask, endpoint):
    complete = ask(text("x"))
    endpoint.close()
    await fails(complete)


@pytest.mark.parametrize(
    "say", [text(None), text(None, refusal="I will not"), text("half", finish="length")]
)
async def test_a_model_that_declines_or_is_cut_says_nothing(ask, say):
    assert await ask(say)(ASK, seed=0) == ""


async def test_calls_at_once_are_bounded(ask, endpoint):
    complete = ask(Say(text("x").body, how="hang"), concurrency=2)
    await asyncio.gather(*(complete(ASK, seed=n) for n in range(5)))
    assert endpoint.most == 2


async def test_tokens_and_money_are_counted_once(ask):
    complete = ask(text("x", tokens=(1000, 10)), text("y"), text("z", tokens=(1, 1)))
    await complete(ASK, seed=0)
    await complete(ASK, seed=0)
    usd = (1000 * 2.0 + 10 * 8.0) / 1e6
    assert complete.spent() == pytest.approx(
        {"calls": 2, "prompt_tokens": 1000, "completion_tokens": 10, "usd": usd}
    )
    await complete(ASK, seed=0)
    assert complete.spent()["calls"] == 1
    assert complete.spent() == {}


TOO_LONG = {"error": {"message": "This model's maximum context length is 9 tokens"}}


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (400, {}, Cause.JUDGE_UNPARSEABLE),
        (422, {}, Cause.JUDGE_UNPARSEABLE),
        (413, {}, Cause.PROMPT_TOO_LONG),
        (400, TOO_LONG, Cause.PROMPT_TOO_LONG),
        (400, {"error": {"code": "context_length_exceeded"}}, Cause.PROMPT_TOO_LONG),
    ],
)
async def test_a_question_that_is_refused_is_no_outage(
    ask, endpoint, status, body, cause
):
    # Too long, or against the endpoint's rules: asked again it would be refused again,
    # and the slot would wait for good.
    complete = ask(text("x"), *[Say(body, status)] * 6, text("x"))
    assert await complete(ASK, seed=0) == "x"
    for _ in range(6):
        with pytest.raises(Failure) as failure:
            await complete(ASK, seed=0)
        assert failure.value.cause is cause
    assert await complete(ASK, seed=0) == "x"
    assert complete.spent() == {"calls": 8, "failures": 6}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "API key not valid"}},
        {"error": {"code": "billing_hard_limit_reached"}},
        {"error": {"message": "model not found"}},
    ],
)
async def test_a_wrong_setting_is_no_fault_of_the_question(ask, body):
    """Some endpoints call it a bad request; what was played waits for a mended one."""
    complete = ask(text("x"), Say(body, 400))
    assert await complete(ASK, seed=0) == "x"
    for _ in range(5):
        assert (await fails(complete)).cause is Cause.JUDGE_UNAVAILABLE
    assert "the circuit is open" in (await fails(complete)).detail


async def test_who_has_never_answered_refuses_nothing(ask):
    complete = ask(Say({}, 400))
    assert (await fails(complete)).cause is Cause.JUDGE_UNAVAILABLE


async def test_a_body_nested_without_end_is_garbage(ask):
    complete = ask(Say("[" * 200_000))
    assert (await fails(complete)).cause is Cause.JUDGE_UNAVAILABLE


@pytest.mark.parametrize("finish", ["content_filter", "tool_calls"])
async def test_an_answer_that_was_filtered_says_nothing(ask, finish):
    said = text('{"verdict": "success"}', finish=finish)
    assert await ask(said)(ASK, seed=0) == ""


# ---- R39: an outage --------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Say({}, 402), Say({}, 500), HANG])
async def test_the_circuit_opens_after_five_failed_calls(ask, monkeypatch, trouble):
    monkeypatch.setattr(remote, "RETRIES", 0)
    complete = ask(trouble, timeout_s=0.05 if trouble is HANG else 9.0)
    for _ in range(5):
        await fails(complete)
    assert complete.spent() == {"calls": 5, "failures": 5}
    assert "the circuit is open" in (await fails(complete)).detail
    assert complete.spent() == {}


async def test_one_probe_closes_the_circuit_or_keeps_it_open(ask, endpoint):
    complete = ask(*[Say({}, 402)] * 6, text("back"), rest_s=0.5)
    for _ in range(5):
        await fails(complete)
    await complete.recovered()
    await fails(complete)  # the probe
    assert "open" in (await fails(complete)).detail
    assert len(endpoint.asked) == 6
    await complete.recovered()
    assert await complete(ASK, seed=0) == "back"
    assert await complete(ASK, seed=0) == "back"


async def test_an_outage_is_said_when_it_begins_and_when_it_ends(ask, caplog):
    complete = ask(*[Say({}, 402)] * 7, *[text("back")] * 2, rest_s=0.0)
    for _ in range(7):
        await fails(complete)
    for _ in range(2):
        await complete(ASK, seed=0)
    told = [record.getMessage() for record in caplog.records if record.name == "absl"]
    assert ["402" in told[0], "answers again" in told[1]] == [True, True]
    assert len(told) == 2 and "config" not in told[0]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_an_outage_by_a_wrong_setting_names_it(ask, caplog, status):
    complete = ask(Say({"error": {"message": "bad key sk-secret"}}, status))
    for _ in range(6):
        await fails(complete)
    (told,) = [it.getMessage() for it in caplog.records if it.name == "absl"]
    for part in ("config.reward.judge.api_key_env", "base_url", "model", str(status)):
        assert part in told
    assert "secret" not in told


def test_only_one_call_probes_and_a_cancelled_one_says_nothing():
    now = [0.0]
    breaker = remote.Breaker(10.0, lambda: now[0])
    for _ in range(6):
        assert not breaker.begin()
    for _ in range(5):
        breaker.end(False, is_probe=False)
    assert breaker.is_open and not breaker.lets_through
    now[0] = 10.0
    assert breaker.begin()
    breaker.end(None, is_probe=False)  # an older call
    assert not breaker.lets_through
    breaker.end(None, is_probe=True)
    assert breaker.lets_through
    breaker.end(True, is_probe=breaker.begin())
    assert not breaker.is_open


# ---- the judge behind it ---------------------------------------------------------


def test_a_key_that_is_not_set_is_refused(ask, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ValueError, match="NO_SUCH_KEY is not set"):
        ask(text(""), api_key_env="NO_SUCH_KEY")


async def test_a_judge_over_http_outlives_trouble_and_garbage(ask):
    complete = ask(
        Say({}, 500),
        text("I cannot evaluate"),
        Say({}, 429),
        endpoints.verdict("success"),
    )
    config = common.get_config().reward.judge
    reward = await judge.judge(stories.story(), complete, config)
    assert (reward.value, reward.is_valid) == (1.0, True)


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        (text("I'm sorry, I can't."), Cause.JUDGE_UNPARSEABLE),
        (text(None, refusal="no"), Cause.JUDGE_UNPARSEABLE),
        (text('{"verdict": "success"} {"verdict": "failure"}'), "UNPARSEABLE"),
        (text('{"reason": "Verdict: success', finish="length"), "UNPARSEABLE"),
        (Say({}, 402), Cause.JUDGE_UNAVAILABLE),
        (Say("<html>", 503), Cause.JUDGE_UNAVAILABLE),
        (Say({}, how="cut"), Cause.JUDGE_UNAVAILABLE),
    ],
)
async def test_a_judge_that_only_fails_is_void_and_never_zero(ask, say, cause):
    config = common.get_config().reward.judge
    reward = await judge.judge(stories.story(), ask(say), config)
    cause = Cause.JUDGE_UNPARSEABLE if cause == "UNPARSEABLE" else cause
    assert (reward.is_valid, reward.cause) == (False, cause)
