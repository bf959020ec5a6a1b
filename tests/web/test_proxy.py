"""The way out, with a real Chromium: no form of a private address is ever reached."""

import asyncio
import contextlib
import itertools
import socket
import time

import pytest
import pytest_asyncio

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task
from openwebrl_jax.web import guard, proxy
from tests.web.toys import BLOCK, CLICK, HOST, call, make_task, said

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PUBLIC = "93.184.216.34"


class Trap:
    """What listens on loopback and counts who comes, by TCP or UDP."""

    def __init__(self):
        self.hits = 0
        self._server = None
        self._also = None  # for IPv6, where there is any
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    async def start(self):
        self._server = await asyncio.start_server(self._count, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):
            self._also = await asyncio.start_server(self._count, "::1", self.port)
        self._socket.bind(("127.0.0.1", self.port))
        self._socket.setblocking(False)

    def has_datagrams(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool(self._socket.recv(2048))
        return False

    async def _count(self, reader, writer):
        self.hits += 1
        writer.close()

    def close(self):
        self._socket.close()
        for server in (self._server, self._also):
            if server:
                server.close()


class Web:
    """The open web: what names mean, and what was connected to."""

    def __init__(self, site, way):
        self._site = site
        self._way = way
        self.names = {"public.example": itertools.repeat([PUBLIC])}
        self.dialled = []

    def resolve(self, host):
        if host in self.names:
            return next(self.names[host])
        return proxy.resolve(host)

    async def dial(self, address, port):
        self.dialled.append((address, port))
        if address == PUBLIC:  # one server stands for all of the open web
            address, port = "127.0.0.1", self._site.server_port
        return await asyncio.open_connection(address, port)

    def why(self, host):
        return self._way.explain(proxy.NO_WAY, f"http://{host}:80/")


@pytest_asyncio.fixture(loop_scope="session")
async def web(pool, site, monkeypatch):
    made = Web(site, pool._proxy)
    monkeypatch.setattr(pool._proxy, "_resolve", made.resolve)
    monkeypatch.setattr(pool._proxy, "_dial", made.dial)
    monkeypatch.setattr(pool._proxy, "_failures", {})
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def trap():
    made = Trap()
    await made.start()
    yield made
    made.close()


def task_at(url, **fields) -> Task:
    return Task(id="t", intent="i", start_url=url, max_turns=3, **fields)


@pytest.mark.parametrize("where", ["127.0.0.1", "[::1]", "localhost", "10.0.0.8"])
async def test_a_redirect_to_a_private_address(surf, site, web, trap, where):
    site.pages["/away"] = (302, {"Location": f"http://{where}:{trap.port}/"}, "")
    site.pages["/start"] = "<title>Public</title>"
    await surf.env.reset(task_at("http://public.example/start"))
    step = await surf.env.step((call("goto_url", url="http://public.example/away"),))
    assert said(step)[0] == "failed" and proxy.PRIVATE in said(step)[1]
    assert step.cause is None and step.observation.tabs[0].title == "Public"
    with pytest.raises(Failure) as caught:
        await surf.env.reset(task_at("http://public.example/away"))
    assert caught.value.cause is Cause.REFUSED
    assert trap.hits == 0 and {address for address, _ in web.dialled} == {PUBLIC}


async def test_a_name_that_changes_its_meaning(surf, site, web, trap):
    later = itertools.repeat(["127.0.0.1"])
    web.names["rebind.example"] = itertools.chain([[PUBLIC]], later)
    url = f"http://rebind.example:{trap.port}/page"
    site.pages["/page"] = "<p>x</p>"
    await surf.env.reset(task_at(url))
    step = await surf.env.step((call("goto_url", url=url + "?again"),))
    assert said(step)[0] == "failed" and proxy.PRIVATE in said(step)[1]
    assert trap.hits == 0 and web.dialled == [(PUBLIC, trap.port)]


PRIVATE_FORMS = ["127.0.0.1", "inside.example", "mixed.example", "localhost"]
PRIVATE_FORMS += ["a.localhost", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "0"]
PRIVATE_FORMS += ["[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]"]
PRIVATE_FORMS += ["[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254"]
PRIVATE_FORMS += ["10.0.0.8", proxy.NAME, "other.test"]

LURES = """<title>0</title><body><script>
const hosts = HOSTS.map(h => h + ':PORT'), waits = [];
const over = (thing, ok, bad) => waits.push(
  new Promise(r => { thing[ok] = thing[bad] = r; }));
for (const host of hosts) {
  const url = 'http://' + host + '/';
  waits.push(fetch(url + 'fetch', {mode: 'no-cors'}).catch(() => 0));
}
for (const host of hosts.slice(0, 2)) {
  const url = 'http://' + host + '/';
  for (const kind of ['img', 'script', 'iframe', 'embed']) {
    const thing = document.createElement(kind);
    over(thing, 'onload', 'onerror');
    thing.src = url + kind;
    document.body.append(thing);
  }
  for (const rel of ['stylesheet', 'preconnect', 'dns-prefetch', 'prefetch']) {
    const link = document.createElement('link');
    link.rel = rel; link.href = url + rel;
    document.head.append(link);
  }
  over(new WebSocket('ws://' + host + '/ws'), 'onopen', 'onclose');
  over(new EventSource(url + 'events'), 'onopen', 'onerror');
  navigator.sendBeacon(url + 'beacon', 'x');
}
Promise.all(waits).then(() => document.title = waits.length);
</script>"""


@pytest.mark.parametrize("is_guarded", [True, False])
async def test_what_pages_load(surf, site, web, trap, monkeypatch, is_guarded):
    """The twin without its guard shows that the lures would be taken."""
    web.names["inside.example"] = itertools.repeat(["127.0.0.1"])
    web.names["mixed.example"] = itertools.repeat([PUBLIC, "127.0.0.1"])
    if not is_guarded:
        monkeypatch.setattr(guard, "is_private", lambda host: False)
        monkeypatch.setattr(guard, "is_public", lambda address: True)
    forms = PRIVATE_FORMS if is_guarded else PRIVATE_FORMS[:2]
    page = LURES.replace("HOSTS", repr(forms)).replace("PORT", str(trap.port))
    await surf(page, call("wait", seconds=0))
    counted, end = 0, time.monotonic() + 20
    while not counted and time.monotonic() < end:
        counted = await surf.env.facts("() => Number(document.title)")
    assert counted == len(forms) + 6 * 2
    if not is_guarded:
        assert trap.hits >= 2 * len(forms)
        return
    assert trap.hits == 0
    assert {address for address, _ in web.dialled} <= {"127.0.0.1"}  # of site.test
    for host in ("127.0.0.1", "[::1]", "inside.example", "mixed.example", "other.test"):
        assert web.why(host) == proxy.PRIVATE


async def test_webrtc_does_not_go_round(surf, trap):
    page = f"""<script>
      const peer = new RTCPeerConnection({{iceServers: [
        {{urls: 'stun:127.0.0.1:{trap.port}'}},
        {{urls: 'turn:127.0.0.1:{trap.port}?transport=tcp', username: 'a',
          credential: 'b'}}]}});
      peer.createDataChannel('x');
      peer.createOffer().then(offer => peer.setLocalDescription(offer));
      over = new Promise(r => peer.onicegatheringstatechange =
        () => peer.iceGatheringState == 'complete' && r(1));
      </script>"""
    await surf(page, call("wait", seconds=0))
    slow = "new Promise(r => setTimeout(() => r(0), 1500))"
    await surf.env.facts(f"() => Promise.race([over, {slow}])")
    assert trap.hits == 0 and not trap.has_datagrams()


@pytest.mark.parametrize(
    "url, code",
    [
        ("http://127.0.0.1/", proxy.PRIVATE),
        ("http://public.example/away", proxy.PRIVATE),
        ("http://nowhere.invalid/", "ERR_NAME_NOT_RESOLVED"),
    ],
)
async def test_a_link_that_leads_nowhere(surf, site, web, trap, url, code):
    site.pages["/away"] = (302, {"Location": f"http://[::1]:{trap.port}/"}, "")
    page = f"<title>T</title><a style='{BLOCK}' href='{url}'>go</a>"
    step = await surf(page, CLICK)
    state, text = said(step)
    assert state == "failed" and step.cause is None
    assert f"the address cannot be opened ({code}), the last page was opened" in text
    assert step.observation.tabs[0].title == "T" and trap.hits == 0


@pytest.mark.parametrize(
    "url, cause, code",
    [
        ("http://nowhere.example/", Cause.DNS, "ERR_NAME_NOT_RESOLVED"),
        ("https://nowhere.example/", Cause.DNS, "ERR_NAME_NOT_RESOLVED"),
        ("http://mute.example/", Cause.DNS, "ERR_DNS_TIMED_OUT"),
        ("http://closed.example/", Cause.REFUSED, "ERR_CONNECTION_REFUSED"),
        ("https://closed.example/", Cause.REFUSED, "ERR_CONNECTION_REFUSED"),
        ("http://slow.example/", Cause.SITE_TIMEOUT, "ERR_CONNECTION_TIMED_OUT"),
        ("http://inside.example/", Cause.REFUSED, proxy.PRIVATE),
        ("https://inside.example/", Cause.REFUSED, proxy.PRIVATE),
        ("http://public.example:81/", Cause.REFUSED, "ERR_UNSAFE_PORT"),
        ("https://public.example/", Cause.TLS, "ERR_SSL_PROTOCOL_ERROR"),
    ],
)
async def test_the_true_cause_comes_through(
    surf, web, pool, monkeypatch, url, cause, code
):
    def resolve(host):
        if host == "nowhere.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        if host == "mute.example":
            time.sleep(0.5)
        return ["10.0.0.8"] if host == "inside.example" else [PUBLIC]

    async def dial(address, port):
        if "closed" in url:
            raise ConnectionRefusedError
        if "slow" in url:
            await asyncio.sleep(9)
        return await Web.dial(web, address, port)

    monkeypatch.setattr(pool._proxy, "_resolve", resolve)
    monkeypatch.setattr(pool._proxy, "_dial", dial)
    monkeypatch.setattr(pool._proxy, "_limit_s", 0.2)
    with pytest.raises(Failure, match=r"http") as caught:
        await surf.env.reset(task_at(url))
    assert caught.value.cause is cause
    if cause is not Cause.TLS:  # that one Chromium itself sees
        assert web.why(url.split("/")[2].partition(":")[0]) == code


async def test_a_task_reaches_its_own_sites_alone(
    surf, site, web, trap, pool, monkeypatch
):
    for hosts in (pool.hosts, pool._proxy._hosts):
        monkeypatch.setitem(hosts, "trap.test", trap.port)
    site.pages["/page"] = "<img src='http://trap.test/'>"
    for number, is_own in enumerate((False, True, False)):
        before = trap.hits
        sites = (HOST, "trap.test") if is_own else (HOST,)
        fields = {"setup": "() => ({})", "is_resettable": True, "sites": sites}
        await surf.env.reset(make_task(f"/page?{number}", **fields))
        assert (trap.hits > before) is is_own


async def test_what_goes_through_arrives_whole(surf, site, web, pool):
    body = "".join(str(number) for number in range(400_000))
    site.pages["/big"] = body
    page = """<script>get = async () => {
        const all = await Promise.all([1, 2, 3, 4].map(
          n => fetch('/big?' + n).then(r => r.text())));
        return all.map(text => text.length);
      }</script>"""
    await surf(page, call("wait", seconds=0))
    assert await surf.env.facts("() => get()") == [len(body)] * 4
    await surf.env.close()
    for _ in range(100):
        if not pool._proxy._tunnels:
            break
        await asyncio.sleep(0.02)
    assert not pool._proxy._tunnels
