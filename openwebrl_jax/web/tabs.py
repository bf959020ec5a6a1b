"""The tabs of one browser context: which is looked at, and what they asked for.

Dialogs, downloads, file choosers and popups are answered at once by one declared
policy and noted, for the feedback of the action that brought them up.
"""

import asyncio
import contextlib
from collections.abc import Coroutine

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser
from openwebrl_jax.web.page import Page, Trouble

_NOTES = 4  # a page that shows dialogs in a loop is quoted no further
_WARM = 8  # pages kept loaded for resettable tasks

# What a page asks -> (accept it, how it is told).
_DIALOGS = {
    "alert": (True, "it showed the message '{}', now closed"),
    "confirm": (False, "it asked '{}', answered with cancel"),
    "prompt": (False, "it asked for text '{}', answered with cancel"),
    "beforeunload": (True, "it asked whether to leave the page, answered with leave"),
}


class Tabs:
    """Owns a context. `pages` are this episode's tabs, `active` the one in view."""

    def __init__(self, context, chromium: browser.Browser, config):
        self.chromium = chromium
        self.pages: list[Page] = []
        self.notes: list[str] = []
        self.warm: dict[str, Page] = {}  # by start_url, least recent first
        self._context = context
        self._config = config
        self._active: Page | None = None
        self._context_id = ""  # Chromium's name for it; "" = it has no tab yet
        self._is_opening = False
        self._arrived: list = []
        self._popup = asyncio.Event()
        self._noted = asyncio.Event()
        self._tasks: set[asyncio.Task] = set()
        context.on("dialog", lambda dialog: self._hold(self._answer(dialog)))
        context.on("page", self._on_page)

    @property
    def active(self) -> Page:
        """The tab in view; when it closed itself, the newest that is left."""
        assert self._active is not None
        if not self._active.is_open:
            left = [page for page in self.pages if page.is_open]
            self._active = left[-1] if left else self._active
        return self._active

    def begin(self) -> None:
        """An action starts: what happens from here on is its doing."""
        self.notes.clear()
        self._noted.clear()
        self._popup.clear()
        self.active.begin()

    def show(self, page: Page) -> None:
        """Makes a tab the only one of a new episode."""
        self.pages = [page]
        self._active = page

    async def open(self) -> Page:
        """A new empty tab, not yet shown."""
        limit_s = self._config.close_timeout_s  # Chromium itself is asked, no site
        self._is_opening = True
        try:
            raw = await asyncio.wait_for(self._new_window(), limit_s)
            self._arrived.remove(raw)
            return await self._wrap(raw)
        except (browser.Error, Trouble, TimeoutError) as error:
            self.chromium.kill()
            detail = f"no tab could be opened: {error}"
            raise Failure(Cause.BROWSER_CRASH, detail) from error
        finally:
            self._is_opening = False
            self._adopt_arrived()

    async def replace(self, page: Page) -> Page:
        """Closes a tab that hung or crashed and shows an empty one in its place."""
        fresh = await self.open()
        self.warm = {url: p for url, p in self.warm.items() if p is not page}
        self.pages = [
            fresh if p is page else p for p in self.pages if p.is_open or p is page
        ]
        self._active = fresh
        await page.close()
        return fresh

    async def keep_warm(self, url: str, page: Page) -> None:
        """Keeps a page loaded for the next episode of the same start_url."""
        self.warm.pop(url, None)
        self.warm[url] = page
        while len(self.warm) > _WARM:
            oldest = next(iter(self.warm))
            await self.warm.pop(oldest).close()

    async def close_others(self) -> None:
        """Closes what the last episode opened beside the warm pages."""
        for page in self.pages:
            if page not in self.warm.values():
                await page.close()
        self.pages = []

    async def wait_popup(self, limit_s: float) -> None:
        """Waits for a tab that the page has asked for."""
        try:
            await asyncio.wait_for(self._popup.wait(), limit_s)
        except TimeoutError:
            self.active.popups = 0

    async def wait_note(self, limit_s: float) -> None:
        """Waits for what a tab is about to ask for, lest a later action is blamed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._noted.wait(), limit_s)

    async def close(self) -> None:
        """Closes the context with all its tabs."""
        if not self.chromium.is_alive():
            return
        try:
            await asyncio.wait_for(self._context.close(), self._config.close_timeout_s)
        except browser.Error:
            pass  # the browser went first
        except TimeoutError:
            self.chromium.kill()

    async def _new_window(self):
        """Playwright's page, in a window of its own.

        A tab behind another one gets frames and input about once a second, and to
        bring it to the front costs as much as an episode.
        """
        if not self._context_id:
            return await self._context.new_page()
        async with self._context.expect_page() as coming:
            await self.chromium.open_window(self._context_id)
        return await coming.value

    async def _wrap(self, raw) -> Page:
        raw.on(
            "download",
            lambda got: self._note(f"download '{got.suggested_filename}' refused"),
        )
        raw.on(
            "filechooser",
            lambda _: self._note("it asked for a file, which is not available"),
        )
        limit_s = self._config.action_timeout_s
        session = await asyncio.wait_for(self._context.new_cdp_session(raw), limit_s)
        page = Page(raw, session, self.chromium, self._config)
        await page.send("Page.enable")
        if not self._context_id:
            info = await page.send("Target.getTargetInfo")
            self._context_id = info["targetInfo"]["browserContextId"]
        return page

    def _on_page(self, raw) -> None:
        self._arrived.append(raw)
        if not self._is_opening:
            self._adopt_arrived()

    def _adopt_arrived(self) -> None:
        while self._arrived:
            self._hold(self._adopt(self._arrived.pop()))

    async def _adopt(self, raw) -> None:
        """Takes a popup in: shown if the user's action asked for it, else kept back."""
        try:
            page = await self._wrap(raw)
        except (browser.Error, Trouble, Failure, TimeoutError):
            self._popup.set()
            return  # it closed before it could be looked at
        page.url = raw.url
        self.pages.append(page)
        if self.active.popups:
            self._active = page
            self._note("it opened a new tab, which is shown now")
        else:
            self._note("it opened a tab in the background")
        self._popup.set()

    async def _answer(self, dialog) -> None:
        is_accepted, told = _DIALOGS[dialog.type]
        self._note(told.format(dialog.message[:80]))
        try:
            await (dialog.accept() if is_accepted else dialog.dismiss())
        except browser.Error:
            pass  # its page is gone, and the dialog with it

    def _note(self, text: str) -> None:
        self._noted.set()
        if len(self.notes) < _NOTES:
            self.notes.append(text)

    def _hold(self, work: Coroutine) -> None:
        # asyncio keeps only weak references to tasks.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
