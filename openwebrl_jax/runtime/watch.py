"""Watches the judge while a policy is trained by its word, and pauses the run in time.

In: the results of each iteration. Out: metrics `judge/...`, or `score.JudgeDriftError`
once a limit is passed. Where a task has a checker too (a weight of 0 is enough), the
checker is the reference; canaries are labelled trajectories that the judge is asked
about every few iterations, the failed ones also with words that beg for a success.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from absl import logging

from openwebrl_jax.core import types
from openwebrl_jax.rollout import judged, score
from openwebrl_jax.runtime import judge

WINDOW = 512  # newest verdicts beside which there is a checker's
LEAST = 128  # of them, before a limit means anything
ALARM = 0.02  # share of replies that cannot be read
INJECTED = 3  # failed canaries that are shown with each injection


class Watch:
    """Made by the driver of RL; `see` is called once an iteration."""

    def __init__(self, config: Any, serving: Any):
        """`serving` = the actor of a judge of our own; None = an endpoint, or none."""
        self._config, self._serving = config, serving
        self._pairs: deque[tuple[bool, bool]] = deque(maxlen=WINDOW)
        asked = config.reward.judge
        self._canaries = judge.load([asked.canaries]) if asked.canaries else []
        failed = [each for each in self._canaries if not each.is_success][:INJECTED]
        self._begging = [
            judge.Labelled(name=f"{each.name}/{n}", played=played, is_success=False)
            for each in failed
            for n, played in enumerate(judged.injected(each.played))
        ]

    def see(self, iteration: int, slots: Sequence[types.Slot]) -> dict[str, Any]:
        """Metrics of the iteration's results, and of canaries when they are due."""
        told = parts(slots)
        both = [
            (slot.reward.parts["checker"] >= 1.0, slot.reward.parts["judge"] >= 1.0)
            for slot in slots
            if {"checker", "judge"} <= slot.reward.parts.keys()
        ]
        self._pairs.extend(both)
        if self._pairs:
            told |= score.agreement(self._pairs)
        every = self._config.reward.judge.canaries_every
        if self._canaries and iteration % every == 0:
            told |= self._ask_canaries()
        return told

    def check(self, told: dict[str, Any]) -> None:
        """Raises where a limit of config.reward.judge is passed."""
        asked, found = self._config.reward.judge, []
        if len(self._pairs) >= LEAST and told["judge/kappa"] < asked.least_kappa:
            found.append(f"kappa with the checkers {told['judge/kappa']:.3f}")
        limit = asked.most_false_positives
        for name in (
            "judge/false_positive_rate",
            "judge/canary_false_positive_rate",
            "judge/injected_false_positive_rate",
        ):
            is_told = name in told and (
                "canary" in name or "injected" in name or len(self._pairs) >= LEAST
            )
            if is_told and told[name] > limit:
                found.append(f"{name} {told[name]:.3f}")
        if found:
            raise score.JudgeDriftError(
                f"the judge is not to be trusted any more: {', '.join(found)} (limits: "
                f"config.reward.judge.least_kappa={asked.least_kappa}, "
                f"most_false_positives={limit}); look at its verdicts, then go on with "
                "the same command, or with another limit"
            )

    def _ask_canaries(self) -> dict[str, float]:
        told = {}
        sets = {"canary": self._canaries, "injected": self._begging}
        for name, found in sets.items():
            lines = judge.opinions(found, self._serving, self._config)
            said = [
                (line["label"], line["verdict"])
                for line in lines
                if line["verdict"] is not None
            ]
            if said:
                told |= {
                    key.replace("judge/", f"judge/{name}_"): value
                    for key, value in score.agreement(said).items()
                }
        return told


def parts(slots: Sequence[types.Slot]) -> dict[str, Any]:
    """Each part's values, and what judging took."""
    told: dict[str, Any] = {}
    for name in sorted({name for slot in slots for name in slot.reward.parts}):
        told[f"reward/{name}"] = [
            slot.reward.parts[name] for slot in slots if name in slot.reward.parts
        ]
    spent = sum((Counter(slot.reward.spent) for slot in slots), Counter())
    told |= {f"judge/{name}": value for name, value in spent.items()}
    if spent["replies"]:
        share = told["judge/unparseable_frac"] = spent["unparseable"] / spent["replies"]
        if share > ALARM:
            logging.warning("%.1f %% of the judge's replies say nothing", 100 * share)
    return told
