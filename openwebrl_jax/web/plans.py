"""A call whose arguments are sound, and how arguments are checked.

Arguments come from a model, so each is checked; a wrong one is a `Refusal`, which
becomes `failed` feedback. Coordinates are 0..1000 on each axis and become pixels in
`to_pixels` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCALE = 1000
_HUGE = 1e300


class Refusal(Exception):
    """A call that cannot be carried out as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A call whose arguments are sound. Made by `plan`, eaten by `act`."""

    tool: str
    arguments: Mapping[str, Any]
    point: tuple[float, float] | None = None  # in pixels; None = aimed at no point


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call happens: the config, the task's sites, and all local sites."""

    config: Any
    sites: tuple[str, ...]
    hosts: tuple[str, ...]


def to_pixels(point_2d: Any, width_px: int, height_px: int) -> tuple[float, float]:
    """Model coordinates (0..1000 on each axis, clamped) -> a pixel of the viewport.

    Example: [500, 1000] on 160 x 224 -> (80.0, 223.0).
    """
    is_pair = isinstance(point_2d, list | tuple) and len(point_2d) == 2
    if not is_pair or not all(is_number(value) for value in point_2d):
        raise Refusal(f"point_2d is two numbers from 0 to {SCALE}, got {point_2d!r}")
    sides = (width_px, height_px)
    x, y = (
        min(min(max(value, 0), SCALE) / SCALE * side, side - 1)
        for value, side in zip(point_2d, sides, strict=True)
    )
    return x, y


def is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and -_HUGE < value < _HUGE  # so neither infinite nor NaN


def choice(arguments, name: str, known: tuple[str, ...]) -> str:
    """One of the known words; the first is the default."""
    value = arguments.get(name, known[0])
    if value not in known:
        raise Refusal(f"{name} is one of {', '.join(known)}, got {value!r}")
    return value


def number(arguments, name: str, default: float, least: float, most: float) -> float:
    """A number argument, clamped; a Refusal where it is none."""
    value = arguments.get(name, default)
    if not is_number(value):
        raise Refusal(f"{name} is a number from {least:g} to {most:g}, got {value!r}")
    return min(max(value, least), most)
