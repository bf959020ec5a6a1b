import collections

import pytest

from configs import common
from openwebrl_jax.agent import grammar
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import Task
from openwebrl_jax.rewards import combine
from openwebrl_jax.rollout import episode, oracle
from openwebrl_jax.tasks import miniwob, miniwob_oracles, sites
from openwebrl_jax.web import browser
from openwebrl_jax.web import env as envs


def step(name: str, *others: str) -> dict:
    call = {"name": "click", "arguments": {"point_2d": [40, 80]}}
    wrong = [{"thought": f"click {other}", "call": call} for other in others]
    return {"thought": f"click {name}", "call": call, "others": wrong}


class Pages:
    """An Env of which only the facts are asked: a list of steps each time."""

    def __init__(self, *plans):
        self.plans = list(plans)

    async def facts(self, script, url=""):
        return self.plans.pop(0)


def task(number: int = 0) -> Task:
    return Task(
        id=f"t/{number}",
        intent="",
        start_url="http://a.test/",
        max_turns=9,
        oracle={"script": "() => []"},
    )


async def thoughts(teacher, count: int) -> list[str]:
    replies = [await teacher.sample(None) for _ in range(count)]
    return [grammar.parse(reply.text).thought for reply in replies]


async def test_steps_are_said_one_by_one_and_the_page_is_asked_again():
    pages = Pages([step("A"), step("B")], [step("C")], [])
    teacher = oracle.make_oracle(pages, task(), 0.0, 0)
    assert await thoughts(teacher, 3) == ["click A", "click B", "click C"]
    given_up = grammar.parse((await teacher.sample(None)).text)
    assert [call.name for call in given_up.calls] == ["done"]


async def test_an_imperfect_teacher_names_one_wrong_target():
    pages = Pages([step("A"), step("B", "x"), step("C", "y")])
    teacher = oracle.make_oracle(pages, task(), 1.0, 0)
    assert await thoughts(teacher, 3) == ["click A", "click x", "click C"]


async def test_whether_it_errs_depends_on_seed_and_task_alone():
    async def wrong(seed: int, number: int) -> bool:
        pages = Pages([step("A", "x", "y")])
        teacher = oracle.make_oracle(pages, task(number), 0.6, seed)
        return await thoughts(teacher, 1) != ["click A"]

    made = [await wrong(0, n) for n in range(300)]
    assert made == [await wrong(0, n) for n in range(300)]
    assert made != [await wrong(1, n) for n in range(300)]
    assert 0.5 < sum(made) / len(made) < 0.7


def test_a_task_without_an_oracle_is_refused():
    bare = Task(id="b", intent="", start_url="http://a.test/", max_turns=1)
    with pytest.raises(ValueError, match="'b' brings no oracle"):
        oracle.make_oracle(Pages(), bare, 0.0, 0)


@pytest.fixture
async def play(chromium):
    """Plays oracle episodes: `await play(names, seeds, error_rate)`."""
    config = common.get_config()
    config.agent.prompt = "short"
    web = config.web
    web.width_px, web.height_px, web.chromium = 160, 224, chromium
    served = sites.serve([sites.MINIWOB])
    pool = browser.Pool(web, served.ports)
    env = envs.make_env(pool)
    reward = combine.make_reward(config.reward, None)

    async def play(names, seeds, error_rate=0.0):
        played = []
        for name in names:
            for seed in seeds:
                made = miniwob.make_task(name, seed, max_turns=8)
                trajectory = await episode.run_episode(
                    made,
                    env=env,
                    sampler=oracle.make_oracle(env, made, error_rate, 0),
                    config=config,
                    key=(0, 0, 0),
                    episode_id=made.id,
                )
                played.append((trajectory, await reward(trajectory)))
        return played

    yield play
    await env.close()
    await pool.close()
    served.close()


def check_solved(played) -> None:
    """Nearly all are solved by their pages' own word, and none tells its reward."""
    lost = collections.Counter(t.task.tags[0] for t, r in played if r.value != 1.0)
    assert sum(lost.values()) <= 0.03 * len(played), lost
    for trajectory, reward in played:
        assert reward.value == 0.0 or trajectory.cause is Cause.PAGE_DONE
        for turn in trajectory.turns:
            texts = [turn.segments[0].text, *(line.text for line in turn.feedback)]
            assert not any("reward" in text.lower() for text in texts)
            assert not any("START" in text for text in texts)


@pytest.mark.browser
async def test_every_oracle_solves_its_page_and_no_segment_tells_a_reward(play):
    played = await play(miniwob_oracles.SCRIPTS, [1, 10])
    check_solved(played)
    calls = [turn.calls[0] for trajectory, _ in played for turn in trajectory.turns]
    points = [call.arguments["point_2d"] for call in calls if call.name == "click"]
    # Each number is one token of a tiny model.
    assert {number % miniwob_oracles.GRID for point in points for number in point} == {
        0
    }


@pytest.mark.browser
async def test_a_wrong_target_is_a_lost_episode(play):
    for trajectory, reward in await play(["click-tab", "click-dialog-2"], [1, 2], 1.0):
        assert (trajectory.cause, reward.value) == (Cause.PAGE_DONE, 0.0)
        assert trajectory.facts == {"raw_reward": -1}
