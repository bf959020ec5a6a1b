"""What is recorded of a site is served again without it."""

import threading
import zipfile

import pytest
import pytest_asyncio

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.web import env, proxy, tape
from tests.web.conftest import Site
from tests.web.toys import BLOCK, CLICK, HOST, call, make_task

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

RED = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'>{}</svg>"
RED = RED.format("<rect width='40' height='40' fill='red'/>")
PAGE = f"""<title>One</title><img src=/red style="position:absolute;top:60px">
  <img src=http://gone.invalid/x><p id=text style="margin-top:120px">no</p>
  <button style="{BLOCK}" onclick="fetch('/data').then(r => r.text()).then(
    said => text.textContent = said)">Ask</button>"""
PAGES = {
    "/page": (302, {"Location": "/one"}, ""),
    "/one": PAGE,
    "/red": (200, {"Content-Type": "image/svg+xml"}, RED),
    "/data": "an answer",
    "/two": "<title>Two</title><body style='background:green'>",
}
CALLS = (CLICK, call("goto_url", url=f"http://{HOST}/two"), call("go_back"))
CALLS += (call("goto_url", url=f"http://{HOST}/missing"),)


@pytest.fixture
def live(pool, monkeypatch):
    """A site that can be stopped."""
    server = Site()
    server.pages = dict(PAGES)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    monkeypatch.setitem(pool._proxy._hosts, HOST, server.server_port)

    def stop():
        server.shutdown()
        server.server_close()

    server.stop = stop
    yield server
    if serving.is_alive():
        stop()


@pytest_asyncio.fixture(loop_scope="session")
async def play(pool, config, tmp_path):
    """`await play(mode, *calls)` plays one episode; gives the steps and the folder."""
    with config.unlocked():
        config.tape_folder = str(tmp_path)

    async def run(mode, *calls, path="/page", **fields):
        with config.unlocked():
            config.tape = mode
        made = env.make_env(pool)
        try:
            _, seen = await made.reset(make_task(path, **fields))
            return seen, [await made.step((each,)) for each in calls]
        finally:
            await made.close()

    run.folder = tmp_path
    yield run
    with config.unlocked():
        config.tape = config.tape_folder = ""


def told(episode):
    seen, steps = episode
    shots = [seen.screenshot, *(step.observation.screenshot for step in steps)]
    return shots, [step.feedback for step in steps]


async def test_a_replay_is_what_was_recorded_without_the_site(play, live):
    recorded = await play("record", *CALLS)
    assert [step.facts for step in recorded[1]] == [{}] * len(CALLS)
    hits = sum(live.hits.values())
    assert hits >= 6
    live.stop()
    replayed = await play("replay", *CALLS)
    assert told(replayed) == told(recorded)
    unmatched = [step.facts["tape_unmatched"] for step in replayed[1]]
    assert unmatched[0] == unmatched[-1] - 1 == 1  # gone.invalid, for each load of it
    assert sum(live.hits.values()) == hits
    (path,) = play.folder.glob("*/*")
    assert zipfile.is_zipfile(path) and path.suffixes == [".zip"]


async def test_each_episode_is_a_recording_and_all_serve(play, live):
    task = {"setup": "() => ({})", "is_resettable": True}
    first = await play("record", CALLS[0], path="/one", **task)
    await play("record", CALLS[1], path="/one", **task)
    assert len(list(play.folder.glob("*/*.zip"))) == 2
    live.stop()
    replayed = await play("replay", *CALLS[:2], path="/one", **task)
    assert told((replayed[0], replayed[1][:1])) == told(first)
    assert replayed[1][1].observation.tabs[0].title == "Two"


async def test_what_is_not_on_tape_fails_and_is_counted(play, live, pool):
    page = PAGE.replace(
        "</p>", "</p><script>new WebSocket('ws://site.test/w')</script>"
    )
    live.pages["/one"] = page
    await play("record", CLICK)
    asked = dict(live.hits)
    away = call("goto_url", url=f"http://{HOST}/two")
    _, (step, later) = await play("replay", away, call("wait", seconds=1))
    assert step.feedback[0].state == "failed"
    assert "ERR_INTERNET_DISCONNECTED" in step.feedback[0].text
    # The image of nowhere and the socket, twice, for the page is opened again. What a
    # page asks for at its end may be counted a step late.
    assert later.facts == {"tape_unmatched": 5}
    assert live.hits == asked
    with pytest.raises(Failure, match="no recording") as caught:
        await play("replay", path="/never")
    assert caught.value.cause is Cause.REFUSED


async def test_nothing_goes_past_the_tape(pool, site):
    way = pool._proxy

    async def ask(sites):
        port = int((await way.door(sites)).rpartition(":")[2])
        reader, writer = await proxy.asyncio.open_connection("127.0.0.1", port)
        name = HOST.encode()
        writer.write(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name)
        writer.write((80).to_bytes(2))
        answer = await reader.readexactly(4)
        writer.close()
        return answer[3]

    assert await ask((HOST,)) == 0
    assert await ask(()) == await ask(None) == 4


async def test_a_killed_browser_loses_its_own_recording_alone(play, live, config, pool):
    await play("record", CLICK)
    (kept,) = play.folder.glob("*/*.zip")
    part = kept.with_name("1-killed.part.zip")
    part.write_bytes(kept.read_bytes()[:-100])
    made = tape.Tape(config, make_task("/page").start_url)
    made._part = part
    await made.keep()
    assert list(play.folder.glob("*/*")) == [kept]
    kept.with_name("2-killed.part.zip").write_bytes(b"")  # its worker died, too
    live.stop()
    assert (await play("replay", CLICK))[1][0].facts == {"tape_unmatched": 1}
