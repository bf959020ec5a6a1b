"""What happened between two iterations, as metrics.

In: what the ledger, serving and the workers counted. Out: numbers under the names that
runs are compared by.
"""

from collections import Counter, deque
from typing import Any

from openwebrl_jax.core import metrics, types
from openwebrl_jax.core.causes import Cause, Owner
from openwebrl_jax.rollout import score
from openwebrl_jax.runtime import cluster

_LENGTHS = 4000  # newest episodes whose numbers of turns are compared
# Sums over the sampler's steps, see policy.speaker; `evals.twin_fit` goes by them.
_STEPS = ("replies", "busy_s", "steps", "row_steps", "row_steps_sq", "row_s")
_WASTE = {
    Owner.SITE: "infra",
    Owner.INFRA: "infra",
    Owner.JUDGE: "judge",
    Owner.OPERATOR: "cancelled",
}


class News:
    """Asks, and remembers what was told before: a resumed run tells nothing twice."""

    def __init__(self, config: Any, queue: Any, crew: Any):
        self._queue, self._crew = cluster.Near(queue), crew
        asked = config.reward.judge
        self._usd_per_hour = config.cluster.usd_per_hour
        self._has_judge = bool(asked.base_url or asked.workdir)
        self._played: deque[int] = deque(maxlen=_LENGTHS)
        self._trained: deque[int] = deque(maxlen=_LENGTHS)
        self._before = Counter()
        self._difference(self._queue.before())
        # None = serving did not say.
        self._compiled: float | None = crew.serving_stats().get("compilations")
        self._clock = metrics.Stopwatch()
        self.slots: list[types.Slot] = []  # that came before the last call

    def read(self) -> dict[str, Any]:
        """Metrics of all that came since the last call, kept groups or not."""
        told = self._queue.news()
        self.slots = told.slots
        seconds = self._clock.lap()
        new = self._difference(told.counts)
        return {
            **_of_results(told.slots, seconds),
            **_of_use(new, seconds),
            **_of_draws(new),
            **_of_cost(told.slots, seconds, self._usd_per_hour),
            **self._of_lengths(told),
            **self._of_serving(seconds),
            **self._of_workers(told.slots),
            **{f"block_rate/{host}": rate for host, rate in told.blocked.items()},
            "host_rss/driver_mb": metrics.memory_mb(),
            "host_rss/ledger_mb": told.memory_mb,
        }

    def _difference(self, counts: dict[str, dict[str, int]]) -> Counter:
        """What was added to each count, as `room/name`."""
        groups, other = counts["groups"], counts["other"]
        now = Counter(
            {
                **{f"tasks/{name}": other[name] for name in ("passed_over", "blocked")},
                "tasks/opened": groups["opened"],
                **{f"void/{cause}": n for cause, n in counts["void"].items()},
                **{f"use/{name}": n for name, n in counts["use"].items()},
                "kept": sum(groups[x] for x in ("trained", "waiting", "taken")),
                "filtered": groups["filtered"],
            }
        )
        new = Counter({name: n - self._before[name] for name, n in now.items()})
        self._before = now
        return new

    def _of_lengths(self, told: Any) -> dict[str, Any]:
        """How far the lengths that are trained on are from those that were played."""
        self._played += [slot.turns for slot in told.slots if slot.reward.is_valid]
        self._trained += told.trained_turns
        return {"length_bias_ks": metrics.ks(self._played, self._trained)}

    def _of_serving(self, seconds: float) -> dict[str, Any]:
        stats = self._crew.serving_stats()
        if not stats:
            return {}
        before, self._compiled = self._compiled, stats["compilations"]
        whole_s = seconds * stats["replicas"]
        return {
            "sampler/idle_frac": max(0.0, 1 - metrics.share(stats["busy_s"], whole_s)),
            "sampler/tokens_per_s": metrics.share(stats["reply_tokens"], seconds),
            "recompiles": 0.0 if before is None else stats["compilations"] - before,
            **{f"sampler/{name}": stats[name] for name in _STEPS},
        }

    def _of_workers(self, slots: Any) -> dict[str, Any]:
        total = Counter()
        for stats in self._crew.stats():
            total.update(stats)
        busy_s, wait_s, leases = total["busy_s"], total["wait_s"], total["leases"]
        told = {
            "browser/busy_frac": [busy_s / (busy_s + wait_s)] if leases else [],
            "browser/lease_wait_s": [wait_s / leases] if leases else [],
            "browser/report_s": [total["report_s"] / leases] if leases else [],
        }
        if self._has_judge and leases:
            unread = [slot.reward.cause is Cause.JUDGE_UNPARSEABLE for slot in slots]
            told["judge/latency"] = [total["judge_s"] / leases]
            told["judge/parse_fail"] = [float(each) for each in unread]
        return told


def _of_results(slots: Any, seconds: float) -> dict[str, Any]:
    valid = [slot for slot in slots if slot.reward.is_valid]
    turns = sum(slot.turns for slot in slots)
    told = {
        "rollout/success": [score.is_success(slot.reward) for slot in valid],
        "rollout/reward": [slot.reward.value for slot in valid],
        "rollout/turns": [slot.turns for slot in valid],
        "rollout/episodes": len(slots),
        "rollout/void_frac": metrics.share(len(slots) - len(valid), len(slots)),
        "episodes_per_s": metrics.share(len(slots), seconds),
        "env_steps_per_s": metrics.share(turns, seconds),
    }
    causes = Counter(slot.reward.cause or slot.cause for slot in slots)
    formats = sum((Counter(slot.format) for slot in slots), Counter())
    return {
        **told,
        **{f"cause/{cause}": count for cause, count in causes.items()},
        **{f"format/{name}_turns": count for name, count in formats.items()},
    }


def _of_cost(slots: Any, seconds: float, usd_per_hour: float) -> dict[str, Any]:
    """What a success took of machines and judge; nothing where no price is set."""
    valid = [slot for slot in slots if slot.reward.is_valid]
    successes = sum(bool(score.is_success(slot.reward)) for slot in valid)
    if not usd_per_hour or not successes:
        return {}
    judged = sum(slot.reward.spent.get("usd", 0.0) for slot in slots)
    return {"usd_per_success": (usd_per_hour * seconds / 3600 + judged) / successes}


def _of_draws(new: Counter) -> dict[str, Any]:
    """Of the tasks whose turn it was: what was passed over, and of that by hand."""
    passed, blocked = new["tasks/passed_over"], new["tasks/blocked"]
    drawn = new["tasks/opened"] + passed
    return {
        "tasks/passed_over_frac": [passed / drawn] if drawn else [],
        "tasks/blocked_frac": [blocked / drawn] if drawn else [],
    }


def _of_use(new: Counter, seconds: float) -> dict[str, Any]:
    """What became of the episodes whose fate was settled: shares that sum to 1.

    Groups are never dropped for their age, so nothing is wasted as stale.
    """
    fates = Counter(
        {"useful": new["use/useful"], "filtered": new["use/unused"], "stale": 0}
        | dict.fromkeys(_WASTE.values(), 0)
    )
    for cause in Cause:
        if cause.owner in _WASTE:
            fates[_WASTE[cause.owner]] += new[f"void/{cause}"]
    whole, useful = fates.total(), fates.pop("useful")
    closed = new["kept"] + new["filtered"]  # 0 while groups are replayed from disk
    return {
        "rollout/mixed": [new["kept"] / closed] if closed else [],
        "effective_episodes_per_s": metrics.share(useful, seconds),
        "useful_frac": [useful / whole] if whole else [],
        **{f"waste/{n}": [c / whole] if whole else [] for n, c in fates.items()},
    }
