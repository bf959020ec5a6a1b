"""Trajectories whose ids say where they come from."""

from types import SimpleNamespace

from openwebrl_jax.core import causes, types
from openwebrl_jax.tokens import images

SPEC = images.ImageSpec(
    patch_px=4,
    merge=2,
    temporal=2,
    pixels_min=64,
    pixels_max=65_536,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    rescale=1 / 255,
    resample=3,
)
RULE = types.SamplingRule(temperature=0.8, forbidden_ids=(7,))


def make_turn(t, response=3, is_sampled=True):
    """Seen ids from 100t + 1, response + 20, closing + 40, remembered + 50."""
    ids = {}
    if is_sampled:
        ids = {
            "seen_ids": (100 * t + 1, 100 * t + 2, 100 * t + 3),
            "remembered_ids": (100 * t + 50, 100 * t + 51),
            "response_ids": tuple(100 * t + 20 + i for i in range(response)),
            "closing_ids": (100 * t + 40,),
            "logprobs": tuple(-0.1 * (i + 1) for i in range(response)),
            "version": 4,
        }
    return types.Turn(
        observation=types.Observation(
            screenshot=b"png%d" % t,
            width_px=64,
            height_px=64,
            tabs=(),
            active_tab=0,
        ),
        segments=(types.Segment(role="user", text="<|image|>", image=f"hash{t}"),),
        reply_text="reply",
        thought="",
        calls=(),
        **ids,
    )


def make_trajectory(turns, *, newest=1, rule=RULE):
    return types.Trajectory(
        task=types.Task(id="task", intent="", start_url="", max_turns=9),
        system_segment=types.Segment(role="system", text="system"),
        system_ids=(11, 12),
        turns=tuple(turns),
        final=None,
        answer="",
        facts={},
        cause=causes.Cause.DONE if turns else causes.Cause.BROWSER_CRASH,
        rule=rule if turns else None,
        context_screenshots=newest,
    )


def make_group(ordinal, names, advantages):
    """One group whose slot i holds the trajectory names[i]."""
    slots = tuple(
        types.Slot(
            index=i,
            trajectory=name,
            reward=types.Reward(value=0.0, parts={}, is_valid=advantage is not None),
            cause=causes.Cause.DONE,
            versions=(),
            turns=0,
        )
        for i, (name, advantage) in enumerate(zip(names, advantages, strict=True))
    )
    task = types.Task(id="task", intent="", start_url="", max_turns=9)
    return types.Group(
        ordinal=ordinal, task=task, slots=slots, advantages=tuple(advantages)
    )


def make_algo(**changed):
    """The part `config.algo` as far as the loss reads it."""
    plain = {"clip_low": 0.2, "clip_high": 0.28, "kl": 0.0, "entropy": 0.0}
    return SimpleNamespace(**{**plain, **changed})
