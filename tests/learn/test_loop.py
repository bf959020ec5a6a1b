from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from openwebrl_jax.learn import loop


class Tape:
    """An update that notes the order of things."""

    def __init__(self, losses):
        self.losses, self.notes = list(losses), []

    def batches(self, name, count):
        for n in range(count):
            self.notes.append(f"make {name}.{n}")
            yield SimpleNamespace(name=f"{name}.{n}")

    def step(self, state, batches, rate):
        assert rate == 1.0
        for batch in batches:
            self.notes.append(f"run {batch.name}")
        loss = jnp.asarray(self.losses[state])
        return state + 1, {"learner/loss": loss, "learner/tokens": 3.0}


def test_steps_in_order_with_the_next_batch_made_early():
    tape = Tape([0.5, 0.25])
    steps = ((name, tape.batches(name, 2), 1.0) for name in "ab")
    seen = []
    for name, state, metrics in loop.run(0, steps, tape):
        tape.notes.append(f"told {name}")
        seen.append((name, state, metrics))
    assert seen == [
        ("a", 1, {"learner/loss": 0.5, "learner/tokens": 3.0}),
        ("b", 2, {"learner/loss": 0.25, "learner/tokens": 3.0}),
    ]
    assert tape.notes == [
        *("make a.0", "run a.0", "make a.1", "run a.1"),
        *("make b.0", "told a"),
        *("run b.0", "make b.1", "run b.1", "told b"),
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_first_number_that_is_not_finite_ends_it(bad):
    tape = Tape([0.5, bad, 0.5])
    steps = ((name, tape.batches(name, 1), 1.0) for name in "abc")
    told = []
    with pytest.raises(FloatingPointError, match="step b .*learner/loss"):
        for name, _, _ in loop.run(0, steps, tape):
            told.append(name)
    assert told == ["a"]


def test_no_steps_and_empty_steps():
    assert list(loop.run(0, [], Tape([]))) == []
    ((name, state, _),) = loop.run(0, [("a", iter(()), 1.0)], Tape([0.0]))
    assert (name, state) == ("a", 1)
