import pytest

from openwebrl_jax.core import dialogue
from openwebrl_jax.core.types import IMAGE_MARK
from openwebrl_jax.rewards import evidence


def talk(*parts):
    return dialogue.segments(evidence.ask("judge", *parts))


def test_each_picture_is_said_by_itself_and_the_last_words_stand_with_it():
    one, two = evidence.image(b"1"), evidence.image(b"2")
    (system, first, reply, last), images = talk("task\n", one, "then\n", two, "done?")
    assert (system.role, system.text) == ("system", "judge")
    assert first.text == f"task\n{IMAGE_MARK}\n"
    assert (reply.role, reply.text) == ("assistant", dialogue.NEXT)
    assert last.text == f"then\n{IMAGE_MARK}\ndone?"
    assert last.remembered_text == "then\n\ndone?"
    assert [images[it.image] for it in (first, last)] == [b"1", b"2"]


def test_words_alone_are_one_segment_without_a_picture():
    (_, only), images = talk("a", "b")
    assert (only.text, only.image, images) == ("ab", None, {})


@pytest.mark.parametrize("count", [1, 3])
def test_roles_take_turns(count):
    segments, _ = talk(*[evidence.image(b"%d" % n) for n in range(count)], "?")
    roles = [segment.role for segment in segments]
    assert roles == ["system", *["user", "assistant"] * (count - 1), "user"]
