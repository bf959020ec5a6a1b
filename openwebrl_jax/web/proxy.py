"""The one way out of the browser: a SOCKS5 proxy on loopback that checks addresses.

Chromium resolves nothing itself (`RULES`) and hands over names: for documents and what
they load, for redirects and WebSockets alike. A name is resolved here, each of its
addresses is checked, and the connection is made to an address that was checked: a name
that means something else a moment later gains nothing. SOCKS lies below HTTP, so what
sites answer, and how TLS fails, reaches Chromium as it is.
"""

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from openwebrl_jax.web import guard

Sites = frozenset[str] | None  # that may be reached; None = nothing may
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str], Sequence[str]]  # name -> addresses; may block
Dial = Callable[[str, int], Awaitable[Streams]]

# Chromium's rules: this machine has one name, which no page can reach, for it too goes
# to the proxy; nothing else is resolved in the browser, not even ahead of time.
NAME = "guard.invalid"
RULES = f"MAP {NAME} 127.0.0.1,MAP * ~NOTFOUND"

# Chromium itself only says that there is no way to a host; why, in its own words.
NO_WAY = "ERR_SOCKS_CONNECTION_FAILED"
PRIVATE = "ERR_ADDRESS_IS_PRIVATE"
_UNSAFE_PORT = "ERR_UNSAFE_PORT"
_OFFLINE = "ERR_INTERNET_DISCONNECTED"
_NO_NAME = "ERR_NAME_NOT_RESOLVED"
_NO_RESOLVER = "ERR_DNS_TIMED_OUT"
_NO_ROUTE = "ERR_ADDRESS_UNREACHABLE"
_REFUSED = "ERR_CONNECTION_REFUSED"
_TIMED_OUT = "ERR_CONNECTION_TIMED_OUT"

_LOW_PORTS = (80, 443)  # of those below 1024, where mail and the like are served
_CHUNK = 65_536
_REMEMBERED = 1000  # hosts whose last failure is known
_RESOLVERS = 16  # threads; getaddrinfo blocks


class Refused(Exception):
    """No connection comes about; `code` says why."""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


def resolve(host: str) -> list[str]:
    """The addresses of a name, in the system's order of preference."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Proxy:
    """Owns the listening sockets and the connections through them, until `close`.

    `hosts` are the worker's local sites, name -> loopback port; `limit_s` bounds the
    look-up and the connecting, each. `resolve` and `dial` are exchanged by tests alone.
    """

    def __init__(
        self,
        hosts: Mapping[str, int],
        limit_s: float,
        resolve: Resolve = resolve,
        dial: Dial = asyncio.open_connection,
    ):
        self._hosts = dict(hosts)
        self._limit_s = limit_s
        self._resolve = resolve
        self._dial = dial
        self._doors: dict[Sites, asyncio.Server] = {}
        self._failures: dict[str, str] = {}  # host -> why, the oldest first
        self._tunnels: set[asyncio.Task] = set()
        self._threads = concurrent.futures.ThreadPoolExecutor(_RESOLVERS, "resolve")
        self._lock = asyncio.Lock()

    async def door(self, sites: Collection[str] | None) -> str:
        """Where a context connects that may reach these local sites and the open web.

        The others' sites are closed to it: each set of sites has a port of its own.
        None = nothing at all may be reached.
        """
        wanted = None if sites is None else frozenset(sites)
        async with self._lock:
            if wanted not in self._doors:
                self._doors[wanted] = await asyncio.start_server(
                    lambda reader, writer: self._enter(wanted, reader, writer),
                    "127.0.0.1",
                    0,
                    backlog=512,
                )
        port = self._doors[wanted].sockets[0].getsockname()[1]
        return f"socks5://{NAME}:{port}"

    def explain(self, code: str, url: str) -> str:
        """Why a request failed, by Chromium's code for it and the URL."""
        host = (urllib.parse.urlsplit(url).hostname or "").rstrip(".")
        return self._failures.get(host, code) if code == NO_WAY else code

    async def close(self) -> None:
        """Ends every connection and gives the ports back."""
        for server in self._doors.values():
            server.close()
        self._doors.clear()
        for task in self._tunnels:
            task.cancel()
        await asyncio.gather(*self._tunnels, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _enter(
        self,
        sites: Sites,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tunnels.add(task)
        task.add_done_callback(self._tunnels.discard)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            async with _closing(writer):
                await self._serve(sites, reader, writer)

    async def _serve(
        self,
        sites: Sites,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        async with asyncio.timeout(self._limit_s):
            host, port = await _read_request(reader, writer)
        try:
            there = await self._reach(sites, host, port)
        except Refused as refused:
            self._failures.pop(host, None)
            self._failures[host] = refused.code
            if len(self._failures) > _REMEMBERED:
                del self._failures[next(iter(self._failures))]
            await _answer(writer, 4)  # "host unreachable"
            return
        async with _closing(there[1]):
            await _answer(writer, 0)
            await _relay((reader, writer), there)

    async def _reach(self, sites: Sites, host: str, port: int) -> Streams:
        """A connection to the host, or Refused."""
        if sites is None:
            raise Refused(_OFFLINE)
        if host in sites:
            return await self._connect(["127.0.0.1"], self._hosts[host])
        if host in self._hosts or guard.is_private(host):
            raise Refused(PRIVATE)
        if port < 1024 and port not in _LOW_PORTS:
            raise Refused(_UNSAFE_PORT)
        addresses = await self._look_up(host)
        if not all(guard.is_public(ipaddress.ip_address(each)) for each in addresses):
            raise Refused(PRIVATE)
        return await self._connect(addresses, port)

    async def _look_up(self, host: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        looking = loop.run_in_executor(self._threads, self._resolve, host)
        try:
            found = await asyncio.wait_for(looking, self._limit_s)
        except TimeoutError:
            raise Refused(_NO_RESOLVER) from None
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise Refused(_NO_NAME)
        return found

    async def _connect(self, addresses: Sequence[str], port: int) -> Streams:
        """To the first address that answers; each has its share of the time."""
        code = _NO_ROUTE
        for address in addresses:
            try:
                limit_s = self._limit_s / len(addresses)
                return await asyncio.wait_for(self._dial(address, port), limit_s)
            except TimeoutError:
                code = _TIMED_OUT
            except ConnectionRefusedError:
                code = _REFUSED
            except OSError:
                pass  # no route to it
        raise Refused(code)


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[str, int]:
    """Greets a client by RFC 1928; gives the host and port that it wants."""
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(b"\x05\x00")  # no authentication
    _, command, _, kind = await reader.readexactly(4)
    if kind == 1:
        host = str(ipaddress.IPv4Address(await reader.readexactly(4)))
    elif kind == 4:
        host = str(ipaddress.IPv6Address(await reader.readexactly(16)))
    else:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii", "replace")
    port = int.from_bytes(await reader.readexactly(2))
    if command != 1:
        raise ConnectionError("only CONNECT is understood")
    return host.lower().strip("[]").rstrip("."), port


async def _answer(writer: asyncio.StreamWriter, status: int) -> None:
    writer.write(bytes((5, status, 0, 1)) + bytes(6))
    await writer.drain()


async def _relay(here: Streams, there: Streams) -> None:
    """Carries bytes both ways until one side ends."""
    copies = [
        asyncio.ensure_future(_copy(here[0], there[1])),
        asyncio.ensure_future(_copy(there[0], here[1])),
    ]
    try:
        await asyncio.wait(copies, return_when="FIRST_COMPLETED")
    finally:
        for copy in copies:
            copy.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter):
    try:
        yield
    finally:
        writer.close()  # what is written still goes out
