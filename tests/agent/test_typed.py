import pytest

from openwebrl_jax.agent import grammar, typed
from openwebrl_jax.core.types import ToolCall


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("click 500 300", "click", {"point_2d": [500, 300]}),
        ("click 500 300.5 2", "click", {"point_2d": [500, 300.5], "clicks": 2}),
        ("click 5 3 button=right", "click", {"point_2d": [5, 3], "button": "right"}),
        ("write  hello  world ", "write", {"message": " hello  world"}),
        ("write a=b {x}", "write", {"message": "a=b {x}"}),
        ("press_keys ctrl+a", "press_keys", {"keys": ["ctrl", "a"], "is_hotkey": True}),
        ("press_keys Tab Enter", "press_keys", {"keys": ["Tab", "Enter"]}),
        ("press_keys +", "press_keys", {"keys": ["+"]}),
        ("press_keys Tab presses=3", "press_keys", {"keys": ["Tab"], "presses": 3}),
        ("scroll", "scroll", {}),
        ("scroll down 0.5", "scroll", {"direction": "down", "amount": 0.5}),
        ("scroll point_2d=10,20", "scroll", {"point_2d": [10, 20]}),
        ("drag 1 2 3 4", "drag", {"start_point_2d": [1, 2], "end_point_2d": [3, 4]}),
        ("switch_tab 1", "switch_tab", {"tab_index": 1}),
        ("go_back", "go_back", {}),
        ("done the answer is 42", "done", {"response": "the answer is 42"}),
        ("done", "done", {"response": ""}),
        ("goto_url https://a.test/?q=1", "goto_url", {"url": "https://a.test/?q=1"}),
    ],
)
def test_a_line_is_a_call(line, name, arguments):
    assert typed.read(line) == (ToolCall(name=name, arguments=arguments),)


def test_the_wire_format_is_taken_too():
    calls = (ToolCall(name="go_back", arguments={}),) * 2
    blocks = "".join(map(grammar.call_block, calls))
    assert typed.read(blocks.replace("\n", " ")) == calls
    assert typed.read('{"name": "go_back"}') == calls[:1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("clik 1 2", "did you mean 'click'"),
        ("hop", "did you mean 'help'"),
        ("click", "point_2d is missing"),
        ("click 1", "two numbers"),
        ("click a b", "point_2d is a number, got 'a'"),
        ("go_back now", "'now' is too much"),
        ('{"name": 1}', 'needs a text "name"'),
        ("{", "does not hold one JSON object"),
    ],
)
def test_a_wrong_line_is_told_in_one_line(line, told):
    with pytest.raises(ValueError, match=told) as caught:
        typed.read(line)
    assert "\n" not in str(caught.value)


def test_the_usage_names_every_tool_and_argument():
    lines = typed.usage().splitlines()
    assert [line.split()[0] for line in lines] == [*typed.SCHEMAS]
    assert typed.usage("click").startswith("click X Y [clicks] [button] ")
    with pytest.raises(ValueError, match="no tool 'clik'"):
        typed.usage("clik")
