"""Made-up episodes: what a run leaves behind, without running."""

import io

import pytest
from PIL import Image, ImageDraw

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause


def draw_page(width: int, height: int, words: tuple[str, ...]) -> bytes:
    """A PNG with a yellow headline and some buttons."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    draw.rectangle((0, 0, width, height // 5), fill="#ffee88")
    draw.text((6, 6), words[0], "black")
    for index, word in enumerate(words[1:], 2):
        top = height * index // 6
        draw.rectangle((12, top, 12 + width // 3, top + height // 8), "#dddddd", "gray")
        draw.text((18, top + 5), word, "black")
    data = io.BytesIO()
    page.save(data, "PNG")
    return data.getvalue()


def observe(width, height, *words, **changes):
    return types.Observation(
        **{
            "screenshot": draw_page(width, height, words),
            "width_px": width,
            "height_px": height,
            "tabs": (types.Tab(url="http://miniwob.test/", title="Click"),),
            "active_tab": 0,
            **changes,
        }
    )


def make_turn(observation, thought="", calls=(), feedback=(), **changes):
    return types.Turn(
        observation=observation,
        segments=(),
        reply_text=changes.pop("reply_text", f"{thought}</think>"),
        thought=thought,
        calls=calls,
        feedback=feedback,
        **changes,
    )


def make_episode(task_id, intent, turns, final, cause, reward, answer="", detail=""):
    trajectory = types.Trajectory(
        task=types.Task(
            id=task_id, intent=intent, start_url="http://a.test/", max_turns=9
        ),
        system_segment=types.Segment(role="system", text="You act."),
        system_ids=(),
        turns=tuple(turns),
        final=final,
        answer=answer,
        facts={},
        cause=cause,
        detail=detail,
    )
    return trajectory, reward


def click(x, y):
    return types.ToolCall(name="click", arguments={"point_2d": [x, y]})


def say(tool, state, text):
    return types.Feedback(tool=tool, state=state, text=text)


@pytest.fixture
def episodes():
    """A success, a failure with a broken reply, a void one, a long one on a site."""
    small = observe(160, 224, "Click on the 'Submit' button.", "Cancel", "Submit")
    done = observe(160, 224, "Click on the 'Submit' button.", "Cancel")
    large = observe(1280, 1000, "Shop <script>alert(1)</script>", "Lamps", "Chairs")
    good = make_episode(
        "miniwob/click-button/7",
        "Click on the 'Submit' button.",
        [
            make_turn(
                small,
                "click Submit",
                (click(240, 560),),
                (say("click", "effect", "clicked <button> 'Submit': the page ended"),),
            )
        ],
        done,
        Cause.PAGE_DONE,
        types.Reward(value=1.0, parts={"outcome": 1.0}, is_valid=True),
    )
    bad = make_episode(
        "miniwob/click-button/8",
        "Click on the 'Submit' button.",
        [
            make_turn(
                small,
                "click Cancel",
                (click(240, 400), types.ToolCall(name="scroll", arguments={"by": "x"})),
                (
                    say(
                        "click",
                        "no_effect",
                        "clicked <button> 'Cancel': nothing changed",
                    ),
                ),
            ),
            make_turn(
                small, reply_text="I give up <b>now", parse_error="no tool call found"
            ),
        ],
        small,
        Cause.FORMAT_ERROR,
        types.Reward(value=-1.0, parts={"outcome": 0.0, "format": -1.0}, is_valid=True),
    )
    void = make_episode(
        "web/17",
        "Find the opening hours of the town library on Sundays.",
        [],
        None,
        Cause.DNS,
        types.Reward(value=0.0, parts={}, is_valid=False),
        detail="net::ERR_NAME_NOT_RESOLVED",
    )
    long_turn = make_turn(
        large,
        "The shop lists lamps and chairs. I look for the cheapest chair and put it "
        "into the basket, as the task asks; the filter for prices is on the left "
        "and I shall open it first, then sort by price, lowest first.",
        (
            click(120, 380),
            click(820, 640),
            types.ToolCall(name="write", arguments={"text": "chair " * 20}),
        ),
        (
            say("click", "effect", "clicked <a> 'Lamps': the page moved on"),
            say("click", "failed", "nothing is there"),
            say("write", "no_effect", "no field has the focus"),
        ),
    )
    long = make_episode(
        "web/18",
        "Put the cheapest chair <b>into</b> the basket & tell its price.",
        [long_turn] * 6,
        observe(1280, 1000, "Basket", "Chair", is_stale=True),
        Cause.DONE,
        types.Reward(value=1.0, parts={"outcome": 1.0}, is_valid=True),
        answer="It costs 12 €.",
    )
    return [good, bad, void, long]
