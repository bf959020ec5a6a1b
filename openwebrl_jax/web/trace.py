"""What an episode asked of the network, as HAR entries, for a checker that reads them.

In: a Playwright context. Out: plain dicts with request and response as HAR 1.2 names
them; of bodies only what was posted and JSON answers.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from openwebrl_jax.core.types import Task
from openwebrl_jax.web import browser

LONGEST_BODY = 100_000  # characters of one answer


def is_wanted(task: Task) -> bool:
    """True = a check of the task reads the trace."""
    return any(check.get("mode") == "verified" for check in task.checks)


class Trace:
    """Listens to one context from `attach` on."""

    def __init__(self):
        self._reading: set[asyncio.Task] = set()
        self._entries: list[tuple[float, dict[str, Any]]] = []

    def attach(self, context: Any) -> None:
        """Call it before the first page opens."""
        context.on("requestfinished", self._on_request)

    async def entries(self, limit_s: float) -> list[dict[str, Any]]:
        """All requests that have ended, by when they began."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=limit_s)
        return [entry for _, entry in sorted(self._entries, key=lambda each: each[0])]

    def _on_request(self, request: Any) -> None:
        reading = asyncio.ensure_future(self._read(request))
        self._reading.add(reading)
        reading.add_done_callback(self._on_read)

    def _on_read(self, reading: asyncio.Task) -> None:
        self._reading.discard(reading)
        # Of a page that is gone nothing more can be read; that is no fault.
        if not reading.cancelled() and reading.exception() is None:
            self._entries.append(reading.result())

    async def _read(self, request: Any) -> tuple[float, dict[str, Any]]:
        sent, response = await request.all_headers(), await request.response()
        got = await response.all_headers()
        asked = {"method": request.method, "url": request.url, "headers": _named(sent)}
        if request.post_data is not None:
            mime = sent.get("content-type", "")
            asked["postData"] = {"mimeType": mime, "text": request.post_data}
        mime = got.get("content-type", "")
        content = {"mimeType": mime}
        if "json" in mime:
            content |= await _body(response)
        answer = {
            "status": response.status,
            "headers": _named(got),
            "cookies": _cookies(got.get("set-cookie", "")),
            "content": content,
            "redirectURL": got.get("location", ""),
        }
        return request.timing["startTime"], {"request": asked, "response": answer}


async def _body(response: Any) -> dict[str, str]:
    """Its text, where there is one: not of a redirect, nor of a page that is gone."""
    try:
        return {"text": (await response.text())[:LONGEST_BODY]}
    except browser.Error:
        return {}


def _named(headers: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers.items()]


def _cookies(lines: str) -> list[dict[str, str]]:
    """Name and value of each; Chromium gives one cookie a line."""
    pairs = [line.partition(";")[0].partition("=") for line in lines.split("\n")]
    return [{"name": name.strip(), "value": value} for name, _, value in pairs if name]
