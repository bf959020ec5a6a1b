"""What RL by a judge's word brought, from the metrics that it told."""

import pytest

from openwebrl_jax.runtime import judge_demo


def test_a_format_error_is_a_failure_and_a_void_is_nothing():
    record = {"rollout/episodes": 12, "rollout/void_frac": 2 / 12, "reward/judge": 1.0}
    spoilt = record | {"cause/format_error": 8}
    rates = judge_demo.gain([spoilt, {}, record], "judge")
    assert rates["first"]["rate"] == pytest.approx(2 / 10)
    assert rates["last"]["rate"] == 1
    assert [rates[name]["n"] for name in ("first", "last")] == [10, 10]
