"""What WebArena's checks want to see of other pages, in a real Chromium."""

import dataclasses
import json

import pytest
import pytest_asyncio

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.rewards import outcome
from openwebrl_jax.rollout import afterwards
from openwebrl_jax.web import env as envs
from tests.rewards import stories
from tests.web import conftest as web
from tests.web import toys

config, site, pool = web.config, web.site, web.pool  # the fixtures

SHOP = f"http://{toys.HOST}"
LATE = """<script>setTimeout(() => document.body.innerHTML =
  '<b id=late>paid &amp; sent</b>', 50)</script><p>wait</p>"""


def target(url, locator, **wanted):
    return {"url": url, "locator": locator, "required_contents": wanted}


def check(*targets):
    rules = {"eval_types": ["program_html"], "program_html": list(targets)}
    return {"kind": "webarena", "eval": rules}


ORDERS = (
    target(f"{SHOP}/orders", "document.title", exact_match="Orders"),
    target("last", "document.querySelector('h1').innerText", exact_match="Cart"),
    target(f"{SHOP}/late", "", must_include=["paid & sent", "<html"]),
    target("last", "document.querySelector('#none').innerText", exact_match=""),
    target("last", "document.querySelector('#none')", exact_match="None"),
    target("last", "document.title", exact_match="opened")
    | {"prep_actions": ["document.title = 'opened'", "none()", "document.title = ''"]},
)


@pytest_asyncio.fixture(loop_scope="session")
async def place(pool, site):
    site.pages |= {
        "/cart": "<!DOCTYPE html><h1>Cart</h1>",
        "/orders": "<title>Orders</title>",
        "/late": LATE,
    }
    made = envs.make_env(pool)
    yield made
    await made.close()


async def played(place, *targets, cause=Cause.DONE):
    """An episode that has been ended on the cart's page."""
    task = toys.make_task("/cart", checks=(check(*targets),))
    await place.reset(task)
    step = await place.step((toys.call("done", response="ok"),))
    told = stories.story(cause=cause, answer=step.answer, final=step.observation)
    return dataclasses.replace(told, task=task)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_other_pages_are_seen_and_the_agents_own_is_left(place):
    trajectory = await afterwards.look(await played(place, *ORDERS), place)
    assert trajectory.facts["webarena:0"] == "Orders"
    assert trajectory.facts["webarena:2"].startswith("<html>")
    assert trajectory.facts["webarena:3"] == ""
    assert trajectory.facts["webarena:4"] is None
    assert trajectory.facts["webarena:5"] == "opened"
    assert await outcome.check(trajectory.task, trajectory) == 1.0
    assert await place.facts("() => location.pathname") == "/cart"
    (seen,) = (await place.step(())).observation.tabs
    assert seen.url == f"{SHOP}/cart"


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_the_end_script_is_asked_when_the_agent_ends(place):
    """Also when it does not find the page's own end."""
    checks = ({"kind": "fact", "name": "paid", "equals": "milk"},)
    for script, value in (
        ("() => ({is_done: false, facts: {paid: 'milk'}})", 1.0),
        ("() => null", 0.0),
        ("() => none.of.it", 0.0),  # the agent has gone where it cannot run
    ):
        task = toys.make_task("/cart", checks=checks, end_script=script)
        await place.reset(task)
        step = await place.step((toys.call("done", response="ok"),))
        told = stories.story(answer=step.answer, final=step.observation)
        told = dataclasses.replace(told, task=task, facts=dict(step.facts))
        told = await afterwards.look(told, place)
        assert await outcome.check(task, told) == value and told.cause is Cause.DONE


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_what_was_asked_of_the_network_is_on_record(place, site):
    """For the checks of webarena-verified; sent by a form, and by a script whose page
    goes elsewhere before anybody could read the answer."""
    headers = {"Content-Type": "application/json"}
    site.pages["/api"] = (302, headers | {"Location": "/api2"}, "{}")
    site.pages["/api2"] = (200, headers, '{"n": 1}')
    site.pages["/cart"] = (
        "<script>fetch('/api')</script>"
        "<form method=post action=/orders><input name=milk value=2>"
        "<button style='width:90vw;height:90vh'>buy</button></form>"
    )
    check = {"kind": "webarena", "mode": "verified", "task_id": 44}
    await place.reset(toys.make_task("/cart", checks=(check,)))
    step = await place.step((toys.call("click", point_2d=[400, 400]),))
    assert "har" not in step.facts  # only at the end
    step = await place.step((toys.call("done", response="ok"),))
    first, *_, last = [
        each
        for each in step.facts["har"]
        if each["request"]["url"] in (f"{SHOP}/cart", f"{SHOP}/orders")
    ]
    headers = {it["name"]: it["value"] for it in first["request"]["headers"]}
    assert first["request"]["method"] == "GET" and first["response"]["status"] == 200
    assert headers["accept"].startswith("text/html")
    assert last["request"]["method"] == "POST"
    assert last["request"]["postData"]["text"] == "milk=2"
    assert "x-www-form-urlencoded" in last["request"]["postData"]["mimeType"]
    told = {it["request"]["url"]: it["response"] for it in step.facts["har"]}
    assert told[f"{SHOP}/api"]["status"] == 302
    assert "text" not in told[f"{SHOP}/api"]["content"]
    assert told[f"{SHOP}/api2"]["content"]["text"] == '{"n": 1}'
    json.dumps(step.facts)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_that_cannot_be_opened_voids_the_episode(place):
    for url, cause in (
        ("http://other.test/", Cause.REFUSED),  # no site of the task's
        ("http://127.0.0.1/", Cause.REFUSED),
    ):
        wanted = target(url, "", must_include=["x"])
        trajectory = await afterwards.look(await played(place, wanted), place)
        assert trajectory.cause is cause and not trajectory.cause.is_scored
        assert url in trajectory.detail and not trajectory.facts


async def test_nothing_is_looked_at_when_it_cannot_matter():
    class Nobody:
        async def facts(self, script, url=""):
            raise Failure(Cause.BROWSER_CRASH, "asked")

    told = stories.story(checks=(check(*ORDERS),), cause=Cause.MAX_TURNS)
    assert await afterwards.look(told, Nobody()) is told
    told = dataclasses.replace(told, cause=Cause.DONE)
    given = {f"webarena:{n}": "by the end script" for n in range(len(ORDERS))}
    given = dataclasses.replace(told, facts=given)
    assert (await afterwards.look(given, Nobody())).facts == given.facts
    assert (await afterwards.look(told, Nobody())).cause is Cause.BROWSER_CRASH
