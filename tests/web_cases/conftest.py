"""Faults that users of web environments reported: one folder a case.

`page.html` of a case is served as its page; two names, `site.test` and `frame.test`,
lead to the same server, so that a frame of the other one is cross-origin.
"""

import pathlib

import pytest
import pytest_asyncio

from configs import common
from openwebrl_jax.web import browser, env
from tests.web import conftest as web
from tests.web import toys

WIDTH_PX, HEIGHT_PX = 400, 300
FRAME_HOST = "frame.test"
site = web.site  # the fixture


@pytest.fixture(scope="session")
def config():
    config = common.get_config().web
    with config.unlocked():
        config.width_px, config.height_px = WIDTH_PX, HEIGHT_PX
        config.navigate_timeout_s = 3.0
        config.action_timeout_s = 3.0
        config.capture_timeout_s = 2.0
        config.settle_cap_s = 1.5
    return config


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(config, site, chromium):
    hosts = {toys.HOST: site.server_port, FRAME_HOST: site.server_port}
    pool = browser.Pool(config, hosts)
    await pool.start()
    yield pool
    await pool.close()


class Surf:
    """An environment on one case's pages; coordinates are pixels here."""

    def __init__(self, pool, site, folder: pathlib.Path):
        self.env = env.make_env(pool)
        self.site = site
        self.folder = folder
        self.seen = None  # the newest observation

    async def open(self, body: str | None = None, path: str = "/page", **fields):
        """Shows `body`, or else the case's page.html, and gives its observation."""
        if body is None:
            body = (self.folder / "page.html").read_text()
        self.site.pages[path] = body
        fields = {"sites": (toys.HOST, FRAME_HOST), "max_turns": 30, **fields}
        _, self.seen = await self.env.reset(toys.make_task(path, **fields))
        return self.seen

    async def do(self, name: str, **arguments):
        """One call; returns (state, text) of its feedback."""
        self.step = await self.env.step((toys.call(name, **arguments),))
        self.seen = self.step.observation
        return toys.said(self.step)

    async def click(self, x: float, y: float, **arguments):
        return await self.do("click", point_2d=at(x, y), **arguments)

    async def js(self, expression: str):
        """What the top document says."""
        return await self.env.facts(f"() => ({expression})")


def at(x: float, y: float) -> list[float]:
    """Pixels of the viewport -> a point_2d."""
    return [1000 * x / WIDTH_PX, 1000 * y / HEIGHT_PX]


@pytest_asyncio.fixture(loop_scope="session")
async def surf(pool, site, request):
    made = Surf(pool, site, request.path.parent)
    yield made
    await made.env.close()
