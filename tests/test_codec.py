"""The codec: every supported type round-trips, everything else is refused with its place."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from perdure.codec import (
    PAYLOAD_LIMIT,
    UnsupportedAnnotation,
    codec_for,
    decode,
    encode,
    from_json,
    to_json,
)
from perdure.errors import LimitExceeded, PayloadError
from perdure.ids import Id


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Email(str):
    __slots__ = ()


class Cents(int):
    pass


class Point(NamedTuple):
    x: int
    y: float


class Movie(TypedDict):
    title: str
    year: int


@dataclasses.dataclass(frozen=True)
class Line:
    product: str
    amount: int = 1


@dataclasses.dataclass
class Order:
    id: Id
    lines: list[Line]
    paid: datetime | None = None
    marks: set[str] = dataclasses.field(default_factory=set)


class Struct(msgspec.Struct):
    a: int
    b: bytes = b""


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    name: str


@attrs.define
class Attrs:
    a: int
    b: list[Line]


class Model(pydantic.BaseModel):
    when: datetime
    price: Decimal
    weights: dict[int, float] = {}
    colour: Colour = Colour.RED
    named: str = pydantic.Field(default="", alias="Named")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> Decimal:
        return self.price * 2


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    model: Model | None = None


@dataclasses.dataclass
class HoldsModel:
    models: list[Model]


NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
MODEL = Model(when=NOW, price=Decimal("1.50"), weights={1: 2.5}, Named="n")
AN_ID = Id(b"\x01" + bytes(range(18)))

ROUND_TRIPS: list[tuple[Any, Any]] = [
    (None, None),
    (type(None), None),
    (bool, True),
    (int, -(2**63)),
    (int, 2**64 - 1),
    (float, -0.0),
    (float, math.inf),
    (float, -math.inf),
    (str, "naïve \U0001f600\x00"),
    (bytes, bytes(range(256))),
    (bytearray, bytearray(b"\xff")),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"a", "b"}),
    (frozenset[int], frozenset([1])),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {1: "a", -1: "b"}),
    (dict[tuple[int, int], str], {(1, 2): "a"}),
    (dict[Id, int], {AN_ID: 1}),
    (dict[date, int], {date(2024, 1, 1): 1}),
    (dict[int | str, int], {1: 1, "1": 2}),
    (Mapping[str, int], {"a": 1}),
    (Sequence[int], [1]),
    (Line, Line("tea", 2)),
    (Order, Order(AN_ID, [Line("tea")], NOW, {"a"})),
    (list[Order], [Order(AN_ID, [])]),
    (Struct, Struct(1, b"\x00")),
    (Cat | Dog, Dog("rex")),
    (Movie, {"title": "Brazil", "year": 1985}),
    (Attrs, Attrs(1, [Line("a")])),
    (Point, Point(1, math.inf)),
    (Colour, Colour.BLUE),
    (Size, Size.SMALL),
    (Access, Access.READ | Access.WRITE),
    (Literal["a", 1], 1),
    (Email, Email("a@b.c")),
    (Cents, Cents(3)),
    (datetime, NOW),
    (datetime, NOW.replace(tzinfo=None)),
    (date, date.max),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (UUID, UUID(int=5)),
    (Decimal, Decimal("1.10")),
    (Id, AN_ID),
    (Id | None, AN_ID),
    (Model, MODEL),
    (Model | None, None),
    (list[Model], [MODEL]),
    (StrictModel, StrictModel(model=MODEL)),
    (HoldsModel, HoldsModel([MODEL])),
    (int | str | None, "x"),
    (Annotated[list[int], ["unhashable"]], [1]),
    (object, {"a": [1]}),
    (Any, {"a": [1, None, 2.5, b"x", True], 2: "b", None: 3, (1, 2): 4, 1.5: 5, b"k": 6}),
]


@pytest.mark.parametrize(("annotation", "value"), ROUND_TRIPS)
def test_round_trip(annotation: Any, value: Any) -> None:
    codec = codec_for(annotation)
    restored = codec.decode(codec.encode(value))
    assert restored == value
    assert type(restored) is type(value)
    assert codec.check(value) == value


@pytest.mark.parametrize("annotation", [float, Any, list[float]])
def test_nan_round_trips(annotation: Any) -> None:
    value: Any = [math.nan] if annotation == list[float] else math.nan
    restored = codec_for(annotation).check(value)
    assert math.isnan(restored[0] if isinstance(restored, list) else restored)


def test_negative_zero_keeps_its_sign() -> None:
    assert math.copysign(1, codec_for(float).check(-0.0)) == -1


def test_aware_datetime_keeps_the_instant_and_comes_back_in_utc() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    restored = codec_for(datetime).check(there)
    assert restored == there
    assert restored.tzinfo is UTC


def test_untyped_decoding_gives_builtins() -> None:
    assert decode(encode(Order(AN_ID, [Line("tea")]))) == {
        "id": str(AN_ID),
        "lines": [{"product": "tea", "amount": 1}],
        "paid": None,
        "marks": [],
    }
    assert decode(encode((1, {2}))) == [1, [2]]
    assert decode(encode(OrderedDict(a=Point(1, 2)))) == {"a": [1, 2]}
    assert decode(encode(UUID(int=1))) == str(UUID(int=1))


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=20,
)  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equality in which NaN equals NaN and 1 does not equal True or 1.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right) or (left != left and right != right)


@given(json_like)
def test_any_plain_value_round_trips_and_can_be_shown(value: Any) -> None:
    data = encode(value)
    assert same(decode(data), value)
    assert encode(decode(data)) == data
    json.loads(to_json(data))


@given(
    st.timedeltas(),
    st.datetimes(timezones=st.timezones()),
    st.times(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
def test_scalars_round_trip(
    delta: timedelta, when: datetime, clock: time, number: Decimal, unique: UUID
) -> None:
    assert codec_for(timedelta).check(delta) == delta
    assert codec_for(time).check(clock) == clock
    assert str(codec_for(Decimal).check(number)) == str(number)
    assert codec_for(UUID).check(unique) == unique
    try:
        instant = when.astimezone(UTC)
    except OverflowError:
        return
    assert codec_for(datetime).check(when) == instant


def recursive_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep_list() -> list[Any]:
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit() * 5):
        value = [value]
    return value


class FailingModel(pydantic.BaseModel):
    value: int

    @pydantic.field_serializer("value")
    def _refuse(self, value: int) -> int:
        raise RuntimeError("no")


REFUSED: list[tuple[Any, str, str]] = [
    (object(), "$", "type object"),
    (1j, "$", "type complex"),
    (int, "$", "type type"),
    (Order, "$", "type type"),
    ({"a": [1, object()]}, "$['a'][1]", "type object"),
    ({1j: 1}, "$.keys()[0]", "type complex"),
    ((1, {"x": {2: ...}}), "$[1]['x'][2]", "type ellipsis"),
    (Order(AN_ID, [Line("a"), Line(object())]), "$.lines[1].product", "object"),  # type: ignore[arg-type]
    (Struct(object()), "$.a", "object"),  # type: ignore[arg-type]
    (Attrs(1, [Line("a", 1j)]), "$.b[0].amount", "complex"),  # type: ignore[arg-type]
    (Point(1, object()), "$.y", "object"),  # type: ignore[arg-type]
    (2**64, "$", "64 bits: store larger ones as str"),
    (-(2**63) - 1, "$", "64 bits: store larger ones as str"),
    ({"n": [2**70]}, "$['n'][0]", "64 bits"),
    (Cents(2**70), "$", "64 bits"),
    ("\ud800", "$", "lone surrogates"),
    ({"k\ud800": 1}, "$.keys()[0]", "lone surrogates"),
    (recursive_list(), "$", "contains itself"),
    (deep_list(), "$", "nested too deeply"),
    ([FailingModel(value=1)], "$[0]", "FailingModel"),
    ([lambda: 1], "$[0]", "type function"),
]


@pytest.mark.parametrize(("value", "path", "problem"), REFUSED)
def test_what_cannot_be_stored_is_named_with_its_place(value: Any, path: str, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode(value)
    assert caught.value.path == path
    assert problem in caught.value.problem
    assert caught.value.__cause__ is not None


MISFITS: list[tuple[Any, Any, str, str]] = [
    (int, "x", "$", "Expected `int`, got `str`"),
    (int, 1.5, "$", "Expected `int`"),
    (None, 1, "$", "Expected `null`"),
    (Line, {"product": 1}, "$.product", "Expected `str`, got `int`"),
    (Line, {}, "$", "missing required field `product`"),
    (dict[str, list[int]], {"a": [1, "b"]}, "$[...][1]", "Expected `int`"),
    (Colour, "green", "$", "Invalid enum value"),
    (Id, "short", "$", "30 characters"),
    (Id, 5, "$", "perdure.ids.Id"),
    (list[Model], [{}], "$[0]", "price"),
    (HoldsModel, {"models": [{"when": "x", "price": 1}]}, "$.models[0]", "when"),
    (Email, 5, "$", "Email"),
    (complex, 1, "$", "complex"),
    (UUID, "x", "$", "UUID"),
]


@pytest.mark.parametrize(("annotation", "value", "path", "problem"), MISFITS)
def test_wrong_type_is_named_with_its_place(
    annotation: Any, value: Any, path: str, problem: str
) -> None:
    codec = codec_for(annotation)
    with pytest.raises(PayloadError) as caught:
        codec.decode(encode(value))
    assert caught.value.path == path
    assert problem in caught.value.problem
    assert caught.value.__cause__ is not None
    with pytest.raises(PayloadError):
        codec.check(value)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", encode([1, 2])[:-1], encode(1) + b"\x00", b"\xa1\xff", b"\x91" * 100_000]
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    for annotation in (Any, Line, str):
        with pytest.raises(PayloadError):
            codec_for(annotation).decode(data)
    with pytest.raises(PayloadError):
        to_json(data)


def test_unknown_fields_are_dropped() -> None:
    newer = {"product": "tea", "amount": 2, "colour": "green"}
    assert codec_for(Line).decode(encode(newer)) == Line("tea", 2)


class Mixed(enum.Enum):
    TEXT = "a"
    NUMBER = 1


@pytest.mark.parametrize("annotation", [Line | Order, str | datetime, Model | int, list[Mixed]])
def test_ambiguous_annotation_is_refused_early(annotation: Any) -> None:
    with pytest.raises(UnsupportedAnnotation, match="tell the members apart"):
        codec_for(annotation)


def test_limit_is_enforced_and_named() -> None:
    overhead = len(encode(b"x" * 100_000)) - 100_000
    fits = b"x" * (PAYLOAD_LIMIT - overhead)
    assert codec_for(bytes).check(fits) == fits
    with pytest.raises(LimitExceeded, match="pass a reference") as caught:
        encode(fits + b"x")
    assert caught.value.limit == PAYLOAD_LIMIT
    assert caught.value.size == PAYLOAD_LIMIT + 1


def test_codecs_are_remembered() -> None:
    assert codec_for(list[Line]) is codec_for(list[Line])
    assert repr(codec_for(Line)) == f"Codec({__name__}.Line)"


def test_json_for_reading() -> None:
    value = {"b": b"\x00\xff", "n": math.nan, "i": [math.inf, -math.inf], 1: None, (1, 2): "é"}
    assert to_json(encode(value)) == (
        '{"b": "AP8=", "n": "NaN", "i": ["Infinity", "-Infinity"], "1": null, "[1, 2]": "é"}'
    )
    assert to_json(encode({1: "a", "1": "b"})) == '[[1, "a"], ["1", "b"]]'
    assert to_json(encode(NOW)) == f'"{NOW.isoformat()}"'
    assert to_json(encode([1]), indent=1) == "[\n 1\n]"


def test_json_from_people() -> None:
    assert decode(from_json('{"a": [1, 2.5, null, true, "x"]}')) == {"a": [1, 2.5, None, True, "x"]}
    assert codec_for(Line).decode(from_json('{"product": "tea"}')) == Line("tea")
    with pytest.raises(PayloadError, match="line 2, column 2"):
        from_json("{\n x}")
    with pytest.raises(PayloadError, match="64 bits"):
        from_json(str(2**64))
    with pytest.raises(PayloadError, match="nested too deeply"):
        from_json("[" * 100_000)
