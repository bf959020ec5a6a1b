"""Chromium's life: found, started, recycled, killed by its own process group.

A `Pool` keeps one running `Browser` for a worker and hands it to its environments; a
Browser is one Chromium with one Playwright driver, and is replaced after so many
episodes, when it has grown too large, or when it died or hung. Chromium speaks over a
pipe, so that it ends when the driver or this process ends, however that happens.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

from absl import logging
from playwright import async_api

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import processes
from openwebrl_jax.web import proxy as proxies
from openwebrl_jax.web.tape import Tape

Error = async_api.Error  # what Playwright raises, for the rest of the room

LAUNCH_TIMEOUT_S = 60.0
_SOCKET_HOME = 60  # characters of a folder below which a socket's path is not too long
DEBIAN = "/usr/bin/chromium"
# The parts of the probe share one scope that the page cannot enter.
_PARTS = ("changes", "images", "names", "places", "widgets", "report")
_HERE = pathlib.Path(__file__).parent
_CODE = "\n".join((_HERE / "probe" / f"{part}.js").read_text() for part in _PARTS)
# What runs in every document before its own scripts.
_AGAIN = "if (window.__probe) return window.__probe.local.moveIn();"
PROBE = f"(() => {{\n{_AGAIN}\n{_CODE}\n}})();"

_moving = threading.Lock()  # held while TMPDIR is another one

_SWITCHES = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--force-device-scale-factor=1",  # a capture has the viewport's pixels
    "--force-color-profile=srgb",  # these three: equal pages give equal pixels
    "--font-render-hinting=none",
    "--disable-partial-raster",
    # Nothing goes round the proxy, which carries TCP alone.
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # its older name
    f"--host-resolver-rules={proxies.RULES}",
)


def find_chromium(path: str) -> str:
    """The browser to run: `path` (config.web.chromium), Debian's, or Playwright's."""
    if path:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        raise ValueError(
            f"config.web.chromium={path!r} is not a program; name Chromium's binary, "
            f'or leave "" for {DEBIAN} or Playwright\'s own'
        )
    if os.access(DEBIAN, os.X_OK):
        return DEBIAN
    cache = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright"
    found = sorted(pathlib.Path(cache).expanduser().glob("chromium-*/chrome-*/chrome"))
    if found:
        return str(found[-1])
    raise ValueError(
        "no Chromium was found; get it by `apt-get install chromium` (as root) or "
        "`python -m playwright install chromium`, or set config.web.chromium"
    )


class Browser:
    """One Chromium and its driver; `pid` leads a process group of its own."""

    def __init__(self, driver, chromium, session, pid: int, home: str, config, proxy):
        self._driver = driver
        self._chromium = chromium
        self._session = session  # of the browser itself
        self._home = home
        self._config = config
        self.proxy = proxy
        self.pid = pid
        self._born = processes.stat(pid)["born"]
        self.driver_pid = processes.stat(pid)["parent"]
        self._driver_born = processes.stat(self.driver_pid)["born"]
        self._is_killed = False
        self.episodes = 0
        self.contexts = 0

    @classmethod
    async def launch(cls, config, proxy: proxies.Proxy) -> "Browser":
        """Starts one; a Chromium that does not start is Failure(BROWSER_CRASH)."""
        path = find_chromium(config.chromium)
        processes.reap()
        home = processes.make_home()
        async with _temporary_folder(home):
            driver = await async_api.async_playwright().start()
        _heed_death(driver)
        try:
            async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                chromium = await driver.chromium.launch(
                    executable_path=path,
                    args=_SWITCHES,
                    chromium_sandbox=os.geteuid() != 0,
                    env=_environment(home),
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
                session = await chromium.new_browser_cdp_session()
                pid = await _pid_of(session)
                made = cls(driver, chromium, session, pid, home, config, proxy)
        except (Error, TimeoutError, KeyError) as error:
            await _stop(driver, config.close_timeout_s)
            shutil.rmtree(home, ignore_errors=True)
            detail = f"{path} did not start: {error}"
            raise Failure(Cause.BROWSER_CRASH, detail) from error
        processes.note(home, pid, made.driver_pid)
        return made

    def is_alive(self) -> bool:
        """True iff the very processes that were started still run."""
        return (
            not self._is_killed
            and processes.is_running(self.pid, self._born)
            and processes.is_running(self.driver_pid, self._driver_born)
        )

    async def answers(self) -> bool:
        """True iff Chromium itself still answers; it is killed where it hangs."""
        if not self.is_alive():
            return False
        asking = self._session.send("Browser.getVersion")
        try:
            await asyncio.wait_for(asking, self._config.close_timeout_s)
        except Error:
            return False
        except TimeoutError:
            self.kill()
            return False
        return True

    def memory_mb(self) -> float:
        """What Chromium's processes take, with what they share counted once."""
        return processes.memory_mb(processes.members(self.pid))

    async def new_context(self, sites: Collection[str], tape: Tape) -> Any:
        """A fresh Playwright context: own cookies, storage and cache.

        `sites` are the local sites that it may open beside the open web; a tape that
        is replayed takes the place of both.
        """
        size = {"width": self._config.width_px, "height": self._config.height_px}
        making = self._chromium.new_context(
            viewport=size,
            screen=size,
            device_scale_factor=1,
            locale="en-US",
            timezone_id="UTC",
            accept_downloads=False,
            service_workers="block",
            proxy={"server": await self.proxy.door(None if tape.is_replay else sites)},
            **tape.options(),
            ignore_https_errors=not self._config.verify_tls,
        )
        limit_s = self._config.close_timeout_s
        try:
            context = await asyncio.wait_for(making, limit_s)
            await asyncio.wait_for(context.add_init_script(PROBE), limit_s)
            await asyncio.wait_for(tape.attach(context), limit_s)
        except (Error, TimeoutError) as error:
            self.kill()
            detail = f"no context could be opened: {error}"
            raise Failure(Cause.BROWSER_CRASH, detail) from error
        self.contexts += 1
        return context

    async def open_window(self, context_id: str) -> None:
        """Opens an empty window in a context, which tells of it as of any new page."""
        await self._session.send(
            "Target.createTarget",
            {"url": "about:blank", "browserContextId": context_id, "newWindow": True},
        )

    async def close_tab(self, target_id: str) -> None:
        """Closes a tab by Chromium's own name for it."""
        await self._session.send("Target.closeTarget", {"targetId": target_id})

    def kill(self) -> None:
        """Ends the process group at once; a group that is not ours is left alone."""
        self._is_killed = True  # it may take a moment to be seen
        processes.kill_group(self.pid, self._born)

    async def close(self) -> None:
        """Closes it, by force where it does not answer; nothing of it stays behind."""
        limit_s = self._config.close_timeout_s
        try:
            if self.is_alive():
                await asyncio.wait_for(self._chromium.close(), limit_s)
        except (Error, TimeoutError) as error:
            logging.warning("Chromium %d did not close: %s", self.pid, error)
        self.kill()
        try:
            await asyncio.wait_for(self._driver.stop(), limit_s)
        except (Error, TimeoutError) as error:
            logging.warning("the driver of Chromium %d hung: %s", self.pid, error)
            processes.kill(self.driver_pid, self._driver_born)
        for _ in range(100):  # the killed need a moment to go
            if not processes.members(self.pid):
                break
            await asyncio.sleep(0.02)
        shutil.rmtree(self._home, ignore_errors=True)


class Pool:
    """One Chromium at a time for all environments of a worker.

    `config` is config.web; `hosts` maps each local site's fixed name to the loopback
    port that serves it. Use: `pool = Pool(config.web, {"miniwob.test": 8123})`, `await
    pool.start()`, `env.make_env(pool)` for each episode slot, `await pool.close()`.
    """

    def __init__(self, config, hosts: Mapping[str, int]):
        self.config = config
        self.hosts = dict(hosts)
        self._proxy = proxies.Proxy(hosts, config.navigate_timeout_s / 2)
        self._current: Browser | None = None
        self._starting: asyncio.Future[Browser] | None = None
        self._retired: list[Browser] = []
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Starts the first Chromium, so that a missing one is known at once."""
        await self.lease()

    async def lease(self) -> Browser:
        """The Chromium for one more episode: a new one if it died or is worn out."""
        async with self._lock:
            if self._current and not await self._is_fit(self._current):
                self._retired.append(self._current)
                self._current = None
                await self._sweep()
            if self._current is None:
                self._current = await self._launched()
            self._current.episodes += 1
            return self._current

    async def release(self, browser: Browser) -> None:
        """A context of it is closed; the last one takes a worn out Chromium along."""
        async with self._lock:
            browser.contexts -= 1
            await self._sweep()

    async def close(self) -> None:
        """Ends every Chromium of the pool, with whatever still runs in it."""
        async with self._lock:
            if self._starting:
                self._retired.append(await self._launched())
            if self._current:
                self._retired.append(self._current)
            for browser in self._retired:
                await browser.close()
            await self._proxy.close()
            self._current = None
            self._retired = []

    async def _launched(self) -> Browser:
        # An episode that is cancelled meanwhile leaves the start to the next one: a
        # Chromium of which nobody knows would never be closed.
        if self._starting is None:
            launch = Browser.launch(self.config, self._proxy)
            self._starting = asyncio.ensure_future(launch)
        try:
            return await asyncio.shield(self._starting)
        finally:
            if self._starting.done():
                self._starting = None

    async def _is_fit(self, browser: Browser) -> bool:
        if not browser.is_alive() or browser.episodes >= self.config.recycle_episodes:
            return False
        limit_mb = self.config.memory_limit_mb
        if not limit_mb:
            return True
        taken_mb = await asyncio.to_thread(browser.memory_mb)  # it asks each process
        return taken_mb <= limit_mb

    async def _sweep(self) -> None:
        # One that is worn out goes on serving the episodes that are in it.
        for browser in list(self._retired):
            if browser.contexts <= 0 or not browser.is_alive():
                self._retired.remove(browser)
                await browser.close()


def _heed_death(driver) -> None:
    """Takes note of a driver's death, which asyncio else logs as never retrieved.

    Every call on the driver raises it too, so nothing is lost.
    """
    transport = driver.stop.__self__._client._transport
    transport.on_error_future.add_done_callback(
        lambda future: future.cancelled() or future.exception()
    )


async def _stop(driver, limit_s: float) -> None:
    """Stops a driver; one that hangs is killed, and its Chromium ends with it."""
    try:
        await asyncio.wait_for(driver.stop(), limit_s)
    except (Error, TimeoutError) as error:
        logging.warning("a driver did not stop: %s", error)
        with contextlib.suppress(ProcessLookupError):  # it ended after all
            driver.stop.__self__._client._transport._proc.kill()


def _environment(home: str) -> dict[str, str | float | bool]:
    """All that Chromium is told of the world: no key of ours is in it."""
    known: dict[str, str | float | bool] = {
        "PATH": os.defpath,
        "HOME": home,
        "LANG": "C.UTF-8",
    }
    # It keeps a socket there, whose path has to be short.
    return {**known, "TMPDIR": home} if len(home) <= _SOCKET_HOME else known


@contextlib.asynccontextmanager
async def _temporary_folder(path: str) -> AsyncIterator[None]:
    """Has programs that are started meanwhile keep their temporary files in `path`.

    Playwright makes the profile's folder in its driver's TMPDIR and takes neither from
    its caller.
    """
    while not _moving.acquire(blocking=False):
        await asyncio.sleep(0.01)  # another loop or thread may hold it
    old = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = path
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        if old is not None:
            os.environ["TMPDIR"] = old
        _moving.release()


async def _pid_of(session) -> int:
    info = await session.send("SystemInfo.getProcessInfo")
    pid = next(p["id"] for p in info["processInfo"] if p["type"] == "browser")
    if os.getpgid(pid) != pid:
        raise Error(f"Chromium {pid} does not lead a process group of its own")
    return pid
