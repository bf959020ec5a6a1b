"""The loop of optimizer steps, the same for MM-GRPO and MT-SFT.

In: a state, and steps as (name, micro-batches, rate). Out: after each step its name,
the new state and its metrics as numbers.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax

from openwebrl_jax.core import types
from openwebrl_jax.learn import state as states
from openwebrl_jax.learn import update as updates

Step = tuple[Any, Iterable[types.Batch], float]


def run(
    state: states.TrainState, steps: Iterable[Step], update: updates.Update
) -> Iterator[tuple[Any, states.TrainState, dict[str, float]]]:
    """Takes the steps in order; the state that came before is gone after each.

    The next step's first batch is made while the device works on this one; only then
    are this one's metrics read. Raises FloatingPointError at the first that is not
    finite.
    """
    steps = iter(steps)
    coming = _begin(next(steps, None))
    while coming is not None:
        name, batches, rate = coming
        state, metrics = update.step(state, batches, rate)
        coming = _begin(next(steps, None))
        yield name, state, _read(name, metrics)


def _begin(step: Step | None) -> Step | None:
    """The step with its first batch already made."""
    if step is None:
        return None
    name, batches, rate = step
    batches = iter(batches)
    return name, itertools.chain(list(itertools.islice(batches, 1)), batches), rate


def _read(name: Any, metrics: dict[str, Any]) -> dict[str, float]:
    """Metrics as numbers."""
    numbers = {key: float(value) for key, value in jax.device_get(metrics).items()}
    broken = {key: value for key, value in numbers.items() if not math.isfinite(value)}
    if broken:
        raise FloatingPointError(
            f"step {name} is not finite: {broken}, of all {numbers}; lower "
            "config.optim.lr_peak or config.optim.clip_norm, and go on from the last "
            "checkpoint"
        )
    return numbers
