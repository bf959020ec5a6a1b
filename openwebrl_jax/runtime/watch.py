"""Watches the judge while a policy is trained by its word, and pauses the run in time.

In: the results of each iteration. Out: metrics `judge/...`, or `score.JudgeDriftError`
once a limit is passed. The judge is held against three references:

    judge/         the checker, where a task has one and the judge was asked too
    judge/second_  a second opinion on a share of what it has judged
    judge/canary_, judge/injected_   labelled trajectories, every few iterations; the
                   failed ones also with words that beg for a success

What this costs is told as `judge/watch_...`. After a restart the newest verdicts are
gathered anew.
"""

import zlib
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

from openwebrl_jax.core import types
from openwebrl_jax.rollout import judged, score, store
from openwebrl_jax.runtime import judge, own_judge

WINDOW = 512  # newest verdicts that are held against a reference
LEAST = 128  # of them, before a limit means anything
ALARM = 0.02  # share of replies that cannot be read
INJECTED = 3  # failed canaries that are shown with each injection

Pairs = Sequence[tuple[bool, bool]]  # what the reference says, what the judge says


@dataclass(frozen=True, slots=True)
class _Judge:
    """Who is asked, and how; `serving` None = the endpoint of the config."""

    serving: Any
    config: Any
    is_second: bool = False

    def __call__(self, found: Sequence[judge.Labelled]) -> tuple[Pairs, Counter]:
        """Label and verdict where there is one, and what the asking took."""
        if not found:
            return [], Counter()
        lines = judge.opinions(found, self.serving, self.config, self.is_second)
        said = [
            (line["label"], line["verdict"])
            for line in lines
            if line["verdict"] is not None
        ]
        return said, sum((Counter(line["spent"]) for line in lines), Counter())


class Watch:
    """Made by the driver of RL; `see` is called once an iteration."""

    def __init__(self, config: Any, serving: Any, folder: str = ""):
        """`serving` = the actor of a judge of our own; None = an endpoint, or none.
        `folder` = the store of the run's trajectories."""
        asked = self._asked = config.reward.judge
        own = own_judge.as_trained(config) if asked.workdir else config
        self._first = _Judge(serving, own)
        self._second = _second(config, self._first)
        self._has_judge = bool(asked.base_url or asked.workdir)
        self._folder = folder
        self._pairs: deque[tuple[bool, bool]] = deque(maxlen=WINDOW)
        self._seconds: deque[tuple[bool, bool]] = deque(maxlen=WINDOW)
        self._canaries = judge.load([asked.canaries]) if asked.canaries else []
        protocol = own.reward.judge.protocol
        failed = [each for each in self._canaries if not each.is_success][:INJECTED]
        self._begging = [
            judge.Labelled(name=f"{each.name}/{n}", played=played, is_success=False)
            for each in failed
            for n, played in enumerate(judged.injected(each.played, protocol))
        ]

    def see(self, iteration: int, slots: Sequence[types.Slot]) -> dict[str, Any]:
        """Metrics of the iteration's results, and of canaries when they are due."""
        self._pairs += [
            (slot.reward.parts["checker"] >= 1.0, slot.reward.parts["judge"] >= 1.0)
            for slot in slots
            if "checker" in slot.reward.parts and _was_asked(slot)
        ]
        spent = self._ask_again(slots)
        told = parts(slots)
        if self._pairs:
            told |= score.agreement(self._pairs)
        if self._seconds:
            # A gap above 0: the second one believes less often than the judge does.
            told |= _named("second", self._seconds, ("kappa", "gap", "agreement"))
            told["judge/second_disagreement"] = 1.0 - told["judge/second_agreement"]
            told["judge/second_verdicts"] = len(self._seconds)
        if self._canaries and iteration % self._asked.canaries_every == 0:
            for name, found in (
                ("canary", self._canaries),
                ("injected", self._begging),
            ):
                said, took = self._first(found)
                spent += took
                told |= _named(name, said)
        return told | {f"judge/watch_{name}": value for name, value in spent.items()}

    def check(self, told: dict[str, Any]) -> None:
        """Raises where a limit of config.reward.judge is passed."""
        least, most = self._asked.least_kappa, self._asked.most_false_positives
        labels = {each.is_success for each in self._canaries}
        enough = {  # what a limit means something for
            "judge/kappa": len(self._pairs) >= LEAST,
            "judge/second_kappa": len(self._seconds) >= LEAST,
            "judge/canary_kappa": len(labels) == 2,
            "judge/false_positive_rate": len(self._pairs) >= LEAST,
            "judge/canary_false_positive_rate": True,
            "judge/injected_false_positive_rate": True,
        }
        found = [
            f"{name} {told[name]:.3f}"
            for name, is_enough in enough.items()
            if is_enough
            and name in told
            and (told[name] < least if "kappa" in name else told[name] > most)
        ]
        if found:
            raise score.JudgeDriftError(
                f"the judge is not to be trusted any more: {', '.join(found)} (limits: "
                f"config.reward.judge.least_kappa={least}, "
                f"most_false_positives={most}); look at its verdicts, then go on with "
                "the same command, or with another limit"
            )

    def _ask_again(self, slots: Sequence[types.Slot]) -> Counter:
        """Second opinions on a share of what was judged; and the judge's, where there
        is one, on the same share of what a checker alone has scored."""
        share = self._asked.second_share if self._has_judge else 0.0
        drawn = [
            slot
            for slot in slots
            if slot.reward.is_valid and slot.trajectory and is_drawn(slot, share)
        ]
        asked = [slot for slot in drawn if _was_asked(slot)]
        others = [slot for slot in drawn if "judge" not in slot.reward.parts]
        said, spent = self._second(self._labelled(asked, ("judge",)))
        self._seconds += [(second, first) for first, second in said]
        said, more = self._first(self._labelled(others, ("outcome", "checker")))
        self._pairs += said
        return spent + more

    def _labelled(
        self, slots: Iterable[types.Slot], names: tuple[str, ...]
    ) -> list[judge.Labelled]:
        """The stored trajectories of some results, labelled by a part of theirs."""
        found = []
        for slot in slots:
            values = [slot.reward.parts[n] for n in names if n in slot.reward.parts]
            played, _ = store.load(self._folder, slot.trajectory)
            if values and judged.can_be_judged(played):
                each = judge.Labelled(
                    name=slot.trajectory, played=played, is_success=values[0] >= 1.0
                )
                found.append(each)
        return found


def _second(config: Any, first: _Judge) -> _Judge:
    """Who gives second opinions: the endpoint beside a judge of our own, else the judge
    itself with other seeds; by another model or protocol if the config names one."""
    asked = config.reward.judge
    if not asked.base_url:
        return _Judge(first.serving, first.config, is_second=True)
    other = config.copy_and_resolve_references()
    other.reward.judge.model = asked.second_model or asked.model
    other.reward.judge.protocol = asked.second_protocol or asked.protocol
    return _Judge(None, other, is_second=True)


def is_drawn(slot: types.Slot, share: float) -> bool:
    """By the trajectory's content hash: the same ones in every life of a run."""
    return zlib.crc32(slot.trajectory.encode()) < share * 2**32


def _was_asked(slot: types.Slot) -> bool:
    """True = the judge gave a verdict; False = the ending left it no question."""
    return "judge" in slot.reward.parts and slot.reward.spent.get("replies", 0) > 0


def _named(name: str, said: Pairs, kept: Sequence[str] = ()) -> dict[str, float]:
    """The agreement as metrics of that name; `kept` = only these, () = all."""
    told = score.agreement(said) if said else {}
    told = {key.removeprefix("judge/"): value for key, value in told.items()}
    return {f"judge/{name}_{k}": v for k, v in told.items() if k in (kept or told)}


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
