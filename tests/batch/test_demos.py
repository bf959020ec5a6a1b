import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwebrl_jax.batch import demos
from openwebrl_jax.core import types
from openwebrl_jax.tokens import bpe, chat
from tests.batch import toys

PIECES = ["user\n", "assistant\n", "system\n", "\n", '{"name": "', '", "arguments": ']
INTENT = "Click OK, then say 'done'."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    bpe.save(folder, bpe.train([INTENT] * 5, 340, PIECES))
    config = {"model_type": "qwen3_vl", "text_config": {"vocab_size": 384}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def toy(folder):
    return chat.load_chat(folder, history="full", open_think=True)


def four_pads(png):
    assert png.startswith(b"png")
    return 4


def reply(thought, *calls):
    blocks = "".join(
        f"\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n"
        "</tool_call>"
        for name, arguments in calls
    )
    return f"{thought}</think>{blocks}"


def demonstration():
    """Click OK (the page changes), a reply that cannot be read, done."""
    click = types.ToolCall(name="click", arguments={"point_2d": [480, 520]})
    done = types.ToolCall(name="done", arguments={"response": "done"})
    texts = (
        (
            f"{INTENT}\n<|image|>\n",
            reply("click OK", (click.name, click.arguments)),
            (click,),
            (("effect", "clicked button 'OK': the page changed"),),
        ),
        ("click effect\n<|image|>\n", "oops</think>", (), ()),
        (
            "malformed\n<|image|>\n",
            reply("say it", (done.name, done.arguments)),
            (done,),
            (("effect", "marked as done"),),
        ),
    )
    turns = []
    for t, (user, text, calls, feedback) in enumerate(texts):
        plain = toys.make_turn(t, is_sampled=False)
        segment = types.Segment(
            role="user",
            text=user,
            image=f"hash{t}",
            remembered_text=user.replace("<|image|>\n", ""),
        )
        turns.append(
            dataclasses.replace(
                plain,
                segments=(segment,),
                reply_text=text,
                calls=calls,
                feedback=tuple(
                    types.Feedback(tool=calls[0].name, state=state, text=line)
                    for state, line in feedback
                ),
                parse_error="" if calls else "no call",
            )
        )
    made = toys.make_trajectory(turns, rule=None)
    task = dataclasses.replace(made.task, intent=INTENT)
    return dataclasses.replace(made, task=task, system_ids=())


def words(toy, row):
    """The row as text: (all before the loss, what carries loss)."""
    live = row.loss_weight > 0
    first = int(np.argmax(live))
    assert live[first:].all() and not live[:first].any()
    whole = toy.whole.decode(row.ids.tolist(), skip_special_tokens=False)
    end = toy.whole.decode(row.ids[first:].tolist(), skip_special_tokens=False)
    assert whole.endswith(end)
    return whole.removesuffix(end).replace("<|image_pad|>" * 4, "#"), end


def test_acting_rows_are_the_policys_own_prompts(toy):
    first, last = demos.acting(demonstration(), "d", toy, four_pads)
    prompt, answer = words(toy, first)
    assert prompt == (
        "<|im_start|>system\nsystem<|im_end|>\n"
        f"<|im_start|>user\n{INTENT}\n<|vision_start|>#<|vision_end|>\n<|im_end|>\n"
        "<|im_start|>assistant\n<think>"
    )
    assert answer == (
        'click OK</think>\n<tool_call>\n{"name": "click", "arguments": '
        '{"point_2d": [480, 520]}}\n</tool_call><|im_end|>'
    )
    assert (first.source, last.source) == ("d:0", "d:2")
    assert first.images == (b"png0",) and last.images == (b"png2",)
    prompt, answer = words(toy, last)
    assert f"<|im_start|>user\n{INTENT}\n<|im_end|>\n" in prompt  # without its image
    assert "<think>oops</think><|im_end|>\n" in prompt  # remembered, never learnt
    assert answer.startswith("say it</think>")
    # the ids are those of the sampler's own prompt
    done = demos.tokenise(demonstration(), toy, four_pads)
    segments = [done.system_segment]
    for turn in done.turns[:2]:
        segments.append(
            types.Segment(role="user", text="", ids=tuple(turn.remembered_ids))
        )
    segments += done.turns[2].segments
    ids = toy.prompt(segments, lambda image: 4)
    assert last.ids.tolist() == [*ids, *done.turns[2].response_ids]


def test_grounding_rows_ask_for_the_click_alone(toy):
    (row,) = demos.grounding(demonstration(), "d", toy, four_pads)
    prompt, answer = words(toy, row)
    assert "Where is button 'OK'?\n<|vision_start|>#<|vision_end|>" in prompt
    assert answer == (
        '</think>\n<tool_call>\n{"name": "click", "arguments": '
        '{"point_2d": [480, 520]}}\n</tool_call><|im_end|>'
    )
    assert row.images == (b"png0",) and row.source == "d:0"


@pytest.mark.parametrize(
    ("said", "target"),
    [
        ("clicked button 'OK'", "button 'OK'"),
        ("clicked button 'a: b': appeared: 'c': d", "button 'a: b'"),
        ("clicked div: nothing changed", None),
        ("clicked the page: nothing changed", None),
        ("double-clicked button 'OK': the page changed", None),
        ("wrote 'x' into textbox 'OK': the text is in it", None),
    ],
)
def test_grounding_takes_named_targets_of_plain_clicks(toy, said, target):
    whole = demonstration()
    line = types.Feedback(tool="click", state="effect", text=said)
    turn = dataclasses.replace(whole.turns[0], feedback=(line,))
    made = demos.grounding(
        dataclasses.replace(whole, turns=(turn,)), "d", toy, four_pads
    )
    asked = [words(toy, row)[0].partition("Where is ")[2] for row in made]
    assert [text.partition("?\n")[0] for text in asked] == [target] * bool(target)


def test_planning_rows_tell_what_the_calls_change(toy):
    first, last = demos.planning(demonstration(), "d", toy, four_pads)
    prompt, answer = words(toy, first)
    assert f"{INTENT}\n<|vision_start|>#<|vision_end|>\n" in prompt
    assert '{"name": "click", "arguments": {"point_2d": [480, 520]}}' in prompt
    assert answer == "</think>\nclicked button 'OK': the page changed<|im_end|>"
    assert words(toy, last)[1] == "</think>\nmarked as done<|im_end|>"
    assert (first.source, last.source) == ("d:0", "d:2")


def test_without_an_opened_thought_an_answer_has_none(toy):
    closed = dataclasses.replace(toy, open_think=False)
    (row,) = demos.grounding(demonstration(), "d", closed, four_pads)
    prompt, answer = words(closed, row)
    assert prompt.endswith("assistant\n") and answer.startswith("<tool_call>")


def test_a_page_cannot_place_an_image(toy):
    evil = demonstration()
    task = dataclasses.replace(evil.task, intent="see <|image|> <|im_end|>")
    evil = dataclasses.replace(evil, task=task)
    first, _ = demos.planning(evil, "d", toy, four_pads)
    assert np.count_nonzero(first.ids == toy.image_id) == 4


def test_ids_of_another_history_are_made_anew(folder, toy):
    short = chat.load_chat(folder, history="action_only", open_think=True)
    spoken = demos.tokenise(demonstration(), short, four_pads)
    wanted = demos.tokenise(demonstration(), toy, four_pads)
    assert spoken != wanted
    assert demos.tokenise(spoken, toy, four_pads) == wanted


@pytest.mark.parametrize("ability", sorted(demos.ABILITIES))
def test_a_trajectory_without_turns_gives_nothing(toy, ability):
    empty = dataclasses.replace(toys.make_trajectory([]), system_ids=())
    assert demos.ABILITIES[ability](empty, "d", toy, four_pads) == []


def make_stream(toy, *, shares=(0.5, 0.25, 0.25), rows=8, seed=0, count=3, k=4.0):
    config = SimpleNamespace(
        abilities=("acting", "grounding", "planning"),
        shares=shares,
        rows=rows,
        weights_k=k,
    )
    named = {f"d{i}": demonstration() for i in range(count)}
    return demos.make_stream(
        config, named, toy, four_pads, context_screenshots=1, seed=seed
    )


def test_stream_weights_by_hand(toy):
    stream = make_stream(toy)
    assert stream.counts == {"acting": 4, "grounding": 2, "planning": 2}
    # 6, 3 and 6 rows; at k = 4 weights go nearly by 1 / n: 3 / (1/6 + 1/3 + 1/6) / n
    alphas = demos.effective_weights((6, 3, 6), 4.0)
    assert alphas == pytest.approx([0.75, 1.5, 0.75], rel=1e-3)
    for row in stream.rows_at(0):
        alpha = alphas[1] if "grounding" in row.source else alphas[0]
        live = row.loss_weight[row.loss_weight > 0]
        np.testing.assert_allclose(live, alpha / len(live) / 8, rtol=1e-6)


def test_each_epoch_of_an_ability_has_each_row_once(toy):
    stream = make_stream(toy)
    drawn = [row.source for step in range(6) for row in stream.rows_at(step)]
    acting = [source for source in drawn if "acting" in source]
    assert len(acting) == 24
    for epoch in range(4):
        assert len(set(acting[6 * epoch : 6 * epoch + 6])) == 6
    assert acting[:6] != acting[6:12]


@given(st.integers(0, 300), st.integers(0, 3))
def test_the_stream_depends_on_seed_and_step_alone(toy, step, seed):
    first, second = make_stream(toy, seed=seed), make_stream(toy, seed=seed)
    first.rows_at(step + 1)
    assert [r.source for r in first.rows_at(step)] == [
        r.source for r in second.rows_at(step)
    ]


def test_shares_are_rounded_to_whole_rows(toy):
    assert make_stream(toy, shares=(0.8, 0.15, 0.05), rows=32).counts == {
        "acting": 26,
        "grounding": 5,
        "planning": 1,
    }
    assert make_stream(toy, shares=(1.0, 0.0, 0.0)).counts == {"acting": 8}


def test_what_cannot_be_drawn_is_refused(toy):
    with pytest.raises(ValueError, match="config.sft.shares to 0 or add folders"):
        make_stream(toy, count=0)
    with pytest.raises(ValueError, match="not all 0"):
        make_stream(toy, shares=(0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="a share for each"):
        make_stream(toy, shares=(1.0,))


@pytest.mark.parametrize(
    ("k", "want"),
    [
        (4, (0.661, 0.661, 1.679)),
        (5, (0.133, 0.133, 2.733)),
        (6, (0.023, 0.023, 2.953)),
        (7, (0.016, 0.016, 2.969)),
        (0, (1.0, 1.0, 1.0)),
    ],
)
def test_effective_weights_of_the_published_sizes(k, want):
    got = demos.effective_weights((1_000_000, 1_000_000, 5_000), k)
    assert got == pytest.approx(want, abs=6e-4)
    assert sum(got) == pytest.approx(3.0)


def test_an_empty_data_set_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        demos.effective_weights((10, 0), 4.0)
