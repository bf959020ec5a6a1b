"""The tabs of one browser context: which is looked at, and what they asked for.

Dialogs, downloads, file choosers and popups are answered at once by one declared
policy and noted, for the feedback of the action that brought them up. A new tab comes
into view if the tab in view asked for it by the input of this action, within the time
that the action is given to settle; any other stays in the background. When the tab in
view closes, the one that opened it is shown.
"""

import asyncio
import contextlib
from collections.abc import Coroutine

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import browser
from openwebrl_jax.web.page import Page, Trouble

_NOTES = 4  # a page that shows dialogs in a loop is quoted no further
_NAMING_S = 1.0  # that a tab in the background has to tell its title
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
        self.notes: list[str] = []  # of this action
        self.earlier: list[str] = []  # of the time between the last action and this
        self.is_asked = False  # the action under way is an input of the user
        self.warm: dict[str, Page] = {}  # by start_url, least recent first
        self._context = context
        self._config = config
        self._active: Page | None = None
        self._context_id = ""  # Chromium's name for it; "" = it has no tab yet
        self._is_opening = False
        self._arrived: list = []
        self._arriving = 0  # tabs that are being taken in
        self._popup = asyncio.Event()
        self._downloaded = asyncio.Event()
        self._tasks: set[asyncio.Task] = set()
        context.on("dialog", lambda dialog: self._hold(self._answer(dialog)))
        context.on("page", self._on_page)

    @property
    def active(self) -> Page:
        """The tab in view; when it closed itself, the one that opened it."""
        assert self._active is not None
        if self._active.raw.is_closed():
            self._active = self._after(self._active) or self._active
        return self._active

    @property
    def shown(self) -> list[Page]:
        """The tabs as the policy numbers them."""
        active = self.active
        return [page for page in self.pages if page.is_open or page is active]

    def begin(self, is_input: bool = False) -> None:
        """An action starts: what happens from here on is its doing."""
        self.earlier, self.notes = self.notes, []
        self.is_asked = is_input
        self._downloaded.clear()
        self._popup.clear()
        for page in self.pages:
            page.popups = 0
        self.active.begin()

    def rest(self) -> None:
        """The action is over: what follows until the next one is nobody's doing."""
        self.is_asked = False
        self.notes = []

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

    async def add(self) -> Page:
        """Opens an empty tab and shows it."""
        page = await self.open()
        page.url = page.raw.url
        page.opener = self._active
        self.pages.append(page)
        self._active = page
        return page

    async def switch(self, page: Page) -> None:
        """Brings a tab into view."""
        self._active = page
        await page.send("Page.bringToFront")

    async def close_active(self) -> None:
        """Closes the tab in view and shows the one that opened it."""
        page = self.active
        after = self._after(page)
        assert after is not None, "the last tab is not closed"
        self.warm = {url: p for url, p in self.warm.items() if p is not page}
        await page.leave()
        self.pages.remove(page)
        await self.switch(after)

    async def replace(self, page: Page) -> Page:
        """Closes a tab that hung or crashed and shows an empty one in its place."""
        fresh = await self.open()
        self.warm = {url: p for url, p in self.warm.items() if p is not page}
        fresh.opener = page.opener
        self.pages = [
            fresh if p is page else p for p in self.pages if p.is_open or p is page
        ]
        for other in self.pages:
            other.opener = fresh if other.opener is page else other.opener
        self._active = fresh
        fresh.begin()
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

    @property
    def is_growing(self) -> bool:
        """True while a tab that somebody asked for is on its way."""
        return bool(self.active.popups or self._arriving)

    async def wait_popup(self, limit_s: float) -> None:
        """Waits for a tab that the page has asked for."""
        try:
            await asyncio.wait_for(self._popup.wait(), limit_s)
            self._popup.clear()
        except TimeoutError:
            for page in self.pages:
                page.popups = 0

    @property
    def has_download(self) -> bool:
        """True once the action has brought a download."""
        return self._downloaded.is_set()

    async def wait_download(self, limit_s: float) -> None:
        """Waits for what the action has asked for, lest a later one is blamed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._downloaded.wait(), limit_s)

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
            "filechooser",
            lambda _: self._note("it asked for a file, which is not available"),
        )
        limit_s = self._config.action_timeout_s
        session = await asyncio.wait_for(self._context.new_cdp_session(raw), limit_s)
        page = Page(raw, session, self.chromium, self._config)
        raw.on("close", lambda _: self._on_close(page))
        raw.on("crash", lambda _: self._on_close(page))
        downloads: dict[str, str] = {}  # by Chromium's name for them
        session.on(
            "Page.downloadWillBegin",
            lambda event: downloads.update({event["guid"]: event["suggestedFilename"]}),
        )
        session.on(
            "Page.downloadProgress", lambda event: self._on_download(downloads, event)
        )
        raw.on("download", lambda got: self._on_tab_download(downloads, got))
        await page.send("Page.enable")
        info = (await page.send("Target.getTargetInfo"))["targetInfo"]
        page.target_id, self._context_id = info["targetId"], info["browserContextId"]
        return page

    def _on_page(self, raw) -> None:
        self._arrived.append(raw)
        if not self._is_opening:
            self._adopt_arrived()

    def _adopt_arrived(self) -> None:
        while self._arrived:
            self._hold(self._take_in(self._arrived.pop(0)))

    async def _take_in(self, raw) -> None:
        self._arriving += 1
        asking = next((page for page in self.pages if page.popups), None)
        if asking is not None:
            asking.popups -= 1
        try:
            await self._adopt(raw, asking)
        finally:
            self._arriving -= 1
            self._popup.set()

    async def _adopt(self, raw, asking: Page | None) -> None:
        """Takes a popup in: shown if the user's action asked for it, else kept back."""
        is_shown = self.is_asked and asking is not None and asking is self._active
        try:
            page = await self._wrap(raw)
        except (browser.Error, Trouble, Failure, TimeoutError):
            self._note("it opened a tab, which closed again")
            return  # it closed before it could be looked at
        page.url = raw.url
        page.opener = asking or self._active
        self.pages.append(page)
        number = self.shown.index(page)
        if is_shown:
            self._active = page
            self._note(f"it opened new tab {number}, which is in view now")
            with contextlib.suppress(Trouble, Failure):
                await page.wait_loaded()
        else:
            self._note(f"new tab {number} opened in the background")
            await self._keep_view()
        await self.name(page)

    async def _keep_view(self) -> None:
        """Puts the tab in view before one that Chromium has put before it."""
        with contextlib.suppress(Trouble, Failure):
            await self.active.send("Page.bringToFront")

    async def name(self, page: Page) -> None:
        """Notes where a tab is and what it is called."""
        with contextlib.suppress(browser.Error, TimeoutError):
            page.title = await asyncio.wait_for(page.raw.title(), _NAMING_S)
            page.url = page.raw.url

    async def refresh(self) -> None:
        """Notes where the tabs in the background have gone since."""
        for page in self.pages:
            if page is not self._active and page.is_open and page.url != page.raw.url:
                await self.name(page)

    def _after(self, page: Page) -> Page | None:
        """The tab to show instead of one that closes; None = there is none."""
        left = [other for other in self.pages if other.is_open and other is not page]
        opener = page.opener
        while opener is not None and opener not in left:
            opener = opener.opener
        return opener or (left[-1] if left else None)

    def _on_close(self, page: Page) -> None:
        if page.is_left or page not in self.pages:
            return
        if page is not self._active:
            self._note(f"tab '{page.title[:80]}' in the background closed")
            return
        after = self._after(page)
        if after is not None and page.raw.is_closed():
            self._active = after
            number = self.shown.index(after)
            self._note(f"the tab closed itself, tab {number} is in view now")
            self._hold(self._keep_view())

    def _on_download(self, downloads: dict[str, str], event: dict) -> None:
        if event["state"] == "inProgress":
            size = int(event["totalBytes"])
            told = f"{size} bytes" if size else "size unknown"
            self._note_download(downloads[event["guid"]], told)

    def _on_tab_download(self, downloads: dict[str, str], got) -> None:
        # A tab that is opened for a download is gone before its size can be known.
        if got.suggested_filename not in downloads.values():
            self._note_download(got.suggested_filename, "size unknown")

    def _note_download(self, name: str, size: str) -> None:
        self._note(f"download '{name}' ({size}) discarded, files are not kept")
        self._downloaded.set()

    async def _answer(self, dialog) -> None:
        is_accepted, told = _DIALOGS[dialog.type]
        self._note(told.format(dialog.message[:80]))
        try:
            await (dialog.accept() if is_accepted else dialog.dismiss())
        except browser.Error:
            pass  # its page is gone, and the dialog with it

    def _note(self, text: str) -> None:
        if len(self.notes) < _NOTES:
            self.notes.append(text)

    def _hold(self, work: Coroutine) -> None:
        # asyncio keeps only weak references to tasks.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
