"""A loopback site of small pages, and one real Chromium for all browser tests."""

import http.server
import threading
import time

import pytest
import pytest_asyncio

from configs import common
from openwebrl_jax.web import browser, env
from tests.web import toys


class Site(http.server.ThreadingHTTPServer):
    """Pages by path: a body, or (status, headers, body); `hits` counts requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.pages: dict[str, object] = {}
        self.hits: dict[str, int] = {}


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.hits[path] = self.server.hits.get(path, 0) + 1
        page = self.server.pages.get(path, (404, {}, "<p>not here</p>"))
        status, headers, body = page if isinstance(page, tuple) else (200, {}, page)
        time.sleep(float(headers.get("Sleep", 0)))
        data = body.encode()
        self.send_response(status)
        kind = {"Content-Type": "text/html; charset=utf-8"}
        for name, value in {**kind, **headers}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def config():
    config = common.get_config().web
    with config.unlocked():
        config.width_px, config.height_px = 160, 224
        config.navigate_timeout_s = 6.0
        config.action_timeout_s = 3.0
        config.capture_timeout_s = 3.0
        config.settle_cap_s = 1.0
    return config


@pytest.fixture(scope="session")
def site():
    server = Site()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def chromium(config):
    try:
        return browser.find_chromium(config.chromium)
    except ValueError as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(config, site, chromium):
    pool = browser.Pool(config, {toys.HOST: site.server_port, "other.test": 9})
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="session")
async def surf(pool, site):
    """`await surf(body, *calls)`: opens a page with that body and takes one step."""
    made = env.make_env(pool)

    async def run(body, *calls, path="/page", **fields):
        site.pages[path] = body
        task, seen = await made.reset(toys.make_task(path, **fields))
        run.task, run.seen = task, seen
        return await made.step(tuple(calls))

    run.env = made
    yield run
    await made.close()
