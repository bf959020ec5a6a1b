"""Finished groups -> training rows, and their weights.

    rows(groups, trajectories, rule, tree_rows)  every turn of every valid slot
    minibatches(rows, 256, ...)                  which rows make one optimizer step
    weigh(minibatch, "turn_mean", ...)           weights that make the loss a plain sum

The prompt of turn t with K screenshots: the system, turns 0..t-K as they are
remembered, turns t-K+1..t as they were seen; the loss stands on the last reply alone.
Layout `turn` has a row for each such prompt. Layout `tree` has one row a trajectory:
what is remembered stands once, as the trunk, and the seen turns of each prompt are a
branch that sees the trunk up to their own start. Both give the same numbers; a tree is
linear in the turns where rows of turns are quadratic. Nothing is tokenised here: a
Turn brings the ids that were sampled, and a turn without them, or without their
log-probs, is refused.
"""

import collections
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from openwebrl_jax.core import types

PROXIMAL_CAP = 2.0
_LOG_CAP = 20.0


def rows(
    groups: Sequence[types.Group],
    trajectories: Mapping[str, types.Trajectory],
    rule: types.SamplingRule,
    make: Callable[[types.Trajectory, str], list[types.Row]],
) -> list[types.Row]:
    """The rows of every slot that has an advantage; weights are 0 or 1.

    Args:
      trajectories: by content hash, at least those of the valid slots.
      rule: the learner's; a trajectory that was sampled by another one is refused.
      make: the layout, `turn_rows` or `tree_rows` with its limits bound.
    """
    made = []
    for group in groups:
        for slot, advantage in zip(group.slots, group.advantages, strict=True):
            if advantage is None:
                continue
            trajectory = trajectories[slot.trajectory]
            _check_sampled(trajectory, slot.trajectory, rule)
            for row in make(trajectory, slot.trajectory):
                made.append(dataclasses.replace(row, advantage=advantage))
    return made


def turn_rows(trajectory: types.Trajectory, name: str) -> list[types.Row]:
    """A row for each turn; `source` is `name:turn`.

    They carry weight 1 on the reply, the log-probs if there are any, advantage 0.
    """
    _check_ids(trajectory, name)
    trunk, limits = _trunk(trajectory)
    made = []
    for t, limit in enumerate(limits):
        branch = _branch(trajectory, t)
        ids = trunk[:limit] + branch.ids
        made.append(_row([ids], [branch], (types.Run(),), f"{name}:{t}"))
    return made


def tree_rows(
    trajectory: types.Trajectory,
    name: str,
    longest: int = sys.maxsize,
    loss_tokens: int = sys.maxsize,
) -> list[types.Row]:
    """A trajectory as one row; `source` is `name:first-last` of its turns.

    One that passes `longest` tokens or `loss_tokens` is cut between turns into rows
    that each have the trunk that they need. Else as in `turn_rows`.
    """
    _check_ids(trajectory, name)
    trunk, limits = _trunk(trajectory)
    branches = [_branch(trajectory, t) for t in range(len(limits))]
    parts: list[list[int]] = []
    tokens = replies = 0
    for t, branch in enumerate(branches):
        tokens, replies = tokens + len(branch.ids), replies + branch.reply
        if not parts or limits[t] + tokens > longest or replies > loss_tokens:
            parts.append([])
            tokens, replies = len(branch.ids), branch.reply
        parts[-1].append(t)
    return [
        _tree(
            trunk[: limits[part[-1]]],
            [branches[t] for t in part],
            [limits[t] for t in part],
            f"{name}:{part[0]}-{part[-1]}",
        )
        for part in parts
    ]


def _trunk(trajectory: types.Trajectory) -> tuple[list[int], list[int]]:
    """System and remembered turns; and how much of that each turn's prompt has."""
    trunk, limits = list(trajectory.system_ids), []
    for t in range(len(trajectory.turns)):
        if t >= trajectory.context_screenshots:
            earlier = trajectory.turns[t - trajectory.context_screenshots]
            trunk += earlier.remembered_ids
        limits.append(len(trunk))
    return trunk, limits


def _tree(
    trunk: list[int], branches: list["_Branch"], limits: list[int], source: str
) -> types.Row:
    runs, first = [types.Run()], len(trunk)
    for branch, limit in zip(branches, limits, strict=True):
        runs.append(types.Run(first=first, limit=limit))
        first += len(branch.ids)
    pieces = [trunk, *(branch.ids for branch in branches)]
    return _row(pieces, branches, tuple(runs), source)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """The K seen turns that end a prompt, with the reply that is learnt."""

    ids: list[int]
    logprobs: tuple[float, ...]  # of the reply, () = nobody sampled it
    reply: int  # its tokens
    images: tuple[bytes, ...]


def _branch(trajectory: types.Trajectory, t: int) -> _Branch:
    seen = trajectory.turns[max(0, t - trajectory.context_screenshots + 1) : t + 1]
    ids: list[int] = []
    for earlier in seen[:-1]:
        ids += (*earlier.seen_ids, *earlier.response_ids, *earlier.closing_ids)
    ids += (*seen[-1].seen_ids, *seen[-1].response_ids)
    return _Branch(
        ids=ids,
        logprobs=seen[-1].logprobs,
        reply=len(seen[-1].response_ids),
        images=tuple(
            turn.observation.screenshot
            for turn in seen
            for segment in turn.segments
            if segment.image is not None
        ),
    )


def _row(
    pieces: Sequence[list[int]],
    branches: Sequence[_Branch],
    runs: tuple[types.Run, ...],
    source: str,
) -> types.Row:
    """The pieces in a row; the last ones end in the replies of the branches."""
    ids = np.array([token for piece in pieces for token in piece], np.int32)
    loss_weight, old_logp = np.zeros((2, len(ids)), np.float32)
    end = len(ids)
    for piece, branch in zip(reversed(pieces), reversed(branches), strict=False):
        reply = slice(end - branch.reply, end)
        loss_weight[reply] = 1.0
        old_logp[reply] = branch.logprobs or 0.0
        end -= len(piece)
    return types.Row(
        ids=ids,
        loss_weight=loss_weight,
        old_logp=old_logp,
        advantage=0.0,
        images=tuple(png for branch in branches for png in branch.images),
        source=source,
        runs=runs,
    )


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


def spans(row: types.Row) -> list[slice]:
    """Where the runs of a row stand."""
    ends = [run.first for run in row.runs[1:]] + [len(row.ids)]
    return [slice(run.first, end) for run, end in zip(row.runs, ends, strict=True)]


def turns(row: types.Row) -> list[slice]:
    """Where the turns of a row stand: its runs, but for a trunk without loss."""
    return [span for span in spans(row) if row.loss_weight[span].any()]


def turn_counts(rows: Sequence[types.Row]) -> Mapping[str, int]:
    """Turns of each trajectory; `rows` are those of a whole iteration."""
    counts: collections.Counter[str] = collections.Counter()
    for row in rows:
        counts[trajectory_of(row)] += len(turns(row))
    return counts


def trajectory_of(row: types.Row) -> str:
    """The name of the trajectory that a row comes from."""
    return row.source.rpartition(":")[0]


def minibatches(
    rows: Sequence[types.Row], count: int, *, seed: int, iteration: int, epoch: int
) -> list[list[types.Row]]:
    """The rows of an iteration in steps of about `count` turns, in an epoch's order.

    A row is never split: a step is full with the row that reaches the count, and the
    last step is shorter. With rows of turns, a trajectory's turns may fall into
    different steps, as in the reference; unlike there, nothing is trimmed. Each epoch
    has the same steps in another order, hence the same shapes: nothing is compiled.
    """
    steps: list[list[types.Row]] = []
    room = 0
    for index in np.random.default_rng((seed, iteration)).permutation(len(rows)):
        if room <= 0:
            steps.append([])
            room = count
        steps[-1].append(rows[index])
        room -= len(turns(rows[index]))
    order = np.random.default_rng((seed, iteration, epoch)).permutation(len(steps[:-1]))
    return [*(steps[index] for index in order), *steps[-1:]]


def weigh(
    rows: Sequence[types.Row],
    mode: str,
    turn_counts: Mapping[str, int],
    constant_k: float,
) -> list[types.Row]:
    """The rows of one optimizer step with all normalisation in their weights.

    With n tokens in the token's turn and T turns of its trajectory, R turns and
    M = sum 1/T trajectories in this step (a part of one counts as its share), a token
    weighs turn_mean 1 / (n R), traj_mean 1 / (n T M), constant_k 1 / (k M),
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
    places = [(i, span) for i, row in enumerate(rows) for span in turns(row)]
    tokens_R = np.array([np.count_nonzero(rows[i].loss_weight[s]) for i, s in places])
    turns_R = np.array([turn_counts[trajectory_of(rows[i])] for i, _ in places], float)
    scale_R = _TOKEN_WEIGHTS[mode](tokens_R.astype(float), turns_R, constant_k)
    weights = [row.loss_weight.copy() for row in rows]
    for (i, span), scale in zip(places, scale_R, strict=True):
        weights[i][span] *= np.float32(scale)
    return [
        dataclasses.replace(row, loss_weight=weight)
        for row, weight in zip(rows, weights, strict=True)
    ]


_TOKEN_WEIGHTS = {
    "turn_mean": lambda n, T, k: 1 / (n * len(n)),
    "traj_mean": lambda n, T, k: 1 / (n * T * np.sum(1 / T)),
    "constant_k": lambda n, T, k: np.ones_like(n) / (k * np.sum(1 / T)),
    "token_mean": lambda n, T, k: np.ones_like(n) / np.sum(n),
}


def _check_ids(trajectory: types.Trajectory, name: str) -> None:
    """Refuses turns that were never ids; the remembered ones count where needed."""
    remembered = len(trajectory.turns) - trajectory.context_screenshots
    for t, turn in enumerate(trajectory.turns):
        has_ids = turn.seen_ids and turn.response_ids and trajectory.system_ids
        if not has_ids or (t < remembered and not turn.remembered_ids):
            raise ValueError(
                f"turn {t} of {name} has no ids: no sampler of ours spoke it; use "
                "batch.demos for such trajectories"
            )


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
