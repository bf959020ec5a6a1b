"""Trajectories for the tests of rewards."""

from typing import Any

from openwebrl_jax.core.causes import Cause
from openwebrl_jax.core.types import (
    Feedback,
    Observation,
    Segment,
    Tab,
    Task,
    ToolCall,
    Trajectory,
    Turn,
)


def page(number: int, url: str = "http://shop.test/cart") -> Observation:
    """An observation whose PNG tells its number."""
    return Observation(
        screenshot=b"png%d" % number,
        width_px=9,
        height_px=9,
        tabs=(Tab(url="http://shop.test/", title="Shop"), Tab(url=url, title="Cart")),
        active_tab=1,
    )


def turn(number: int, feedback: str = "clicked") -> Turn:
    """A turn with one click."""
    call = ToolCall(name="click", arguments={"point_2d": [number, 2]})
    return Turn(
        observation=page(number),
        segments=(),
        reply_text="",
        thought="I have surely succeeded",
        calls=(call,),
        feedback=(Feedback(tool="click", state="effect", text=feedback),),
    )


def story(checks: tuple = (), **fields: Any) -> Trajectory:
    """A finished episode; `fields` of Trajectory override."""
    task = Task(
        id="shop/1",
        intent="Buy milk",
        start_url="http://shop.test/",
        max_turns=9,
        checks=checks,
    )
    defaults = {
        "task": task,
        "system_segment": Segment(role="system", text=""),
        "system_ids": (),
        "turns": (),
        "final": page(9),
        "answer": "It costs 2 EUR",
        "facts": {},
        "cause": Cause.DONE,
    }
    return Trajectory(**{**defaults, **fields})
