"""One tab: every call to it is bounded in time, every trouble has a kind.

`Page` holds a Playwright page with one CDP session. What goes wrong in the page is a
`Trouble`, for `web.env` to turn into feedback or, at reset, into a cause; a Chromium
that died or does not answer is Failure(BROWSER_CRASH) at once.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable
from typing import Any, Literal

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser

_MOVED = ("navigat", "context was destroyed", "promise was collected", "cannot find")
_SWAPPING = "Not attached to an active page"
_SWAP_S = 0.05
ERROR_PAGE = "chrome-error://"
_CLOSING_S = 2.0  # after it a tab is closed past Playwright
_DOCUMENTS = 5  # that may follow each other before one is asked
_HOPS = 3  # documents that a page may ask for by one action: more, and it never stops
_COUNTED = ("document", "xhr", "fetch")  # requests that a page may be waiting for


class Trouble(Exception):
    """What a page did instead of answering; `code` is Chromium's net:: code if any."""

    def __init__(
        self,
        kind: Literal[
            "hung", "crashed", "closed", "moved", "net", "download", "script"
        ],
        detail: str,
        code: str = "",
    ):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.code = code
        self.asked_s = 0.0  # browser time that the policy asked for before it


class Page:
    """A tab of a context. Made by `web.tabs`; `raw` is Playwright's page."""

    def __init__(self, raw, session, chromium: browser.Browser, config):
        self.raw = raw
        self.target_id = ""  # Chromium's own name for it
        self.url = ""  # of the last document that answered
        self.title = ""
        self.first_entry = 0  # where the task began in the tab's history
        self.popups = 0  # asked for by the user since the action began, not yet there
        self.opener: Page | None = None  # the tab that is shown when this one closes
        self.is_left = False  # closed by us, not by itself
        self._session = session
        self._chromium = chromium
        self._config = config
        self._requests: set[Any] = set()
        self._images: set[Any] = set()  # requests for them, under way
        self._idle = asyncio.Event()
        self._moved = asyncio.Event()
        self._document: Any = None  # newest request for the tab's own document
        self._documents = 0  # asked for by the page since the last action began
        self.is_restless = False  # it keeps going elsewhere, or does not answer
        self._is_crashed = False
        self._failed = ("", "")  # code and URL of the action's last lost document
        self._gone = asyncio.get_running_loop().create_future()
        self._listen()

    def begin(self) -> None:
        """An action starts: requests and popups are counted from here."""
        self._requests.clear()
        self._images.clear()
        self._idle.set()
        self._moved.clear()
        self.popups = 0
        self._failed = ("", "")
        self._document = None
        self.is_restless, self._documents = self._documents > _HOPS, 0

    @property
    def fault(self) -> str:
        """Why the action's newest document did not come; "" = it did."""
        return self._chromium.proxy.explain(*self._failed)

    @property
    def is_open(self) -> bool:
        """False once it crashed, was closed or lost its browser."""
        return not self._gone.done()

    @property
    def is_leaving(self) -> bool:
        """True = since the action began the page asked for a document."""
        return self._documents > 0

    @property
    def is_loading(self) -> bool:
        """True while a request that began with this action is under way."""
        return bool(self._requests)

    @property
    def image_urls(self) -> list[str]:
        """The images that were asked for since this action began, and are to come."""
        return [request.url for request in self._images]

    @property
    def is_awaiting_document(self) -> bool:
        """True while, or after, this action's own document did not come."""
        return self._document in self._requests or self.fault == "ERR_ABORTED"

    async def bounded(self, work: Awaitable, limit_s: float = 0.0) -> Any:
        """Awaits at most `limit_s` (0 = the action time-out), or until it is gone."""
        limit_s = limit_s or self._config.action_timeout_s
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait(
                {task, self._gone}, timeout=limit_s, return_when="FIRST_COMPLETED"
            )
            if not task.done():
                raise await self._trouble(f"no answer within {limit_s:g} s")
            return task.result()
        except browser.Error as error:
            raise await self._trouble(str(error)) from None
        finally:
            task.cancel()

    async def send(self, method: str, limit_s: float = 0.0, **params) -> dict:
        """One CDP command; asked again where one process gives way to another."""
        for is_last in (False, False, True):
            try:
                return await self.bounded(self._session.send(method, params), limit_s)
            except Trouble as trouble:
                if _SWAPPING not in trouble.detail or is_last:
                    raise
            await asyncio.sleep(_SWAP_S)
        raise AssertionError("the last try returns or raises")

    async def evaluate(self, expression: str, limit_s: float = 0.0) -> Any:
        """The JSON value of an expression in the page, promises awaited.

        A document that gives way to the next one is waited for and asked again.
        """
        for _ in range(_DOCUMENTS):
            try:
                return await self._evaluate(expression, limit_s)
            except Trouble as trouble:
                if trouble.kind != "moved":
                    raise
            await self.wait_loaded()
        raise Trouble("hung", "the page never stops going elsewhere")

    async def _evaluate(self, expression: str, limit_s: float) -> Any:
        answer = await self.send(
            "Runtime.evaluate",
            limit_s,
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        fault = answer.get("exceptionDetails")
        if fault is None:
            return answer["result"].get("value")
        text = fault.get("exception", {}).get("description") or fault["text"]
        if any(word in text.lower() for word in _MOVED[1:3]):
            raise Trouble("moved", text)
        raise Trouble("script", text)

    async def goto(self, url: str, wait_until: str = "domcontentloaded") -> int:
        """Opens a URL and gives its HTTP status (0 = it has none)."""
        limit_s = self._config.navigate_timeout_s
        for is_last in (False, True):
            loading = self.raw.goto(url, wait_until=wait_until, timeout=limit_s * 1000)
            try:
                response = await self.bounded(loading, limit_s + 1.0)
            except Trouble as trouble:
                # An error page that still loads cuts the first try short.
                if "interrupted by another" in trouble.detail and not is_last:
                    continue
                if trouble.kind == "hung":
                    await self._stop()
                raise
            finally:
                self._documents = 0  # these were asked for by us
            return response.status if response else 0
        raise AssertionError("the last try returns or raises")

    async def _stop(self) -> None:
        """Stops loading: a page with a pending navigation answers nothing."""
        with contextlib.suppress(Trouble):  # the goto's own trouble tells more
            await self.send("Page.stopLoading", self._config.capture_timeout_s)

    async def wait_loaded(self) -> None:
        """Waits for a document that is on its way to be there."""
        limit_s = self._config.navigate_timeout_s
        waiting = self.raw.wait_for_load_state(
            "domcontentloaded", timeout=limit_s * 1000
        )
        await self.bounded(waiting, limit_s + 1.0)

    async def wait_idle(self, limit_s: float) -> None:
        """Waits until the action's requests are answered, or the limit."""
        await _within(self._idle.wait(), limit_s)

    async def wait_moved(self, limit_s: float) -> None:
        """Waits until a navigation that the page announced has come to something."""
        if not self._requests:
            await _within(self._moved.wait(), limit_s)

    async def leave(self) -> None:
        """Closes the tab as a person would: it may ask whether to leave first."""
        self.is_left = True
        with contextlib.suppress(browser.Error, TimeoutError):
            closing = self.raw.close(run_before_unload=True)
            await asyncio.wait_for(closing, self._config.capture_timeout_s)
            await asyncio.wait({self._gone}, timeout=self._config.capture_timeout_s)
        await self.close()

    async def close(self) -> None:
        """Closes the tab; a Chromium that cannot do even that is killed."""
        self.is_left = True
        if self.raw.is_closed() or not self._chromium.is_alive():
            return
        try:
            await asyncio.wait_for(self.raw.close(), _CLOSING_S)
        except browser.Error:
            pass  # it closed itself meanwhile
        except TimeoutError:
            await self._close_by_force()

    async def _close_by_force(self) -> None:
        # Playwright waits for a navigation that never ends; Chromium does not.
        limit_s = self._config.close_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._chromium.close_tab(self.target_id)
                await asyncio.wait({self._gone})
        except browser.Error:
            pass
        except TimeoutError:
            self._chromium.kill()
            raise Failure(Cause.BROWSER_CRASH, "a tab could not be closed") from None

    async def status(self) -> int:
        """HTTP status of the document that the action asked for; 0 = it has none."""
        if self._document is None:
            return 0
        with contextlib.suppress(Trouble):
            limit_s = self._config.capture_timeout_s
            response = await self.bounded(self._document.response(), limit_s)
            return response.status if response else 0
        return 0

    async def give_up_loading(self) -> bool:
        """Stops a document that does not come; True = the old one answers again."""
        await self._stop()
        try:
            await self._evaluate("0", self._config.capture_timeout_s)
        except Trouble:
            return False
        return True

    async def leave_error(self) -> bool:
        """Goes from an error page back to what was there; False = one cannot."""
        limit_s = self._config.capture_timeout_s
        try:
            await self.bounded(
                self.raw.wait_for_url(
                    f"{ERROR_PAGE}**", wait_until="commit", timeout=limit_s * 1000
                ),
                limit_s + 1.0,
            )
            history = await self.send("Page.getNavigationHistory")
            entries, index = history["entries"], history["currentIndex"]
            if not index or entries[index - 1]["url"] != self.url:
                return False
            await self.step(-1)
        except Trouble:
            return False
        return not self.raw.url.startswith(ERROR_PAGE)

    async def forget_history(self) -> None:
        """The document that is there is the first one: nothing lies before it."""
        history = await self.send("Page.getNavigationHistory")
        self.first_entry = history["currentIndex"]

    async def step(self, by: int) -> None:
        """Goes back (-1) or forward (1) in the tab's history."""
        limit_s = self._config.navigate_timeout_s
        go = self.raw.go_back if by < 0 else self.raw.go_forward
        going = go(wait_until="domcontentloaded", timeout=limit_s * 1000)
        try:
            await self.bounded(going, limit_s + 1.0)
        finally:
            self._documents = 0

    async def _trouble(self, text: str) -> Exception:
        """What an error means: Chromium's death is found out before a page's."""
        code = re.search(r"net::(ERR_\w+)", text)
        lines = text.splitlines()
        text = lines[0] if lines else "no reason given"
        if "Download is starting" in text:
            return Trouble("download", text)
        if code:
            told = self._chromium.proxy.explain(code[1], self._failed[1])
            return Trouble("net", text, told)
        is_over = self._is_crashed or "crashed" in text or self._gone.done()
        if not is_over and any(word in text.lower() for word in _MOVED):
            return Trouble("moved", text)
        if not await self._chromium.answers():
            return Failure(Cause.BROWSER_CRASH, text)
        if self._is_crashed or "crashed" in text:
            return Trouble("crashed", text)
        return Trouble("closed" if self._gone.done() else "hung", text)

    def _listen(self) -> None:
        raw = self.raw
        raw.on("crash", self._on_crash)
        raw.on("close", self._on_gone)
        raw.on("request", self._on_request)
        raw.on("requestfinished", self._on_answer)
        raw.on("requestfailed", self._on_failure)
        raw.on("framenavigated", self._on_moved)
        self._session.on("Page.windowOpen", self._on_window)

    def _on_crash(self, _) -> None:
        self._is_crashed = True
        self._on_gone(_)

    def _on_gone(self, _) -> None:
        if not self._gone.done():
            self._gone.set_result(None)

    def _on_request(self, request) -> None:
        if request.resource_type in _COUNTED:
            self._requests.add(request)
            self._idle.clear()
        if request.resource_type == "image":
            self._images.add(request)
        if request.is_navigation_request() and self._is_own(request):
            self._document = request
            self._documents += request.redirected_from is None

    def _on_answer(self, request) -> None:
        self._requests.discard(request)
        self._images.discard(request)
        if not self._requests:
            self._idle.set()
        if request.resource_type == "document":
            self._moved.set()

    def _on_failure(self, request) -> None:
        if request is self._document:
            code = (request.failure or "").removeprefix("net::")
            self._failed = (code, request.url)  # of a redirect, the last one
        self._on_answer(request)

    def _is_own(self, request) -> bool:
        try:
            return request.frame.parent_frame is None
        except browser.Error:
            return True  # its frame is not there yet, so it is the tab's first

    def _on_moved(self, frame) -> None:
        if frame.parent_frame is None:
            self._moved.set()

    def _on_window(self, event) -> None:
        self.popups += bool(event["userGesture"])


def call(script: str) -> str:
    """An expression that runs a page function and awaits what it returns."""
    return f"(async () => await ({script})())()"


def literal(value: Any) -> str:
    """A Python value as JavaScript."""
    return json.dumps(value)


async def _within(work: Awaitable, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, limit_s)
