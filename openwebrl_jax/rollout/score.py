"""Success rates with intervals. A void episode is no failure: it leaves the rate.

In: outcomes by episode, True or False, None = void. Out: dicts of plain numbers.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause

Outcome = bool | None

_Z = 1.959963984540054  # two-sided 95 %
_RESAMPLES = 10_000


def is_success(reward: types.Reward) -> Outcome:
    """What an episode's reward says of its task; None = void.

    Its part `outcome`, or else `judge`, decides: penalties make no success a failure.
    """
    if not reward.is_valid:
        return None
    value = reward.parts.get("outcome", reward.parts.get("judge", reward.value))
    return value >= 1.0


def reference(played: types.Trajectory, reward: types.Reward) -> tuple[Outcome, str]:
    """What a judge is held against, and whose word it is: `checker` or `judge`.

    Where a checker spoke it decides, whatever the run was rewarded for; void = None.
    """
    checked = reward.parts.get("checker")
    if checked is None and played.task.checks:
        checked = reward.parts.get("outcome", None if reward.parts else reward.value)
    if checked is not None and reward.is_valid:
        return checked >= 1.0, "checker"
    outcome = is_success(reward)
    return outcome, "" if outcome is None else "judge"


class JudgeDriftError(RuntimeError):
    """The judge has come too far from its reference; the run can be taken up again."""


def agreement(pairs: Sequence[tuple[bool, bool]]) -> dict[str, float]:
    """Of a judge (second) with checkers (first), as metrics; Cohen's kappa.

    A gap that widens while training is a judge that is being won over. Where both say
    the same of all, agreement by chance is certain, and kappa is not told.
    """
    n = len(pairs)
    true, said = (sum(each) / n for each in zip(*pairs, strict=True))
    same = sum(first == second for first, second in pairs) / n
    chance = true * said + (1 - true) * (1 - said)
    failures = [second for first, second in pairs if not first]
    told = {
        "judge/agreement": same,
        "judge/gap": said - true,
    }
    if chance < 1:
        told["judge/kappa"] = (same - chance) / (1 - chance)
    if failures:
        told["judge/false_positive_rate"] = sum(failures) / len(failures)
    return told


def success(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """{rate, low, high, n, void}: the rate of the n valid ones, Wilson's 95 %.

    With nothing valid there is no rate: it is None, in an interval from 0 to 1.
    """
    told = list(outcomes)
    valid = [outcome for outcome in told if outcome is not None]
    low, high = wilson(sum(valid), len(valid))
    rate = sum(valid) / len(valid) if valid else None
    void = len(told) - len(valid)
    return {"rate": rate, "low": low, "high": high, "n": len(valid), "void": void}


def summarize(played: Iterable[tuple[types.Reward, Cause]]) -> dict[str, Any]:
    """`success` of some episodes and how often each cause ended one.

    Where the judging failed, its cause stands for the episode's own.
    """
    told = list(played)
    causes = Counter(str(reward.cause or cause) for reward, cause in told)
    rate = success(is_success(reward) for reward, _ in told)
    return {**rate, "causes": dict(causes.most_common())}


def format_counts(trajectory: types.Trajectory) -> dict[str, int]:
    """Turns that departed from the wire format, by how; `malformed` = not run.

    Example: two replies with a trailing comma, one of which was read leniently ->
    {"malformed": 1, "trailing_comma": 2}.
    """
    told = Counter(name for turn in trajectory.turns for name in turn.leniencies)
    told["malformed"] = sum(bool(turn.parse_error) for turn in trajectory.turns)
    return {str(name): count for name, count in sorted(told.items()) if count}


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's score interval at 95 %; (0, 1) when n is 0.

    Example: 8 of 10 -> (0.490, 0.943).
    """
    if n == 0:
        return 0.0, 1.0
    rate, spread = successes / n, _Z**2 / n
    middle = (rate + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    # Rounding must not push the rate itself out of its interval.
    return max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half))


def paired_gain(
    before: Sequence[Outcome], after: Sequence[Outcome], seed: int = 0
) -> dict[str, Any]:
    """{value, low, high, n}: mean of after - before over the same tasks.

    The interval is the 95 % percentile bootstrap over tasks; a task that is void on
    either side is left out of both. The value is None where nothing is left.
    """
    if len(before) != len(after):
        raise ValueError(
            f"{len(before)} outcomes before and {len(after)} after; a paired gain "
            "needs the same tasks in the same order"
        )
    pairs = [
        float(late) - float(early)
        for early, late in zip(before, after, strict=True)
        if early is not None and late is not None
    ]
    if not pairs:
        return {"value": None, "low": -1.0, "high": 1.0, "n": 0}
    # A resample of differences in {-1, 0, 1} is a multinomial draw of their shares.
    values, numbers = np.unique(pairs, return_counts=True)
    n = len(pairs)
    draws = np.random.default_rng(seed).multinomial(n, numbers / n, size=_RESAMPLES)
    low, high = np.percentile(draws @ values / n, (2.5, 97.5))
    value = sum(pairs) / n
    return {"value": value, "low": float(low), "high": float(high), "n": n}


def pass_at_k(outcomes: Mapping[str, Sequence[Outcome]], k: int) -> float:
    """The chance that one of k episodes of a task succeeds, meant over tasks.

    Unbiased from n >= k valid episodes of a task: 1 - C(n - c, k) / C(n, k), c of them
    successes. A task with fewer is left out; NaN = no task has so many.
    """
    if k < 1:
        raise ValueError(f"k={k}; pass@k needs at least one episode")
    chances = []
    for told in outcomes.values():
        valid = [outcome for outcome in told if outcome is not None]
        n, c = len(valid), sum(valid)
        if n >= k:
            chances.append(1.0 - math.comb(n - c, k) / math.comb(n, k))
    return sum(chances) / len(chances) if chances else math.nan
