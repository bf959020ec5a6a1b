"""Tool calls as a person types them, one line each: `click 500 300`, `done 42 EUR`.

Arguments stand in the order of the tool's schema or as `name=value`; a point is two
numbers, a text that is asked for is the rest of the line as it stands. `ctrl+a` among
keys is a hotkey. The wire format's JSON is taken as well, with its blocks or bare.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from openwebrl_jax.agent import grammar, prompts
from openwebrl_jax.core.types import ToolCall

SCHEMAS: Mapping[str, Any] = {
    tool["function"]["name"]: tool["function"] for tool in prompts.TOOLS
}
_NAMED = re.compile(r"(\w+)=(.+)")


def read(line: str) -> tuple[ToolCall, ...]:
    """The calls of a line; a ValueError says in one line what is wrong with it."""
    line = line.strip()
    if line.startswith(("{", "[")):
        line = f"{grammar.CALL_OPEN}{line}{grammar.CALL_CLOSE}"
    if line.startswith(grammar.CALL_OPEN):
        parsed = grammar.parse(line, open_think=False, lenient=True)
        if parsed.error:
            raise ValueError(parsed.complaint)
        return parsed.calls
    name, _, rest = line.partition(" ")
    if name not in SCHEMAS:
        near = difflib.get_close_matches(name, SCHEMAS, n=1) or ["help"]
        raise ValueError(f"there is no tool {name!r}; did you mean {near[0]!r}?")
    parameters = SCHEMAS[name]["parameters"]
    return (ToolCall(name=name, arguments=_arguments(name, parameters, rest)),)


def usage(name: str = "") -> str:
    """How to type a tool, or all of them."""
    if name and name not in SCHEMAS:
        raise ValueError(f"there is no tool {name!r}; they are {', '.join(SCHEMAS)}")
    return "\n".join(
        f"{_form(schema):<44} {schema['description']}"
        for tool, schema in SCHEMAS.items()
        if name in ("", tool)
    )


def _form(schema: Mapping[str, Any]) -> str:
    """Example: `click X Y [clicks] [button]`."""
    required = schema["parameters"]["required"]
    words = [schema["name"]]
    for name, kind in schema["parameters"]["properties"].items():
        if _is_point(kind):
            word = name.removesuffix("point_2d").replace("_", " ") + "X Y"
        else:
            word = name.upper() if name in required else name
        words.append(word if name in required else f"[{word}]")
    return " ".join(words)


def _arguments(tool: str, parameters: Mapping[str, Any], rest: str) -> dict[str, Any]:
    properties, required = parameters["properties"], parameters["required"]
    if [properties[name]["type"] for name in required] == ["string"]:
        return {required[0]: rest}
    words, made = rest.split(), {}
    for word in list(words):
        named = _NAMED.fullmatch(word)
        if named and named[1] in properties:
            kind = properties[named[1]]
            parts = named[2].strip("[]").split(",") if _is_point(kind) else [named[2]]
            made[named[1]] = _value(named[1], kind, parts, made)
            words.remove(word)
    for name, kind in properties.items():
        if words and name not in made:
            made[name] = _value(name, kind, words, made)
    if words:
        raise ValueError(f"{tool}: {' '.join(words)!r} is too much; {usage(tool)}")
    if missing := [name for name in required if name not in made]:
        raise ValueError(f"{tool}: {', '.join(missing)} is missing; {usage(tool)}")
    return made


def _value(name: str, kind: Any, words: list[str], made: dict[str, Any]) -> Any:
    """Takes an argument's words off the front."""
    if _is_point(kind):
        if len(words) < 2:
            raise ValueError(f"{name} is two numbers, got {' '.join(words)!r}")
        return [_number(name, words.pop(0)) for _ in range(2)]
    if kind["type"] == "array":
        keys, words[:] = list(words), []
        if len(keys) == 1 and "+" in keys[0].strip("+"):
            made["is_hotkey"] = True
            return keys[0].split("+")
        return keys
    word = words.pop(0)
    if kind["type"] in ("integer", "number"):
        return _number(name, word)
    if kind["type"] == "boolean":
        return word.casefold() in ("true", "yes", "1")
    return word


def _number(name: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise ValueError(f"{name} is a number, got {word!r}") from None
    return int(value) if value.is_integer() else value


def _is_point(kind: Mapping[str, Any]) -> bool:
    return kind["type"] == "array" and kind["items"]["type"] == "number"
