"""A scripted OpenAI-compatible server on loopback, over real HTTP."""

import http.server
import json
import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Say:
    """One answer. `how`: whole | hang (no answer) | drip (a byte now and then) | cut
    (the connection ends inside the body) | drop (it ends before the status)."""

    body: Any = ""
    status: int = 200
    how: str = "whole"
    headers: dict[str, str] = field(default_factory=dict)


def text(content: Any, *, finish: str = "stop", tokens: tuple = (), **more: Any) -> Say:
    """A well-formed completion; `tokens` = of prompt and reply."""
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
    body |= {"choices": [choice]}
    if tokens:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        body["usage"] = dict(zip(names, (*tokens, sum(tokens)), strict=True))
    return Say(body)


def verdict(word: str) -> Say:
    """A judge's reply in the wanted form."""
    return text(json.dumps({"reason": "seen", "verdict": word}))


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers calls in turn from `script`, the last entry for ever; an entry may be a
    function of the request's body."""

    daemon_threads = True

    def __init__(self, port: int = 0):
        super().__init__(("127.0.0.1", port), _Answer)
        self.script, self.asked, self.keys = [], [], []
        self.now = self.most = 0
        self.lock, self.released = threading.Lock(), threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def next(self, body, key) -> Say:
        with self.lock:
            self.asked.append(body)
            self.keys.append(key)
            said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return said(body) if callable(said) else said

    def shift(self, step):
        with self.lock:
            self.now += step
            self.most = max(self.most, self.now)

    def close(self):
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients give up on purpose


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.shift(1)
        said = self.server.next(body, self.headers["Authorization"])
        if said.how == "hang":
            self.server.released.wait(0.3)
        self.server.shift(-1)
        if said.how == "drop":
            self.close_connection = True
            return
        words = said.body if isinstance(said.body, str) else json.dumps(said.body)
        kind = "text/html" if words.startswith("<") else "application/json"
        data = words.encode()
        self.send_response(said.status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in said.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if said.how == "cut":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif said.how == "drip":
            for byte in data:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.released.wait(0.01):
                    return
        else:
            self.wfile.write(data)

    def log_message(self, *args):
        pass
