"""A call whose arguments are sound, and how arguments are checked.

Arguments come from a model, so each is checked; a wrong one is a `Refusal`, which
becomes `failed` feedback. Coordinates are 0..1000 on each axis and become pixels in
`to_pixels` alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCALE = 1000
_HUGE = 1e300
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_PAIR = re.compile(rf"[\[(]?\s*({_NUMBER})\s*[,;\s]\s*({_NUMBER})\s*[\])]?")


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


def point(arguments, name: str, config) -> tuple[float, float]:
    """The point argument of that name, in pixels of the viewport."""
    if arguments.get(name) is None:
        raise Refusal(f"{name} is missing, it is two numbers from 0 to {SCALE}")
    return to_pixels(arguments[name], config.width_px, config.height_px, name)


def to_pixels(
    value: Any, width_px: int, height_px: int, name: str = "point_2d"
) -> tuple[float, float]:
    """Model coordinates (0..1000 on each axis) -> a pixel of the viewport.

    What can mean only one pair is taken as it: numbers as text, "x,y", {"x", "y"}, a
    pair in a list. Example: [500, 1000] on 160 x 224 -> (80.0, 223.0).
    """
    pair = _pair(value)
    if pair is None:
        raise Refusal(f"{name} is two numbers from 0 to {SCALE}, got {_shown(value)}")
    if not all(0 <= number <= SCALE for number in pair):
        raise Refusal(
            f"{name} is outside of the screen: both numbers are from 0 to {SCALE} "
            f"whatever its size ({width_px}x{height_px} px), got {_shown(value)}"
        )
    x, y = (
        min(number / SCALE * side, side - 1)
        for number, side in zip(pair, (width_px, height_px), strict=True)
    )
    return x, y


def _pair(value: Any) -> tuple[float, float] | None:
    """The two numbers that a value stands for; None = it stands for no pair."""
    if isinstance(value, str):
        found = _PAIR.fullmatch(value.strip())
        return (float(found[1]), float(found[2])) if found else None
    if isinstance(value, Mapping):
        value = [value["x"], value["y"]] if set(value) == {"x", "y"} else None
    if not isinstance(value, list | tuple):
        return None
    if len(value) == 1 and not is_number(value[0]):
        return _pair(value[0])
    numbers = [_number(item) for item in value]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(_NUMBER, value.strip()) else None
    return value if is_number(value) else None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer too long to be written
        return "a number without end"
    return text if len(text) <= 60 else text[:59] + "…"


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
