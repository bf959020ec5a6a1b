import asyncio
import http.server
import json
import threading

import pytest

from configs import common
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import remote
from openwebrl_jax.rewards import judge
from tests.rewards import stories

ASK = [{"role": "user", "content": "hi"}]
SLEEP = "sleep"


def completion(text):
    """The body of a well-formed answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m"} | {
        "choices": [choice]
    }


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers calls in turn from `script`, the last entry for ever."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.script, self.asked, self.keys = [], [], []
        self.now = self.most = 0
        self.lock, self.released = threading.Lock(), threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def next(self, body, key):
        with self.lock:
            self.asked.append(body)
            self.keys.append(key)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def shift(self, step):
        with self.lock:
            self.now += step
            self.most = max(self.most, self.now)

    def close(self):
        self.released.set()
        self.shutdown()
        self.server_close()


class Answer(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.server.shift(1)
        status, answer = self.server.next(body, self.headers["Authorization"])
        if answer is SLEEP:
            self.server.released.wait(0.3)
            answer = completion("late")
        self.server.shift(-1)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        kind = "text/html" if text.startswith("<") else "application/json"
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("retry-after-ms", "1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
        except ConnectionError:
            pass  # the client has given up on a slow answer

    def log_message(self, *args):
        pass


@pytest.fixture
def endpoint():
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
async def ask(endpoint, monkeypatch):
    """Sets the script and makes the client: `await ask(script...)`."""
    made = []

    def prepare(*script, **overrides):
        monkeypatch.setenv("JUDGE_KEY", "sk-secret")
        endpoint.script = list(script)
        config = common.get_config().reward.judge
        config.base_url = f"http://127.0.0.1:{endpoint.server_port}/v1"
        config.api_key_env = "JUDGE_KEY"
        config.update(overrides)
        made.append(remote.make_remote(config))
        return made[0]

    yield prepare
    for client in made:
        await client.close()


async def test_a_good_answer_is_its_text(ask, endpoint):
    complete = ask((200, completion("hello")))
    assert await complete(ASK, seed=42) == "hello"
    (body,) = endpoint.asked
    assert (body["model"], body["messages"], body["seed"]) == ("gpt-4.1", ASK, 42)
    assert endpoint.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_trouble_is_tried_again(ask, endpoint, status):
    complete = ask((status, {}), (status, "<html>"), (200, completion("at last")))
    assert await complete(ASK, seed=0) == "at last"
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("status", "body", "calls"),
    [
        (500, {"error": {"message": "key sk-secret"}}, 1 + remote.RETRIES),
        (429, {}, 1 + remote.RETRIES),
        (401, {"error": {"message": "bad key sk-secret"}}, 1),
        (402, {}, 1),
        (200, "<html>out of order</html>", 1),
        (200, '{"choices": [', 1),
        (200, {}, 1),
        (200, {"choices": []}, 1),
        (200, {"choices": [{"message": None}]}, 1),
        (200, {"choices": "abc"}, 1),
        (200, completion(["no", "text"]), 1),
        (200, [1], 1),
        (200, "null", 1),
    ],
)
async def test_lasting_trouble_and_garbage_are_an_unavailable_judge(
    ask, endpoint, status, body, calls
):
    complete = ask((status, body))
    with pytest.raises(Failure) as failure:
        await complete(ASK, seed=0)
    assert failure.value.cause is Cause.JUDGE_UNAVAILABLE
    assert "secret" not in str(failure.value)
    assert len(endpoint.asked) == calls


async def test_an_answer_that_does_not_come_is_bounded(ask, monkeypatch):
    monkeypatch.setattr(remote, "RETRIES", 1)
    complete = ask((200, SLEEP), timeout_s=0.02)
    with pytest.raises(Failure, match=r"APITimeoutError \(no answer\)"):
        await asyncio.wait_for(complete(ASK, seed=0), 10)


async def test_an_endpoint_that_is_gone_is_an_unavailable_judge(
    ask, endpoint, monkeypatch
):
    monkeypatch.setattr(remote, "RETRIES", 1)
    complete = ask((200, completion("x")))
    endpoint.close()
    with pytest.raises(Failure) as failure:
        await complete(ASK, seed=0)
    assert failure.value.cause is Cause.JUDGE_UNAVAILABLE


async def test_a_model_that_declines_says_nothing(ask):
    assert await ask((200, completion(None)))(ASK, seed=0) == ""


async def test_calls_at_once_are_bounded(ask, endpoint):
    complete = ask((200, SLEEP), concurrency=2)
    await asyncio.gather(*(complete(ASK, seed=n) for n in range(5)))
    assert endpoint.most == 2


def test_a_key_that_is_not_set_is_refused(ask, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ValueError, match="NO_SUCH_KEY is not set"):
        ask((200, {}), api_key_env="NO_SUCH_KEY")


async def test_a_judge_over_http_outlives_trouble_and_garbage(ask):
    complete = ask(
        (500, {}),
        (200, completion("I cannot evaluate")),
        (429, {}),
        (200, completion('{"reason": "seen", "verdict": "success"}')),
    )
    config = common.get_config().reward.judge
    reward = await judge.judge(stories.story(), complete, config)
    assert (reward.value, reward.is_valid) == (1.0, True)


async def test_a_judge_that_only_fails_is_void_and_never_zero(ask):
    complete = ask((503, "<html>"))
    config = common.get_config().reward.judge
    reward = await judge.judge(stories.story(), complete, config)
    assert (reward.is_valid, reward.cause) == (False, Cause.JUDGE_UNAVAILABLE)
