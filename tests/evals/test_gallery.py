"""Episodes on a page: complete, escaped, in need of no other file."""

import html
import re

import pytest

from openwebrl_jax.core import types
from openwebrl_jax.evals import gallery
from openwebrl_jax.rollout import store


def test_an_episode_is_told_turn_by_turn(episodes):
    story = gallery.tell(episodes[0])
    assert story.verdict == "success"
    assert story.facts == (
        "miniwob/click-button/7 · ended by page_done · reward 1 (outcome 1)"
    )
    turn, end = story.frames
    assert [(note.kind, note.text) for note in turn.notes] == [
        ("thought", "click Submit"),
        ("call", "click(point_2d=[240, 560])"),
        ("effect", "clicked <button> 'Submit': the page ended"),
    ]
    assert [(mark.x, mark.y) for mark in turn.marks] == [(0.24, 0.56)]
    assert (end.title, end.marks, end.notes) == ("at the end", (), ())


def test_an_episode_without_a_page_and_without_a_reward(episodes):
    story = gallery.tell(episodes[2])
    assert story.verdict == "void" and story.frames == ()
    assert story.facts.endswith("ended by dns (net::ERR_NAME_NOT_RESOLVED) · no reward")


def test_a_reply_that_was_not_understood_is_shown_as_it_was(episodes):
    notes = gallery.tell(episodes[1]).frames[1].notes
    assert [note.text for note in notes] == [
        "not understood: no tool call found",
        "I give up <b>now",
    ]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"point_2d": [0, 1000]}, [(0.0, 1.0)]),
        ({"start": [100, 200], "end": (300, 400)}, [(0.1, 0.2), (0.3, 0.4)]),
        ({"text": "ab", "n": 3, "keys": ["a", "b"], "more": [1, 2, 3]}, []),
        ({"point_2d": [-1, 5], "other": [5, 2000], "none": None}, []),
        ({"point_2d": [float("nan"), 5]}, []),
    ],
)
def test_points_of_a_call(arguments, found):
    call = types.ToolCall(name="drag", arguments=arguments)
    assert gallery.points(call) == found


def test_the_page_holds_everything_and_no_strangers_markup(tmp_path, episodes):
    path = gallery.write_page(tmp_path / "a" / "page.html", episodes, title="<Demo>")
    text = path.read_text()
    assert text.count("<section") == 4 and text.count("<figure") == 2 + 3 + 7
    assert text.count('class="mark"') == 1 + 1 + 6 * 2
    assert "2 success · 1 failure · 1 void" in text
    assert "&lt;Demo&gt;" in text and "into&lt;/b&gt;" in text
    assert "<script" not in text and "<b>now" not in text
    assert "answer: It costs 12 €." in text and "stale picture" in text
    assert set(re.findall(r'(?:src|href)="([^:]*):', text)) == {"data"}
    assert html.unescape(text).count("click Submit") == 1


def test_episodes_that_differ_are_picked_from_a_store(tmp_path, episodes):
    names = [store.save(tmp_path, *episode) for episode in episodes]
    played = [
        {"task": f"miniwob/{page}", "success": success, "trajectory": name}
        for page, success, name in (
            ("click-button/1", True, names[0]),
            ("click-button/2", True, names[3]),
            ("click-button/3", False, names[1]),
            ("click-tab/1", None, names[2]),
        )
    ]
    picked = gallery.pick(played, tmp_path, 3)
    assert picked == [episodes[0], episodes[1], episodes[2]]
    assert gallery.pick(played, tmp_path, 9)[3] == episodes[3]


def test_a_page_of_nothing(tmp_path):
    text = gallery.write_page(tmp_path / "page.html", [], title="Demo").read_text()
    assert "<section" not in text
