"""Sites that fail are left alone, and come back."""

import hypothesis
import pytest
from hypothesis import strategies as st

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rollout import books, cooldown, events, ledger
from tests.rollout import ledger_moves as moves

HOUR = 3600.0
LIMITS = {"group": 2, "groups": 50, "retries": 0, "starve_batches": 100}


def task(url: str = "http://www.down.example/a", sites=()) -> types.Task:
    return types.Task(id=url, intent="", start_url=url, max_turns=1, sites=sites)


class Run:
    """A ledger whose tasks take turns on these sites, and a clock."""

    def __init__(self, *urls, sites=()):
        self.state = ledger.new_state(moves.limits(**LIMITS))
        self.tasks = [task(url, sites) for url in urls]
        self.now_s = 0.0

    def lease(self) -> ledger.Lease:
        found = ledger.offer(
            self.state, self.now_s, "w", lambda n: self.tasks[n % len(self.tasks)]
        )
        self.state = moves.play(self.state, found)
        lease = ledger.lease(self.state, found)
        assert lease is not None
        return lease

    def finish(self, lease, cause=Cause.DNS, value=None):
        self.state = moves.finish(self.state, lease, value, cause, now_s=self.now_s)

    def fail(self, *after_s, cause=Cause.DNS) -> list[str]:
        """One slot after the other fails; the sites that they were on."""
        hosts = []
        for seconds in after_s:
            self.now_s += seconds
            lease = self.lease()
            hosts.append(cooldown.site_of(lease.task))
            self.finish(lease, cause)
        return hosts

    def is_at_rest(self, host="down.example") -> bool:
        known = self.state.hosts.get(host)
        return known is not None and known.until_s > self.now_s

    def other(self) -> dict[str, int]:
        return books.counts(self.state)["other"]


URLS = ("http://www.down.example/a", "https://down.example/b", "http://up.example/")


def test_www_and_case_are_folded_and_local_sites_have_no_name():
    hosts = {cooldown.site_of(task(url)) for url in URLS[:2]}
    assert hosts == {"down.example"}
    assert cooldown.site_of(task("http://WWW.Down.Example.:80/")) == "down.example"
    assert cooldown.site_of(task("http://a.test/x", sites=("a.test",))) == ""
    assert cooldown.site_of(task("http://b.test/x", sites=("a.test",))) == "b.test"


def test_three_failures_within_an_hour_and_its_tasks_are_passed_over():
    run = Run(*URLS)
    assert run.fail(0, 60, 60) == ["down.example"] * 3
    assert run.is_at_rest() and run.other()["hosts_at_rest"] == 1
    run.finish(run.lease())  # a slot of a group that was open
    before = run.state.opened
    hosts = {cooldown.site_of(run.lease().task) for _ in range(6)}
    assert hosts == {"up.example"}
    assert run.state.opened == before + 3
    assert run.other()["passed_over"] == 4


def test_failures_far_apart_are_none():
    run = Run(URLS[0])
    run.fail(0, HOUR / 2, HOUR / 2, HOUR / 2, HOUR * 2)
    assert not run.is_at_rest()


@pytest.mark.parametrize("cause", Cause)
def test_who_is_blamed(cause):
    run = Run(URLS[0])
    for _ in range(3):
        run.finish(run.lease(), cause, 0.0 if cause.is_scored else None)
    assert run.is_at_rest() is (cause in cooldown.BLAMED)


def test_retries_of_one_slot_are_one_episode():
    run = Run(URLS[0])
    limits = moves.limits(**LIMITS | {"retries": 5})
    run.state = ledger.new_state(limits)
    leases = [run.lease() for _ in range(4)]
    for _ in range(4):
        run.finish(leases[0])
        leases[0] = run.lease()
    assert leases[0].attempt == 4 and not run.is_at_rest()
    run.finish(leases[1])
    assert not run.is_at_rest()
    run.finish(leases[2])
    assert run.is_at_rest()


def test_local_sites_are_never_left_alone():
    run = Run("http://suite.test/a", sites=("suite.test",))
    run.fail(0, 0, 0, 0)
    assert not run.state.hosts


def test_a_rest_ends_after_twelve_hours():
    run = Run(*URLS)
    run.fail(0, 0, 0, 0)
    run.now_s = 12 * HOUR - 1
    assert run.is_at_rest()
    run.now_s = 12 * HOUR
    hosts = [cooldown.site_of(run.lease().task) for _ in range(6)]
    assert set(hosts) == {"down.example", "up.example"}
    run.now_s += HOUR
    run.fail(0)
    assert not run.is_at_rest()


def test_a_page_that_was_shown_clears_what_failed_before_its_episode_began():
    run = Run(URLS[0])
    early = run.lease()
    run.fail(10, 10)
    run.finish(early, Cause.DONE, 1.0)  # it began before they failed
    assert len(run.state.hosts["down.example"].failures) == 2
    run.fail(1)
    assert run.is_at_rest()
    run.now_s += 1
    late = run.lease()
    run.finish(late, Cause.MAX_TURNS, 0.0)
    assert not run.state.hosts


def test_if_every_site_is_at_rest_the_run_goes_on_to_its_typed_stop():
    run = Run(*URLS[:2])
    run.state = ledger.new_state(
        moves.limits(**LIMITS | {"groups": 2, "starve_batches": 3})
    )
    run.fail(*[0] * 12)
    with pytest.raises(ledger.StarvationError):
        ledger.take(run.state, 2)
    assert run.other()["passed_over"] == 0


@hypothesis.given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # which of the leases that are out
            st.sampled_from([0, 1, 600, 4000, 50_000]),  # seconds later
            st.sampled_from([Cause.DNS, Cause.DONE, Cause.BROWSER_CRASH]),
        ),
        max_size=40,
    )
)
def test_what_is_known_of_sites_is_small_and_lives_on(moves_made):
    run, journal = Run(*URLS), []
    held = []
    for pick, seconds, cause in moves_made:
        run.now_s += seconds
        while len(held) < 4:
            held.append(run.lease())
        lease = held.pop(pick)
        record = moves.result(lease.slot, 0.0 if cause is Cause.DONE else None, cause)
        at = lease.ordinal, lease.slot, lease.attempt
        found = ledger.finish(run.state, run.now_s, *at, record)
        journal += found
        run.state = moves.play(run.state, found)
        assert books.restore(books.snapshot(run.state)) == run.state
        for host in run.state.hosts.values():
            assert host.failures or host.until_s
            recent = [at for at in host.failures.values() if at > run.now_s - HOUR]
            is_down = cause is Cause.DNS and len(recent) >= events.FAILURES
            assert not is_down or host.until_s > run.now_s
        hosts = {name for name in run.state.hosts if not name.startswith("task ")}
        assert hosts <= {"down.example", "up.example"}
