"""User values to bytes and back: one fixed format for everything users hand us.

The format is MessagePack by way of msgspec. JSON was the other candidate; it loses NaN, bytes and
dict keys that are not text, and a value that changes on its way through a crash is the worst kind
of bug. Pickle was refused: stored class paths would tie histories to yesterday's code.

Encoding looks only at the value, decoding only at the annotation. So a value is stored without its
types, and comes back as what the code says today:

* builtins, dataclasses, attrs, `msgspec.Struct`, `TypedDict`, `NamedTuple`, `Enum`, `UUID`,
  `Decimal`, dates, times, unions and `Optional` of them, pydantic models and `Id` are supported;
* subclasses of `str`, `int`, `float` and `bytes` are stored as their base;
* without an annotation (`Any`) records become dicts, tuples and sets become lists, and what
  MessagePack does not know (dates, UUIDs, ids...) becomes text;
* an aware `datetime` comes back in UTC: the same instant, not the same zone;
* an object with unknown extra fields is accepted and the fields are dropped, so that a newer writer
  does not break an older reader. A missing field without a default is an error.

A first run sees the value as the user made it, a replay sees it decoded. Where that difference
could matter, use `Codec.check`, which returns the value as a replay will see it.

Plain types never pass through a Python hook: a small dataclass takes about a microsecond each way.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from perdure.errors import CallerError, LimitExceeded, PayloadError
from perdure.ids import Id, InvalidId

__all__ = [
    "PAYLOAD_LIMIT",
    "Codec",
    "UnsupportedAnnotation",
    "codec_for",
    "decode",
    "encode",
    "from_json",
    "to_json",
]

T = TypeVar("T")

PAYLOAD_LIMIT: Final = 8 * 1024 * 1024
"""The largest encoded value, in bytes."""

_TOO_DEEP = "nested too deeply, or it contains itself"
_SUPPORTED = (
    "use builtins, dates, UUID, Decimal, Enum, dataclasses, attrs, msgspec or pydantic types, "
    "or convert it first"
)
_WAY_OUT = (
    "Stored values must tell the members apart: give the members of a union a tag "
    "(msgspec.Struct with tag=...), and the members of an Enum values of one type"
)
_PLAIN_BASES: Final[tuple[type[Any], ...]] = (str, bytes, float, int)


class UnsupportedAnnotation(CallerError):
    """No codec can be built for an annotation. `annotation` is its text."""

    code = "caller.unsupported_annotation"

    def __init__(self, annotation: str, problem: str) -> None:
        super().__init__(f"values annotated as {annotation} cannot be stored: {problem}")
        self.annotation = annotation
        self.problem = problem


def encode(value: object) -> bytes:
    """Encode any supported value. Raises `PayloadError`, or `LimitExceeded` past the limit."""
    try:
        data = _encode(value)
    except MemoryError:
        raise
    except Exception as error:
        raise _cannot_store(value, error) from error
    if len(data) > PAYLOAD_LIMIT:
        raise LimitExceeded(
            f"the encoded size in bytes of a value of type {_type_name(type(value))}",
            len(data),
            PAYLOAD_LIMIT,
            advice="keep large data elsewhere and pass a reference to it",
        )
    return data


def decode(data: bytes) -> Any:
    """Decode without an annotation: only builtins come back. Raises `PayloadError`."""
    return _ANY.decode(data)


class Codec(Generic[T]):
    """Encodes values and decodes them as one annotation. Made by `codec_for`; safe to share."""

    __slots__ = ("_decode", "annotation")

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        try:
            decoder = msgspec.msgpack.Decoder(annotation, dec_hook=_restore)
        except Exception as error:
            problem = f"{error}. {_WAY_OUT}"
            raise UnsupportedAnnotation(_type_name(annotation), problem) from error
        self._decode: Callable[[bytes], T] = decoder.decode

    def encode(self, value: T) -> bytes:
        """Encode `value`. It is not checked against the annotation: see `check`.

        Raises `PayloadError` when it cannot be stored, `LimitExceeded` when it is too large.
        """
        return encode(value)

    def decode(self, data: bytes) -> T:
        """Decode bytes made by `encode`. Raises `PayloadError` when they do not fit."""
        try:
            return self._decode(data)
        except MemoryError:
            raise
        except Exception as error:
            raise _cannot_read(error) from error

    def check(self, value: T) -> T:
        """Return `value` as it will come back from the store, or raise what would go wrong."""
        return self.decode(encode(value))

    def __repr__(self) -> str:
        return f"Codec({_type_name(self.annotation)})"


@overload
def codec_for(annotation: type[T]) -> Codec[T]: ...
@overload
def codec_for(annotation: object) -> Codec[Any]: ...
def codec_for(annotation: object) -> Codec[Any]:
    """Return the codec of an annotation; building is slow (tens of µs), so codecs are remembered.

    Raises `UnsupportedAnnotation` when values of it could not be told apart or restored.
    """
    try:
        return _remembered_codec(annotation)
    except TypeError:
        # Annotated[...] with unhashable metadata cannot be a dictionary key.
        return Codec(annotation)


@lru_cache(maxsize=4096)
def _remembered_codec(annotation: object) -> Codec[Any]:
    return Codec(annotation)


def _reduce(value: object) -> object:
    """Turn a value that msgspec does not know into one that it knows."""
    if isinstance(value, Id):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json", by_alias=True, round_trip=True)
    for base in _PLAIN_BASES:
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"objects of type {_type_name(type(value))} cannot be stored: {_SUPPORTED}")


def _restore(expected: Any, stored: Any) -> Any:
    """Undo `_reduce` for a type that msgspec does not know."""
    if expected is object:
        return stored
    if expected is Id and isinstance(stored, str):
        try:
            return Id.parse(stored)
        except InvalidId as error:
            raise ValueError(error.message) from error
    validate = getattr(expected, "model_validate", None)
    if validate is not None:
        return validate(stored)
    for base in _PLAIN_BASES:
        if isinstance(expected, type) and issubclass(expected, base) and isinstance(stored, base):
            return expected(stored)
    raise TypeError(f"Expected `{_type_name(expected)}`, got `{_type_name(type(stored))}`")


_encode = msgspec.msgpack.Encoder(enc_hook=_reduce).encode
_ANY: Codec[Any] = Codec(Any)


def _cannot_store(value: object, error: Exception) -> PayloadError:
    if isinstance(error, RecursionError):
        return PayloadError("$", _TOO_DEEP)
    path, culprit = "$", value
    while (found := _failing_child(culprit)) is not None:
        step, culprit, error = found
        path += step
    return PayloadError(path, _problem(culprit, error))


def _problem(culprit: object, error: Exception) -> str:
    match error:
        case OverflowError():
            return "whole numbers must fit in 64 bits: store larger ones as str"
        case UnicodeEncodeError():
            return "text with lone surrogates cannot be stored: it is not valid Unicode"
        case RecursionError():
            return _TOO_DEEP
        case TypeError():
            return str(error)
        case _:
            name = _type_name(type(culprit))
            return f"objects of type {name} cannot be stored: {type(error).__name__}: {error}"


def _failing_child(value: object) -> tuple[str, object, Exception] | None:
    """Return the first part of `value` that cannot be stored by itself, and why."""
    for step, child in _children(value):
        try:
            _encode(child)
        except Exception as error:
            return step, child, error
    return None


def _children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for index, (key, item) in enumerate(value.items()):
            yield f".keys()[{index}]", key
            yield f"[{key!r:.100}]", item
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif not isinstance(value, type):
        for name in _field_names(value):
            yield f".{name}", getattr(value, name, None)


def _field_names(value: object) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    attributes = getattr(type(value), "__attrs_attrs__", None)
    if attributes is not None:
        return [attribute.name for attribute in attributes]
    return list(getattr(type(value), "model_fields", ()))


_PATH_SUFFIX = re.compile(r"(?s)(.*) - at `(\$.*)`\Z")


def _cannot_read(error: Exception) -> PayloadError:
    if isinstance(error, RecursionError):
        return PayloadError("$", _TOO_DEEP)
    # msgspec tells the place only in its text; if that form ever changes the place becomes `$`.
    match = _PATH_SUFFIX.fullmatch(str(error))
    if match is None:
        return PayloadError("$", str(error))
    return PayloadError(match[2], match[1])


def _type_name(annotation: object) -> str:
    if not isinstance(annotation, type):
        return str(annotation).removeprefix("typing.")
    if annotation.__module__ == "builtins":
        return annotation.__qualname__
    return f"{annotation.__module__}.{annotation.__qualname__}"


def to_json(data: bytes, *, indent: int | None = None) -> str:
    """Show stored bytes as JSON for people and tools. Raises `PayloadError` if they are damaged.

    Bytes are shown as base64, numbers that JSON lacks as "NaN", "Infinity" and "-Infinity", keys as
    text. A map whose keys would collide as text is shown as a list of pairs. So this is for people
    to read: `from_json` gives the same value back only for what JSON itself can say.
    """
    value = decode(data)
    try:
        return json.dumps(_readable(value), ensure_ascii=False, indent=indent, allow_nan=False)
    except RecursionError as error:
        raise PayloadError("$", _TOO_DEEP) from error


def from_json(text: str) -> bytes:
    """Encode a JSON text. Raises `PayloadError`, with the place when it is not JSON."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise PayloadError("$", f"not JSON: {error.msg} at {place}") from error
    except RecursionError as error:
        raise PayloadError("$", _TOO_DEEP) from error
    return encode(value)


def _readable(value: object) -> object:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if value != value:  # noqa: PLR0124 - the definition of NaN
            return "NaN"
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [_readable(item) for item in value]
        case dict():
            shown = {_readable_key(key): _readable(item) for key, item in value.items()}
            if len(shown) == len(value):
                return shown
            return [[_readable(key), _readable(item)] for key, item in value.items()]
        case _:
            return value


def _readable_key(key: object) -> str:
    shown = _readable(key)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
