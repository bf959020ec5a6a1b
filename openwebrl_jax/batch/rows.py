"""Finished groups -> training rows, one a turn, and their weights.

    rows(groups, trajectories, rule)        every turn of every valid slot
    minibatches(rows, 256, ...)             which rows make one optimizer step
    weigh(minibatch, "turn_mean", ...)      loss_weight so that the loss is a plain sum

The row of turn t with K screenshots: the system, turns 0..t-K as they are remembered,
turns t-K+1..t as they were seen; the loss stands on the last reply alone. Nothing is
tokenised here: a Turn brings the ids that were sampled, and a turn without them, or
without their log-probs, is refused.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from openwebrl_jax.core import types

PROXIMAL_CAP = 2.0
_LOG_CAP = 20.0


def rows(
    groups: Sequence[types.Group],
    trajectories: Mapping[str, types.Trajectory],
    rule: types.SamplingRule,
) -> list[types.Row]:
    """One row for each turn of each slot that has an advantage; weights are 0 or 1.

    Args:
      trajectories: by content hash, at least those of the valid slots.
      rule: the learner's; a trajectory that was sampled by another one is refused.
    """
    made = []
    for group in groups:
        for slot, advantage in zip(group.slots, group.advantages, strict=True):
            if advantage is None:
                continue
            trajectory = trajectories[slot.trajectory]
            _check_sampled(trajectory, slot.trajectory, rule)
            for row in turn_rows(trajectory, slot.trajectory):
                made.append(dataclasses.replace(row, advantage=advantage))
    return made


def turn_rows(trajectory: types.Trajectory, name: str) -> list[types.Row]:
    """The rows of a trajectory whose turns have ids; `source` is `name:turn`.

    They carry weight 1 on the reply, the log-probs if there are any, advantage 0.
    """
    turns, newest = trajectory.turns, trajectory.context_screenshots
    made, trunk = [], list(trajectory.system_ids)
    for t, turn in enumerate(turns):
        if t >= newest:
            trunk += turns[t - newest].remembered_ids
        branch = turns[max(0, t - newest + 1) : t + 1]
        ids = list(trunk)
        for earlier in branch[:-1]:
            ids += (*earlier.seen_ids, *earlier.response_ids, *earlier.closing_ids)
        ids += (*turn.seen_ids, *turn.response_ids)
        if not (turn.seen_ids and turn.response_ids and trajectory.system_ids):
            raise ValueError(
                f"turn {t} of {name} has no ids: no sampler of ours spoke it; use "
                "batch.demos for such trajectories"
            )
        made.append(
            types.Row(
                ids=np.array(ids, np.int32),
                loss_weight=_at_end(len(ids), np.ones(len(turn.response_ids))),
                old_logp=_at_end(len(ids), np.array(turn.logprobs)),
                advantage=0.0,
                images=tuple(
                    seen.observation.screenshot
                    for seen in branch
                    for segment in seen.segments
                    if segment.image is not None
                ),
                source=f"{name}:{t}",
            )
        )
    return made


def decouple(row: types.Row, proximal_N: np.ndarray) -> types.Row:
    """The decoupled form for stale rows (AReaL; arXiv 2606.05597), before `weigh`.

    The clip goes around log-probs that were recomputed at the start of the iteration,
    and the detached weight exp(proximal - behaviour), capped, multiplies the loss.

    Args:
      proximal_N: of the row's loss positions in order; what stands behind is unused.
    """
    live = np.flatnonzero(row.loss_weight)
    proximal = proximal_N[: len(live)]
    gap = np.clip(proximal - row.old_logp[live], -_LOG_CAP, _LOG_CAP)
    old_logp, loss_weight = row.old_logp.copy(), row.loss_weight.copy()
    old_logp[live] = proximal
    loss_weight[live] *= np.minimum(np.exp(gap), PROXIMAL_CAP)
    return dataclasses.replace(row, old_logp=old_logp, loss_weight=loss_weight)


def turn_counts(rows: Sequence[types.Row]) -> Mapping[str, int]:
    """Rows of each trajectory; taken over a whole iteration these are its turns."""
    return collections.Counter(map(trajectory_of, rows))


def trajectory_of(row: types.Row) -> str:
    """The name of the trajectory that a row comes from."""
    return row.source.rpartition(":")[0]


def minibatches(
    rows: Sequence[types.Row], turns: int, *, seed: int, iteration: int, epoch: int
) -> list[list[types.Row]]:
    """The rows of an epoch in a seeded order, `turns` to a step, the last one shorter.

    A trajectory's turns may fall into different steps, as in the reference; unlike
    there, nothing is trimmed.
    """
    order = np.random.default_rng((seed, iteration, epoch)).permutation(len(rows))
    return [
        [rows[index] for index in order[start : start + turns]]
        for start in range(0, len(rows), turns)
    ]


def weigh(
    rows: Sequence[types.Row],
    mode: str,
    turn_counts: Mapping[str, int],
    constant_k: float,
) -> list[types.Row]:
    """The rows of one optimizer step with all normalisation in their weights.

    With n tokens and T turns of the row's trajectory, R rows and M = sum 1/T
    trajectories in this step (a part of one counts as its share), a token weighs
    turn_mean 1 / (n R), traj_mean 1 / (n T M), constant_k 1 / (k M),
    token_mean 1 / sum n.

    Args:
      turn_counts: turns of each trajectory, of all its rows and not this step's alone.
      constant_k: tokens; read by the mode of that name.
    """
    if mode not in _TOKEN_WEIGHTS:
        known = ", ".join(_TOKEN_WEIGHTS)
        raise ValueError(f"config.algo.weighting={mode!r}; set it to one of {known}")
    if mode == "constant_k" and not constant_k > 0:
        raise ValueError(f"constant_k={constant_k} tokens; it must be above 0")
    tokens_R = np.array([np.count_nonzero(row.loss_weight) for row in rows], float)
    turns_R = np.array([turn_counts[trajectory_of(row)] for row in rows], float)
    scale_R = _TOKEN_WEIGHTS[mode](np.maximum(tokens_R, 1.0), turns_R, constant_k)
    return [
        dataclasses.replace(row, loss_weight=row.loss_weight * np.float32(scale))
        for row, scale in zip(rows, scale_R, strict=True)
    ]


_TOKEN_WEIGHTS = {
    "turn_mean": lambda n, T, k: 1 / (n * len(n)),
    "traj_mean": lambda n, T, k: 1 / (n * T * np.sum(1 / T)),
    "constant_k": lambda n, T, k: np.ones_like(n) / (k * np.sum(1 / T)),
    "token_mean": lambda n, T, k: np.ones_like(n) / np.sum(n),
}


def _at_end(length: int, values: np.ndarray) -> np.ndarray:
    """Zeros with the values at their end, float32."""
    padded = np.zeros(length, np.float32)
    if len(values):
        padded[-len(values) :] = values
    return padded


def _check_sampled(
    trajectory: types.Trajectory, name: str, rule: types.SamplingRule
) -> None:
    """Refuses what the behaviour log-probs of the learner's rule are not known of."""
    for t, turn in enumerate(trajectory.turns):
        if not turn.response_ids or len(turn.logprobs) != len(turn.response_ids):
            raise ValueError(
                f"turn {t} of {name} has {len(turn.logprobs)} log-probs for "
                f"{len(turn.response_ids)} ids; RL needs one for each id"
            )
    if trajectory.turns and trajectory.rule != rule:
        raise ValueError(
            f"{name} was not sampled by the learner's rule: temperature "
            f"{getattr(trajectory.rule, 'temperature', None)} against "
            f"{rule.temperature}, or other forbidden ids; keep config.sample as it "
            "was, or begin a new workdir"
        )
