"""The curriculum and tasks that crash every browser, as the ledger's own events."""

import dataclasses
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, cooldown, events, ledger
from openwebrl_jax.tasks import curriculum
from tests.rollout import ledger_moves as moves

PAGES = ("hard", "even", "easy")
CHOOSY = {"floor": 0.1, "seed": 3, "starve_batches": 10_000}


def task_at(number: int) -> types.Task:
    name = f"miniwob/{PAGES[number % len(PAGES)]}/{number}"
    return types.Task(
        id=name, intent="", start_url="http://a.test/", max_turns=1, suite="miniwob"
    )


class Run:
    """A ledger and its journal; pages are solved as they are called."""

    def __init__(self, **changes):
        self.state = ledger.new_state(moves.limits(**(CHOOSY | changes)))
        self.journal = []
        self.count = 0

    def play(self, found):
        self.journal += found
        self.state = moves.play(self.state, found)

    def group(self, cause=Cause.DONE, now_s=0.0) -> str:
        """Plays the next group to its end; the page that it was on."""
        page = ""
        for _ in range(self.state.limits.group):
            found = ledger.offer(self.state, now_s, "w", task_at)
            self.play(found)
            lease = ledger.lease(self.state, found)
            assert lease is not None
            page = lease.task.id.split("/")[1]
            self.count += 1
            value = {"hard": 0.0, "easy": 1.0, "even": float(self.count % 2)}[page]
            record = moves.result(lease.slot, value if cause.is_scored else None, cause)
            at = lease.ordinal, lease.slot, lease.attempt
            self.play(ledger.finish(self.state, now_s, *at, record))
        return page

    def train(self):
        found = ledger.take(self.state, self.state.limits.groups)
        if found:
            self.play(found)
            number = len(self.state.trained) + self.state.before.number + 1
            ordinals = found[0]["ordinals"]
            self.play(ledger.trained(self.state, number, ordinals, number))
            self.play(ledger.published(self.state, number))
            self.play(ledger.acknowledged(self.state, number))
            self.play(ledger.checkpointed(self.state, number))


def test_what_is_at_times_solved_comes_more_often_and_nothing_starves():
    run, seen = Run(), Counter()
    for _ in range(600):
        seen[run.group()] += 1
        run.train()
    assert seen["even"] > 2 * max(seen["hard"], seen["easy"])
    # A floor of 0.1 against a chance of about 1: nine in a hundred at least.
    assert min(seen.values()) > 0.06 * 600
    assert books.counts(run.state)["other"]["passed_over"] > 0


@pytest.mark.parametrize("floor", [1.0, 0.1])
def test_what_is_kept_out_by_hand_is_never_opened(floor):
    blocklist = ("miniwob/hard/*", "miniwob/easy/?")
    run = Run(floor=floor, blocklist=blocklist)
    while run.count < 60:
        assert run.group() != "hard"
        run.train()
    opened = [each for each in run.journal if each["kind"] == "opened"]
    names = [each["task"]["id"] for each in opened]
    assert "miniwob/easy/2" not in names and "miniwob/easy/11" in names
    other = books.counts(run.state)["other"]
    hard = len(range(0, run.state.drawn, 3))
    assert other["blocked"] == hard + 3  # easy: 2, 5, 8
    assert other["passed_over"] == run.state.drawn - len(names)
    assert books.restore(books.snapshot(run.state)) == run.state


def test_a_task_at_rest_comes_before_one_that_is_kept_out():
    run = Run(retries=0, floor=1.0, blocklist=("b/*",), groups=50)
    tasks = [
        types.Task(id="b/1", intent="", start_url="http://b.test/", max_turns=1),
        types.Task(id="a/1", intent="", start_url="http://a.test/", max_turns=1),
    ]
    for _ in range(8):
        found = ledger.offer(run.state, 0.0, "w", lambda n: tasks[n % 2])
        run.play(found)
        lease = ledger.lease(run.state, found)
        assert lease is not None and lease.task.id == "a/1"
        run.state = moves.finish(run.state, lease, None, Cause.DNS)
    assert run.state.hosts["a.test"].until_s > 0


def test_a_blocklist_that_says_nothing_or_all_is_refused():
    cooldown.check_blocklist(("miniwob/hard/*",), 9, task_at)
    with pytest.raises(ValueError, match=r"'shop/\*' matches no task; .*hard/0"):
        cooldown.check_blocklist(("miniwob/hard/*", "shop/*"), 9, task_at)
    with pytest.raises(ValueError, match="leaves no task"):
        cooldown.check_blocklist(("*/hard/*", "*/e*"), 9, task_at)
    with pytest.raises(ValueError, match="matches no task"):
        cooldown.check_blocklist(("miniwob/hard/9",), 9, task_at)


def test_a_success_is_a_win_whatever_its_reward_weighs():
    """Outcome and process together: a success need not reach a reward of 1."""
    run = Run(floor=0.5)
    for value, outcome in ((0.95, 1.0), (0.2, 0.0)):
        found = ledger.offer(run.state, 0.0, "w", task_at)
        run.play(found)
        lease = ledger.lease(run.state, found)
        assert lease is not None
        parts = {"outcome": outcome, "process": 0.5}
        reward = types.Reward(value=value, parts=parts, is_valid=True)
        record = dataclasses.replace(moves.result(lease.slot, value), reward=reward)
        at = lease.ordinal, lease.slot, lease.attempt
        run.play(ledger.finish(run.state, 0.0, *at, record))
    (skill,) = run.state.fresh.values()
    assert (skill.wins, skill.losses) == (1, 1)


def test_without_a_curriculum_every_task_comes_in_its_turn():
    run = Run(floor=1.0)
    assert [run.group() for _ in range(2)] == ["hard", "even"]
    assert not run.state.fresh and not run.state.skills


@hypothesis.settings(max_examples=20)
@hypothesis.given(
    st.lists(
        st.sampled_from([Cause.DONE, Cause.DNS, Cause.BROWSER_CRASH, Cause.CANCELLED]),
        max_size=30,
    )
)
def test_void_slots_teach_nothing_and_a_replay_knows_the_same(causes):
    run = Run(retries=0, groups=1)
    for cause in causes:
        if cause is Cause.CANCELLED:
            state = run.state
            run.play(ledger.rollback(state, state.settled) + ledger.restart(state))
            continue
        before = run.state.fresh
        run.group(cause)
        if not cause.is_scored:
            assert run.state.fresh == before
        run.train()
        assert books.restore(books.snapshot(run.state)) == run.state
    limits = run.state.limits
    assert events.apply_all(ledger.new_state(limits), run.journal) == run.state
    told = sum(skill.wins + skill.losses for skill in run.state.skills.values())
    scored = books.counts(run.state)["slots"]["scored"]
    assert told <= scored + 1e-9


def test_it_learns_once_for_each_version_however_often_that_is_made():
    run = Run()
    while not run.state.skills:
        run.group()
        run.train()
    known = run.state.skills
    run.play(ledger.published(run.state, run.state.learnt))
    assert run.state.skills == known and run.state.fresh == {}
    name = next(iter(known))
    assert name == curriculum.name_of(task_at(PAGES.index(name.split("/")[1])))


def test_a_task_that_crashes_every_browser_rests_after_two_more_groups():
    """R32: <= 2 retries of its group, then it is left alone; others go on."""
    poison = types.Task(id="p", intent="", start_url="http://a.test/", max_turns=1)
    state = ledger.new_state(
        moves.limits(retries=2, groups=4, starve_batches=1000, lease_timeout_s=1e9)
    )
    tasks = [poison, *(moves.task_at(n) for n in range(3))]
    opened, played, now_s = Counter(), 0, 0.0
    while played < 200:
        now_s += 1.0
        found = ledger.offer(state, now_s, "w", lambda n: tasks[n % 4])
        opened.update(e["task"]["id"] for e in found if e["kind"] == "opened")
        state = moves.play(state, found)
        lease = ledger.lease(state, found)
        if lease is None:
            state = moves.train(state, played + 1, 4)
            continue
        played += 1
        if lease.task.id == "p":
            state = moves.finish(state, lease, None, Cause.PAGE_CRASH, now_s=now_s)
        else:
            state = moves.finish(state, lease, float(lease.slot), now_s=now_s)
    assert opened["p"] == 3
    # 3 groups x 2 slots x 3 attempts of 200; the rest are the others' in equal parts.
    assert opened.total() - 3 >= (200 - 18) // 2 - 1
    assert state.hosts["task p"].until_s > now_s
    rested_s = state.hosts["task p"].until_s
    (opening,) = cooldown.open_group(state, rested_s, lambda n: poison)
    assert opening["kind"] == "opened"


@pytest.mark.parametrize("cause", [Cause.DNS, Cause.CANCELLED, Cause.JUDGE_UNPARSEABLE])
def test_a_task_is_not_blamed_for_its_site_the_judge_or_a_stop(cause):
    run = Run(retries=0, groups=9)
    if cause is not Cause.CANCELLED:
        for _ in range(4):
            run.group(cause)
    assert not any(name.startswith("task ") for name in run.state.hosts)
