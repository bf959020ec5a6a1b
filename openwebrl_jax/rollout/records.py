"""Records of `core.types` <-> JSON values, by the type hints of their fields.

Bytes (screenshots) stay out of the JSON: they are put into `blobs` under their sha256,
and the name stands in their place. Numbers, texts and None come back exactly.
"""

import dataclasses
import enum
import functools
import hashlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Blobs = dict[str, bytes]
Decoder = Callable[[Any, Mapping[str, bytes]], Any]


def to_json(value: Any, blobs: Blobs | None = None) -> Any:
    """The record, or a value inside one, as what `json` can write."""
    if dataclasses.is_dataclass(value):
        return {
            name: to_json(getattr(value, name), blobs) for name in _names(type(value))
        }
    if isinstance(value, bytes):
        if blobs is None:
            raise ValueError("bytes in a record that is to be JSON alone")
        name = hashlib.sha256(value).hexdigest()
        blobs[name] = value
        return name
    if isinstance(value, Mapping):
        return {key: to_json(item, blobs) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item, blobs) for item in value]
    return value


def from_json(kind: Any, value: Any, blobs: Mapping[str, bytes] | None = None) -> Any:
    """The record of type `kind` that `to_json` made `value` of."""
    return _decoder(kind)(value, blobs or {})


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.cache
def _decoder(kind: Any) -> Decoder:
    """How a value of one type is read; what JSON has itself is left as it is."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record_decoder(typing.cast(type, kind))
    if kind is bytes:
        return lambda value, blobs: blobs[value]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda value, blobs: kind(value)
    if origin in (types.UnionType, typing.Union):
        (present,) = (part for part in inner if part is not types.NoneType)
        decode = _decoder(present)
        return lambda value, blobs: None if value is None else decode(value, blobs)
    if origin is Mapping and dataclasses.is_dataclass(inner[1]):
        decode_item = _decoder(inner[1])
        return lambda value, blobs: {
            key: decode_item(item, blobs) for key, item in value.items()
        }
    if origin is tuple:
        return _tuple_decoder(inner[0])
    return lambda value, blobs: value


def _tuple_decoder(kind: Any) -> Decoder:
    if kind in (int, float, str):
        return lambda value, blobs: tuple(value)
    decode = _decoder(kind)
    return lambda value, blobs: tuple(decode(item, blobs) for item in value)


def _record_decoder(kind: type) -> Decoder:
    """Fields that the value lacks take their defaults: older files stay readable."""
    hints = typing.get_type_hints(kind)
    decoders = {name: _decoder(hints[name]) for name in _names(kind)}

    def decode(value: Any, blobs: Mapping[str, bytes]) -> Any:
        return kind(
            **{name: decoders[name](item, blobs) for name, item in value.items()}
        )

    return decode
