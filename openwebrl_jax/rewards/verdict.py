"""What a judge says, read strictly: one structured field, or nothing.

A reply with braces is one JSON object or nothing: cut inside its reason, it could seem
to end in a verdict that it only speaks of. One without is free text of a judge that
does not obey; there the last line must be a verdict and nothing else, lest words of a
page are taken for one, and no other verdict may differ. Nothing is looked for inside
of words or sentences.
"""

import json
import re
from typing import Any

_VERDICTS = {
    "success": 1.0,
    "failure": 0.0,
    "not success": 0.0,
    "unsuccessful": 0.0,
}
_WORDS = "|".join(word.replace(" ", r"\s+") for word in (*_VERDICTS,))
_LABELLED = re.compile(rf"\bverdict\s*[:=]\s*({_WORDS})\b", re.IGNORECASE)
_LABEL = re.compile(r"\bverdict\s*[:=]", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"|“[^”]*”')


def read(text: str) -> float | None:
    """1.0 or 0.0 as the judge says; None = it does not say exactly one of them."""
    text = text.strip()
    if "{" in text:
        return _agreed([value for name, value in _pairs(text) if name == "verdict"])
    # A mark stays where a quotation was: a negation in quotes is not to be lost.
    plain = re.sub(r"[*_`#]", "", _QUOTED.sub('"', text)).rstrip(" \n.!")
    if (word := " ".join(plain.split()).casefold()) in _VERDICTS:
        return _VERDICTS[word]
    if not _LABELLED.fullmatch(plain.rpartition("\n")[2].strip()):
        return None
    found = [_LABELLED.match(plain, label.start()) for label in _LABEL.finditer(plain)]
    return _agreed([match and match[1] for match in found])


def numbers(text: str, ranges: dict[str, tuple[int, int]]) -> dict[str, int] | None:
    """Whole numbers by name, each given once and within its range; None = they are not.

    Example: numbers('{"score": 4}', {"score": (1, 5)}) -> {"score": 4}.
    """
    pairs = _pairs(text)
    found = {}
    for name, (low, high) in ranges.items():
        given = [value for key, value in pairs if key == name]
        if len(given) != 1 or type(given[0]) is not int or not low <= given[0] <= high:
            return None
        found[name] = given[0]
    return found


def texts(text: str, name: str) -> list[str] | None:
    """A list of texts that is not empty, given once by that name; None = it is not."""
    given = [value for key, value in _pairs(text) if key == name]
    if len(given) != 1 or not isinstance(given[0], list) or not given[0]:
        return None
    found = given[0]
    return (
        found if all(isinstance(each, str) and each.strip() for each in found) else None
    )


def word(text: str, name: str) -> str:
    """A text that is given once by that name; "" = it is not."""
    given = [value for key, value in _pairs(text) if key == name]
    return given[0] if len(given) == 1 and isinstance(given[0], str) else ""


class _Object(list):
    """Name and value of each field of a JSON object, in order, doubles included."""


def _pairs(text: str) -> _Object:
    """The fields of a reply that is one JSON object; none of any other reply."""
    bare = re.sub(r"^```\w*\s*|\s*```$", "", text.strip())
    try:
        value = json.loads(bare, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return _Object()
    return value if isinstance(value, _Object) else _Object()


def _agreed(words: list[Any]) -> float | None:
    """The one value that all the words mean, else None."""
    values = {
        _VERDICTS.get(" ".join(word.casefold().split()))
        if isinstance(word, str)
        else None
        for word in words
    }
    return values.pop() if len(values) == 1 else None
