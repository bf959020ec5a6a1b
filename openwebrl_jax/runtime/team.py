"""The processes of one learner: all do the same, the first one is talked to."""

from collections.abc import Iterator
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.learn import hosts
from openwebrl_jax.runtime import cluster
from openwebrl_jax.runtime.colocated import Colocated
from openwebrl_jax.runtime.learner import Learner

_NOTICED_S = 30.0  # by then a death has come to light


class Team:
    """Owns the learner's actors, `config.cluster.learner_processes` of them."""

    def __init__(self, config: Any):
        count = config.cluster.learner_processes
        is_colocated = config.cluster.colocated and config.stage == "grpo"
        kind = Colocated if is_colocated else Learner
        self.actors = [cluster.actor(kind, config, "learner") for _ in range(count)]
        self.following: list[Any] = []  # what the others do; it ends with the stage

    def start(self, *arguments: Any) -> list[Any]:
        """Begins `Learner.start` in all; references to what they return."""
        count = len(self.actors)
        address: Any = ""
        if count > 1:
            places = ray.get([actor.place.remote() for actor in self.actors])
            pairs = zip(places, self.actors, strict=True)
            self.actors = [a for _, a in sorted(pairs, key=lambda pair: pair[0])]
            address = ray.get(self.first.address.remote())
        return [
            actor.start.remote(*arguments, hosts.Seat(index, count, address))
            for index, actor in enumerate(self.actors)
        ]

    @property
    def first(self) -> Any:
        """The actor that is talked to."""
        return self.actors[0]

    def call(self, name: str, *arguments: Any) -> Any:
        """What the first one returns of a method that all run."""
        return ray.get([getattr(a, name).remote(*arguments) for a in self.actors])[0]

    def stream(self, stage: str) -> Iterator[Any]:
        """References to what the first one tells (see `Learner.tell`), one at a time.

        It goes on when the last one was taken.
        """
        first, *others = self.actors
        self.following = [actor.follow.remote(stage) for actor in others]
        stepwise = {
            "num_returns": "streaming",
            "_generator_backpressure_num_objects": 1,
        }
        return first.tell.options(**stepwise).remote(stage)

    def results(self, stage: str) -> Iterator[Any]:
        """What the first one tells; an error of any of them raises at once."""
        stream = self.stream(stage)
        others = list(self.following)
        while True:
            (ref,), _ = ray.wait([stream, *others], num_returns=1)
            if ref is not stream:
                ray.get(ref)
                others.remove(ref)
                continue
            try:
                told = ray.get(next(stream))
            except StopIteration:
                return
            if told is not None:
                yield told

    def has_lost_one(self) -> bool:
        """True = one has died, and what the others raise is of that alone."""
        if not self.following:
            return False
        ended, _ = ray.wait(
            self.following, num_returns=len(self.following), timeout=_NOTICED_S
        )
        return any(_is_dead(ref) for ref in ended)

    def kill(self) -> None:
        """Ends all."""
        cluster.kill(*self.actors)


def _is_dead(ref: Any) -> bool:
    try:
        ray.get(ref)
    except ray.exceptions.RayError as error:
        return cluster.is_death(error)
    return False
