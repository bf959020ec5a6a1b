"""Rewards of one complete group -> advantages, and whether the group is trained.

A void slot's reward is None: it is absent from every statistic, and its advantage is
None. Statistics are taken over whole trajectories, before anything is packed.
"""

import math
from collections.abc import Sequence

import numpy as np

STD_EPSILON = 1e-6


def advantages(rewards: Sequence[float | None], mode: str) -> list[float | None]:
    """Advantages by position, see the functions below for the modes.

    Fewer than two valid rewards, or equal ones, give exactly 0. Example, mean_std:
    (1, 0, None) -> (0.707, -0.707, None).
    """
    if mode not in MODES:
        raise ValueError(
            f"config.algo.advantage={mode!r}; set it to one of {', '.join(MODES)}"
        )
    valid = np.array([reward for reward in rewards if reward is not None], np.float64)
    if valid.size < 2 or np.all(valid == valid[0]):
        values = iter(np.zeros(valid.size))
    else:
        values = iter(MODES[mode](valid))
    return [None if reward is None else float(next(values)) for reward in rewards]


def is_kept(rewards: Sequence[float | None], group_size: int) -> tuple[bool, str]:
    """Whether a group is trained, else the reason why not ("" = it is).

    It needs max(2, 60 % of the group) valid slots with rewards that differ.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < max(2, math.ceil(0.6 * group_size)):
        return False, "too_few_valid"
    if all(reward == valid[0] for reward in valid):
        return False, "zero_variance"
    return True, ""


def _mean_std(rewards: np.ndarray) -> np.ndarray:
    """(R - mean) / (std + 1e-6) with n - 1 in the std (OpenWebRL, section 4)."""
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + STD_EPSILON)


def _mean(rewards: np.ndarray) -> np.ndarray:
    """R - mean (Dr. GRPO)."""
    return rewards - rewards.mean()


def _rloo(rewards: np.ndarray) -> np.ndarray:
    """R - mean of the others."""
    return (rewards - rewards.mean()) * rewards.size / (rewards.size - 1)


MODES = {"mean_std": _mean_std, "mean": _mean, "rloo": _rloo}
