"""A browser that is a drawing: scripted screens behind the same Protocol, no Chromium.

The script is the task's `setup`, as JSON: screens by name, each with coloured squares
in 0..1000 coordinates. A click in a square leads to another screen, or ends the task
with a raw reward; a click beside them all ends it with none. All follows from the task
alone, so that the same calls always give the same bytes.
"""

import io
import json
import random
from typing import Any, Literal

from PIL import Image, ImageDraw

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Feedback, Observation, Step, Tab, Task, ToolCall
from openwebrl_jax.web import execute, feedback, plans

URL = "http://fake.test/"
COLORS = ("red", "green", "blue", "orange", "purple", "teal", "black", "magenta")

_GRID = 40  # centres are multiples of it
_SIDE = 240  # of a square, in 0..1000


def make_task(
    seed: int,
    *,
    squares: int = 1,
    screens: int = 1,
    max_turns: int = 2,
    split: Literal["train", "heldout", ""] = "",
) -> Task:
    """A seeded task: click the named square on each screen, and not the others.

    Example: make_task(7).id == "fake/7"; a click inside its square ends it with
    facts {"raw_reward": 1.0}, a click elsewhere with 0.0.
    """
    choice = random.Random(seed)
    names = [f"screen {number}" for number in range(screens)]
    script = {
        name: _screen(choice, squares, following)
        for name, following in zip(names, [*names[1:], ""], strict=True)
    }
    wanted = ", then the ".join(f"{script[name][0]['color']} square" for name in names)
    return Task(
        id=f"fake/{seed}",
        intent=f"click the {wanted}",
        start_url=URL,
        max_turns=max_turns,
        checks=({"kind": "fact", "name": "raw_reward", "equals": 1.0},),
        setup=json.dumps(script),
        is_resettable=True,
        suite="fake",
        split=split,
        tags=("fake",),
        oracle={"script": "next steps"},
    )


class FakeEnv:
    """Implements `core.types.Env` on scripted screens; `config` is config.web."""

    def __init__(self, config):
        self._place = plans.Place(config=config, sites=(), hosts=())
        self._script: dict[str, list[dict]] = {}
        self._screen = ""
        self._cause: Cause | None = None
        self._answer = ""
        self._facts: dict[str, Any] = {}

    async def reset(self, task: Task) -> tuple[Task, Observation]:
        """Shows the first screen of a task whose setup is a script of this module."""
        if "fake" not in task.tags:
            raise Failure(Cause.DNS, f"{task.start_url} is no scripted page")
        self._script = json.loads(task.setup)
        self._screen = next(iter(self._script))
        self._cause, self._answer, self._facts = None, "", {}
        return task, self._observe()

    async def step(self, calls: tuple[ToolCall, ...]) -> Step:
        """Runs calls in order; the end, once reached, is kept."""
        told = []
        for call in calls:
            if self._cause is not None:
                break
            told.append(self._call(call))
        return Step(
            observation=self._observe(),
            feedback=feedback.shown(told, self._place.config.feedback),
            cause=self._cause,
            answer=self._answer,
            facts=self._facts,
            asked_s=0.0,
        )

    async def facts(self, script: str, url: str = "") -> Any:
        """The steps of an oracle on this screen, whatever script is asked for."""
        if self._cause is not None:
            return []
        target, *others = [_press(square) for square in self._script[self._screen]]
        return [{**target, "others": others}]

    async def close(self) -> None:
        """Has nothing to give back."""

    def _call(self, call: ToolCall) -> Feedback:
        try:
            plan = execute.plan(call, self._place)
        except plans.Refusal as error:
            return feedback.failed(call.name, str(error))
        if call.name == "done":
            self._cause, self._answer = Cause.DONE, plan.arguments["response"]
            return Feedback(tool="done", state="effect", text="marked as done")
        if call.name != "click":
            text = f"{call.name}: nothing changed"
            return Feedback(tool=call.name, state="no_effect", text=text)
        return self._click(plan)

    def _click(self, plan: plans.Plan) -> Feedback:
        assert plan.point is not None
        for square in self._script[self._screen]:
            left, top, right, bottom = self._box(square)
            if left <= plan.point[0] <= right and top <= plan.point[1] <= bottom:
                name = f"the {square['color']} square"
                break
        else:
            name, square = "the page", {"leads_to": "", "raw_reward": 0.0}
        if square["leads_to"]:
            self._screen = square["leads_to"]
            text = f"clicked {name}: the page is now '{self._screen}'"
        else:
            self._cause = Cause.PAGE_DONE
            self._facts = {"raw_reward": square["raw_reward"]}
            text = f"clicked {name}: the page changed"
        return Feedback(tool="click", state="effect", text=text)

    def _observe(self) -> Observation:
        config = self._place.config
        image = Image.new("RGB", (config.width_px, config.height_px), "white")
        pen = ImageDraw.Draw(image)
        for square in self._script[self._screen]:
            # The end shows in the picture, the reward does not.
            color = "gray" if self._cause else square["color"]
            pen.rectangle(self._box(square), fill=color)
        png = io.BytesIO()
        image.save(png, "PNG")
        return Observation(
            screenshot=png.getvalue(),
            width_px=config.width_px,
            height_px=config.height_px,
            tabs=(Tab(url=URL, title=self._screen),),
            active_tab=0,
        )

    def _box(self, square: dict) -> tuple[float, float, float, float]:
        config = self._place.config
        (x, y), half = square["center"], _SIDE / 2
        corners = ([x - half, y - half], [x + half, y + half])
        (left, top), (right, bottom) = (
            plans.to_pixels(corner, config.width_px, config.height_px)
            for corner in corners
        )
        return left, top, right, bottom


def _screen(choice: random.Random, squares: int, following: str) -> list[dict]:
    """Squares that do not touch: the wanted one first, then the wrong ones."""
    if not 1 <= squares <= 4:
        raise ValueError(f"squares={squares}; a screen has 1 to 4 squares")
    steps = range(_SIDE // 2 // _GRID, (500 - _SIDE // 2) // _GRID + 1)
    quarters = choice.sample([(0, 0), (520, 0), (0, 520), (520, 520)], squares)
    colors = choice.sample(COLORS, squares)
    made = []
    for number, ((left, top), color) in enumerate(zip(quarters, colors, strict=True)):
        center = [base + _GRID * choice.choice(steps) for base in (left, top)]
        made.append(
            {
                "center": center,
                "color": color,
                "leads_to": "" if number else following,
                "raw_reward": 0.0 if number else 1.0,
            }
        )
    return made


def _press(square: dict) -> dict:
    return {
        "thought": f"click the {square['color']} square",
        "call": {"name": "click", "arguments": {"point_2d": square["center"]}},
    }
