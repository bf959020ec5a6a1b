"""A site is blamed only while another one can be opened."""

import pytest

from configs import common
from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import canary, episode
from openwebrl_jax.tasks import sites
from openwebrl_jax.web import browser
from openwebrl_jax.web import env as envs

DEAD = types.Task(id="t", intent="", start_url="http://dead.example/", max_turns=1)
NOWHERE = "http://canary.example/"


@pytest.fixture
async def play(chromium, monkeypatch):
    """`await play(task, canary_url)` plays one episode."""
    config = common.get_config()
    config.web.chromium, config.web.width_px, config.web.height_px = chromium, 160, 224
    served = sites.serve([sites.MINIWOB])
    pool = browser.Pool(config.web, served.ports)
    env = envs.make_env(pool)
    alive = {"alive.example": ["93.184.216.34"]}  # stands for the open web
    monkeypatch.setattr(pool._proxy, "_resolve", lambda host: alive.get(host, []))

    async def dial(address, port):
        return await browser.asyncio.open_connection(
            "127.0.0.1", served.ports[sites.MINIWOB]
        )

    monkeypatch.setattr(pool._proxy, "_dial", dial)

    async def play(task, canary_url):
        config.rollout.canary_url = canary_url
        trajectory = await episode.run_episode(
            task,
            env=env,
            sampler=Silent(),
            config=config,
            key=(0, 0, 0),
            episode_id="e",
        )
        return await canary.confirm(trajectory, env, config.rollout)

    yield play
    await env.close()
    await pool.close()
    served.close()


class Silent:
    """No episode here comes as far as to ask the policy."""

    async def release(self, episode_id):
        pass


@pytest.mark.browser
async def test_who_is_to_blame(play):
    alive = "http://alive.example/miniwob/click-test.html"
    assert (await play(DEAD, alive)).cause is Cause.DNS
    assert (await play(DEAD, "")).cause is Cause.DNS
    ended = await play(DEAD, NOWHERE)
    assert ended.cause is Cause.NETWORK_DOWN
    assert "dead.example" in ended.detail and NOWHERE in ended.detail
    local = types.Task(
        id="t",
        intent="",
        start_url=f"http://{sites.MINIWOB}/nothing.html",
        max_turns=1,
        sites=(sites.MINIWOB,),
    )
    assert (await play(local, NOWHERE)).cause is Cause.HTTP_ERROR
