"""The one door to a browser: reset, step, facts, close (`core.types.Env`).

Troubles of the site are causes at reset only. Later a dead name, a hung or a crashed
page is `failed` feedback and the page is opened anew, however often: no ending that
the policy could bring about makes its slot void. How many pages broke is told in the
facts as `page_breaks`. A Chromium that died is BROWSER_CRASH at any time.
"""

import asyncio
import contextlib
import dataclasses
from typing import Any

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Feedback, Observation, Step, Task, ToolCall
from openwebrl_jax.web import (
    browser,
    execute,
    feedback,
    frames,
    guard,
    observe,
    opening,
    plans,
    settle,
    troubles,
)
from openwebrl_jax.web import page as pages
from openwebrl_jax.web.page import Page, Trouble
from openwebrl_jax.web.tabs import Tabs
from openwebrl_jax.web.tape import Tape
from openwebrl_jax.web.trace import Trace, is_wanted


def make_env(pool: browser.Pool) -> "BrowserEnv":
    """An environment for one episode slot; its Chromium is the pool's."""
    return BrowserEnv(pool)


class BrowserEnv:
    """One episode at a time in a context of the pool's Chromium."""

    def __init__(self, pool: browser.Pool):
        self._pool = pool
        self._config = pool.config
        self._tabs: Tabs | None = None
        self._tape: Tape | None = None
        self._trace: Trace | None = None  # of an episode whose checks read one
        self._place = plans.Place(config=pool.config, sites=(), hosts=())
        self._is_shared = False  # the context serves more than one episode
        self._sites: set[str] = set()  # local sites that the context may open
        self._task: Task | None = None
        self._start_url = ""  # where the task's page is after its redirects
        self._last_good: Observation | None = None
        self._cause: Cause | None = None
        self._answer = ""
        self._facts: dict[str, Any] = {}
        self._breaks = 0  # pages that hung or crashed
        self._broken_url = ""  # where the newest call broke a page; "" = it did not
        self._is_cut = False

    async def reset(self, task: Task) -> tuple[Task, Observation]:
        """Opens the task on a fresh context, or on its warm page if it is resettable.

        Raises Failure with the cause that Chromium names.
        """
        self._check_start(task)
        self._task, self._cause, self._last_good = task, None, None
        self._answer, self._facts, self._breaks, self._broken_url = "", {}, 0, ""
        self._place = plans.Place(
            config=self._config, sites=task.sites, hosts=tuple(self._pool.hosts)
        )
        chromium = await self._pool.lease()
        await self._enter(chromium, task)
        try:
            with self._unbroken():
                report = await opening.show(self._shown, task, self._config)
                self._start_url = report["url"]
                observation = await self._observe([])
        except Trouble as trouble:
            status = await self._active.status() if trouble.kind == "net" else 0
            await self._leave()
            cause = troubles.cause_of(trouble, status)
            raise Failure(cause, f"{task.start_url}: {trouble.detail}") from trouble
        made = report["made"] if isinstance(report["made"], dict) else {}
        intent = str(made.get("intent", task.intent))
        return dataclasses.replace(task, intent=intent), observation

    async def step(self, calls: tuple[ToolCall, ...]) -> Step:
        """Runs calls in order; the episode's end, once reached, is kept."""
        told: list[Feedback] = []
        asked_s = 0.0
        with self._unbroken():
            for call in calls:
                if self._cause is not None:
                    break
                line, call_asked_s = await self._call(call)
                asked_s += call_asked_s
                if line is not None:
                    told.append(line)
            observation = await self._observe(told)
        return Step(
            observation=observation,
            feedback=feedback.shown(told, self._config.feedback),
            cause=self._cause,
            answer=self._answer,
            facts=await self._all_facts(),
            asked_s=asked_s,
        )

    async def facts(self, script: str, url: str = "") -> Any:
        """What a page function returns: on the page in view, opened anew if need be, or
        on that of `url` in a tab of its own, once it is quiet.

        Raises Failure; with a `url` by the cause that Chromium names.
        """
        with self._unbroken():
            if url:
                return await self._facts_at(script, url)
            for is_last in (False, True):
                try:
                    return await self._active.evaluate(pages.call(script))
                except Trouble as trouble:
                    if is_last or trouble.kind == "script":
                        raise Failure(Cause.PAGE_CRASH, trouble.detail) from trouble
                    await self._recover(trouble)

    async def _facts_at(self, script: str, url: str) -> Any:
        self._check_address(url, self._current)
        page = await self._shown.open()
        try:
            await page.goto(url, "load")
            return await settle.ask(page, script, self._config)
        except Trouble as trouble:
            cause = troubles.cause_of(trouble)
            raise Failure(cause, f"{url}: {trouble.detail}") from trouble
        finally:
            await page.close()

    async def close(self) -> None:
        """Closes the context; the pool's Chromium stays."""
        await self._leave()

    @contextlib.contextmanager
    def _unbroken(self):
        # What is broken off in here (cancelled, say) may leave commands that Chromium
        # still carries out: such a context serves no further episode.
        self._is_cut = True
        yield
        self._is_cut = False

    # ---- reset ---------------------------------------------------------------------

    def _check_start(self, task: Task) -> None:
        unknown = set(task.sites) - set(self._pool.hosts)
        if unknown:
            raise ValueError(
                f"task {task.id} wants the sites {sorted(unknown)}, which nobody "
                f"serves; served are {sorted(self._pool.hosts)}"
            )
        self._check_address(task.start_url, task)

    def _check_address(self, url: str, task: Task) -> None:
        try:
            guard.check(url, task.sites, self._pool.hosts)
        except ValueError as error:
            raise Failure(Cause.REFUSED, f"{url}: {error}") from None

    async def _enter(self, chromium: browser.Browser, task: Task) -> None:
        """Has a context of this Chromium, fresh unless both episodes can share it."""
        is_usable = self._tabs is not None and self._tabs.chromium is chromium
        is_spoilt = self._is_cut or is_wanted(task)
        is_shared = self._is_shared and task.is_resettable and not is_spoilt
        if not (is_usable and is_shared and set(task.sites) == self._sites):
            await self._leave()
            self._tape = Tape(self._config, task.start_url)
            context = await chromium.new_context(task.sites, self._tape)
            self._tabs = Tabs(context, chromium, self._config)
            self._trace = Trace() if is_wanted(task) else None
            if self._trace is not None:
                self._trace.attach(context)
            is_apart = self._config.tape or self._trace is not None
            self._is_shared = task.is_resettable and not is_apart
            self._sites = set(task.sites)

    async def _leave(self) -> None:
        tabs, self._tabs = self._tabs, None
        if tabs is not None:
            await tabs.close()
            if self._tape is not None:
                await self._tape.keep()
            await self._pool.release(tabs.chromium)

    # ---- step ----------------------------------------------------------------------

    async def _call(self, call: ToolCall) -> tuple[Feedback | None, float]:
        """One call's feedback (None = the page had ended before it) and asked time.

        From the second page on, who breaks one has asked for the time that it takes.
        """
        self._shown.begin(execute.is_input(call.name))
        clock = asyncio.get_running_loop().time
        begun, breaks = clock(), self._breaks
        try:
            line, asked_s = await self._carry_out(call)
            self._broken_url = ""
        except Trouble as trouble:
            line, asked_s = await self._mend(call, trouble), trouble.asked_s
            is_habit = self._breaks > max(1, breaks)
            asked_s = clock() - begun if is_habit else asked_s
        if line is not None and self._shown.earlier:
            line = feedback.add(line, "before that: " + "; ".join(self._shown.earlier))
        self._shown.rest()
        return line, asked_s

    async def _carry_out(self, call: ToolCall) -> tuple[Feedback | None, float]:
        try:
            plan = execute.plan(call, self._place)
        except plans.Refusal as refusal:
            await self._settle()
            return feedback.failed(call.name, str(refusal)), 0.0
        before = await self._look(plan)
        if self._cause is not None:
            return None, 0.0
        deed = await execute.act(plan, self._shown, before, self._place)
        try:
            if plan.arguments.get("button") == "middle":  # its tab is not announced
                await self._shown.wait_popup(self._config.settle_quiet_s)
            after = await self._settle()
            await frames.after(self._active, before, after, self._config)
            if after["url"].startswith(pages.ERROR_PAGE):
                code = self._active.fault or "ERR_FAILED"
                raise Trouble("net", f"net::{code}", code)
        except Trouble as trouble:
            trouble.asked_s += deed.asked_s
            raise
        if deed.is_final:
            self._cause = self._cause or Cause.DONE
            self._answer = deed.answer
        notes = [*self._shown.notes, *await self._document_notes(before, after)]
        line = feedback.line(call.name, deed, before, after, notes)
        return feedback.add(line, after.get("late", "")), deed.asked_s

    async def _document_notes(self, before: dict, after: dict) -> list[str]:
        """What the policy should know of the document that an action has brought."""
        if before.get("document") == after.get("document"):
            is_answered = self._active.fault and not self._shown.notes
            status = await self._active.status() if is_answered else 0
            return [f"the answer was HTTP {status} without a page"] if status else []
        status = after.get("status", 0)
        notes = [f"HTTP {status}"] if status >= 400 else []
        if after.get("kind") == "application/pdf":
            notes.append("it is a PDF, shown as pictures of its pages")
        return notes

    async def _look(self, plan: plans.Plan) -> dict:
        """The page just before a call, which may have ended by itself since."""
        script = self._current.end_script
        seen, ended = await settle.before(self._active, plan, script)
        self._keep_end(ended)
        return seen

    async def _settle(self) -> dict:
        """The page that a call has left."""
        script = self._current.end_script
        seen, ended = await settle.after(self._shown, script, self._config)
        self._keep_end(ended)
        return seen

    def _keep_end(self, ended: Any) -> None:
        """Keeps the first end that the page reports; later ones change nothing."""
        if self._cause is None and isinstance(ended, dict) and ended.get("is_done"):
            self._cause = Cause.PAGE_DONE
            self._facts = dict(ended.get("facts") or {})

    async def _mend(self, call: ToolCall, trouble: Trouble) -> Feedback:
        """After a trouble the policy has a page that answers again."""
        tabs = self._shown
        if trouble.kind == "download":
            await tabs.wait_download(self._config.settle_cap_s)
        if trouble.kind == "closed" and tabs.active.is_open:
            return feedback.happened(call.name, tabs.notes or ["the tab closed itself"])
        status = await tabs.active.status() if trouble.kind == "net" else 0
        outcome = await self._recover(trouble)
        told = [*tabs.notes, troubles.told(trouble, status, outcome)]
        if self._takes_done(call):
            return feedback.happened(call.name, ["marked as done", *told])
        return feedback.failed(call.name, "; ".join(told))

    def _takes_done(self, call: ToolCall) -> bool:
        """Keeps a sound `done`, which needs no page; True = it was one."""
        if call.name != "done":
            return False
        try:
            plan = execute.plan(call, self._place)
        except plans.Refusal:
            return False
        self._cause = self._cause or Cause.DONE
        self._answer = plan.arguments["response"]
        return True

    async def _recover(self, trouble: Trouble) -> str:
        """Brings back a page that answers, by the gentlest way; says which it was."""
        page = self._active
        is_slow = trouble.kind == "hung" and page.is_awaiting_document
        if troubles.stays(trouble) or is_slow and await page.give_up_loading():
            return troubles.STAYED
        if await self._left_error(trouble):
            return troubles.OPENED
        if trouble.kind == "net":
            self._broken_url = ""
            return await self._reopen(page.url)
        self._breaks += 1
        is_again, self._broken_url = page.url == self._broken_url, page.url
        return await self._reopen(self._start_url if is_again else page.url)

    async def _left_error(self, trouble: Trouble) -> bool:
        """True after going back from an error page, so that its history is kept."""
        is_task = self._active.url == self._start_url and self._current.setup
        if trouble.kind != "net" or is_task:
            return False  # going back would not do the setup again
        return await self._active.leave_error()

    async def _reopen(self, url: str) -> str:
        """A new tab for the active one, at `url`, else at the task's first page."""
        last_url = self._active.url
        for address in dict.fromkeys((url, self._start_url)):
            if await self._loads(await self._shown.replace(self._active), address):
                return troubles.OPENED if address == last_url else troubles.STARTED
        page = await self._shown.replace(self._active)
        page.url = page.raw.url
        return troubles.EMPTY

    async def _loads(self, page: Page, url: str) -> bool:
        """Opens an address in an empty tab; False = it comes to nothing."""
        try:
            if url == self._start_url:
                await opening.load(self._shown, page, self._current, self._config)
            else:
                await page.goto(url)
                await self._shown.name(page)
                await page.forget_history()
        except Trouble:
            return False
        except Failure as failure:
            if failure.cause is Cause.BROWSER_CRASH:
                raise
            return False
        return True

    # ---- observe -------------------------------------------------------------------

    async def _observe(self, told: list[Feedback]) -> Observation:
        """The active tab; where it does not paint even anew, the last good capture.

        A page that breaks only now is told at the end of the last feedback line.
        """
        limit_s = self._config.capture_timeout_s
        tabs = self._shown
        for is_last in (False, True):
            try:
                screenshot = await observe.capture(tabs.active, limit_s)
            except Trouble as trouble:
                if self._last_good is None:
                    raise trouble
                is_left = trouble.kind == "closed" and tabs.active.is_open
                if not is_last and not is_left:
                    outcome = await self._recover(trouble)
                    news = troubles.told(trouble, 0, outcome)
                    told[-1:] = [feedback.add(line, news) for line in told[-1:]]
                continue
            await tabs.refresh()
            made = observe.observation(tabs, screenshot, self._config, is_stale=False)
            self._last_good = made
            return made
        assert self._last_good is not None
        return dataclasses.replace(self._last_good, is_stale=True)

    async def _all_facts(self) -> dict[str, Any]:
        """What the page's end brought, and what befell the episode."""
        befell: dict[str, Any] = {"page_breaks": self._breaks} if self._breaks else {}
        if self._trace is not None and self._cause is not None:
            befell["har"] = await self._trace.entries(self._config.settle_cap_s)
        return self._facts | befell | (self._tape.facts() if self._tape else {})

    @property
    def _shown(self) -> Tabs:
        assert self._tabs is not None, "reset comes first"
        return self._tabs

    @property
    def _active(self) -> Page:
        return self._shown.active

    @property
    def _current(self) -> Task:
        assert self._task is not None, "reset comes first"
        return self._task
