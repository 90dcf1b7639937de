"""Packed tuples: equal to FoundationDB's own encoder, ordered, and back again unchanged."""

import enum
import functools
import importlib.util
import math
import struct
import sys
import types
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from perdure.ids import Id
from perdure.kv import tuple as tuples
from perdure.kv.subspace import Subspace
from perdure.kv.tuple import MalformedKey, Unpackable, Versionstamp, pack, unpack


def load_reference() -> Any:
    """Load `fdb.tuple` alone: the package around it wants a native client library."""
    package = importlib.util.find_spec("fdb")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / "tuple.py"
    stub = types.ModuleType("fdb")
    stub.impl = types.SimpleNamespace(Value=type("Value", (), {}))  # type: ignore[attr-defined]
    stub.is_api_version_selected = lambda: False  # type: ignore[attr-defined]
    before = sys.modules.get("fdb")
    sys.modules["fdb"] = stub
    try:
        spec = importlib.util.spec_from_file_location("reference_tuple", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules["fdb"]
        else:
            sys.modules["fdb"] = before
    return module


reference = load_reference()

QUIET_NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
NEGATIVE_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000abc"))[0]

edges = st.builds(
    lambda sign, power, delta: sign * (1 << power) + delta,
    st.sampled_from([-1, 1]),
    st.integers(0, 2039),
    st.integers(-2, 2),
).filter(lambda value: abs(value) < 1 << 2040)
integers = st.integers(-(1 << 70), 1 << 70) | st.integers(-2000, 2000) | edges
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text("\x00\x01ab", max_size=4)
blobs = st.binary(max_size=40) | st.lists(st.sampled_from(b"\x00\xff\x01"), max_size=5).map(bytes)
floats = st.floats() | st.sampled_from([0.0, -0.0, QUIET_NAN, NEGATIVE_NAN, math.inf, -math.inf])
stamps = st.builds(
    Versionstamp,
    st.binary(min_size=10, max_size=10).filter(lambda raw: raw != b"\xff" * 10),
    st.integers(0, 65535),
)
leaves = st.none() | blobs | texts | integers | floats | st.booleans() | st.uuids() | stamps
elements = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)
keys = st.lists(elements, max_size=6).map(tuple)
ids = st.builds(
    lambda random, label: Id.new(label, lambda _: random),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
)
coordinates = st.lists(st.integers(0, 2000), max_size=4).map(tuple)
engine_keys = st.lists(
    ids | st.integers(0, 1 << 50) | texts | coordinates | st.none(), max_size=6
).map(tuple)


def to_reference(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(to_reference(child) for child in value)
    if isinstance(value, Versionstamp):
        return reference.Versionstamp(value.transaction, value.order)
    return value


def identity(value: Any) -> Any:
    """A form in which equal means same type and same bits."""
    if isinstance(value, tuple):
        return tuple(identity(child) for child in value)
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    return (type(value).__name__, value)


@given(keys)
@example(((None,), None, ((None, None), (), None)))
@example((0.0, -0.0, QUIET_NAN, NEGATIVE_NAN))
@example((2**64 - 2, 2**64 - 1, 2**64, -(2**64) + 2, -(2**64) + 1, -(2**64)))
@example(("a\x00b", b"\x00", b"\x00\xff", ("\x00",), "\uffff\U0001f600"))
@example((True, 1, False, 0, 255, 256, 1023, 1024, -1, -255, -256, (1023, 1024, -1)))
def test_packs_byte_for_byte_like_foundationdb(key: tuple[Any, ...]) -> None:
    assert pack(key) == reference.pack(to_reference(key))
    assert pack(key, b"prefix") == reference.pack(to_reference(key), b"prefix")
    assert tuples.range(key) == (pack(key) + b"\x00", pack(key) + b"\xff")


@given(keys)
def test_reads_what_foundationdb_packed(key: tuple[Any, ...]) -> None:
    assert identity(unpack(reference.pack(to_reference(key)))) == identity(key)


@given(engine_keys)
def test_ids_come_back_as_ids(key: tuple[Any, ...]) -> None:
    assert identity(unpack(pack(key))) == identity(key)
    assert unpack(b"skipped" + pack(key), 7) == key


@given(ids)
def test_an_id_is_user_type_40_and_its_bytes(some_id: Id) -> None:
    assert pack((some_id,)) == b"\x40" + bytes(some_id)
    assert pack(((some_id,),)) == b"\x05\x40" + bytes(some_id) + b"\x00"
    # The same 19 bytes as plain bytes are another value.
    assert pack((bytes(some_id),))[0] == 0x01


@given(st.lists(keys, min_size=2, max_size=12))
def test_keys_sort_like_foundationdb_sorts_tuples(some: list[tuple[Any, ...]]) -> None:
    by_tuple = sorted(
        some,
        key=functools.cmp_to_key(lambda a, b: reference.compare(to_reference(a), to_reference(b))),
    )
    assert [pack(key) for key in by_tuple] == sorted(pack(key) for key in some)


@given(
    st.lists(integers, min_size=2)
    | st.lists(texts, min_size=2)
    | st.lists(blobs, min_size=2)
    | st.lists(coordinates, min_size=2)
    | st.lists(ids, min_size=2)
    | st.lists(stamps, min_size=2)
)
def test_keys_sort_like_python_sorts_values_of_one_type(some: list[Any]) -> None:
    assert sorted(some, key=lambda value: pack((value,))) == sorted(some)


@given(keys, elements, keys)
def test_a_range_holds_what_is_longer_and_nothing_else(
    key: tuple[Any, ...], child: Any, other: tuple[Any, ...]
) -> None:
    begin, end = tuples.range(key)
    assert begin <= pack((*key, child)) < end
    assert not begin <= pack(key) < end
    inside = len(other) > len(key) and identity(other[: len(key)]) == identity(key)
    assert (begin <= pack(other) < end) == inside


class Colour(enum.IntEnum):
    RED = 7


class Name(str):
    __slots__ = ()


class Raw(bytes):
    __slots__ = ()


def test_subclasses_pack_as_what_they_are() -> None:
    assert pack((Colour.RED, Name("x"), Raw(b"y"))) == pack((7, "x", b"y"))
    assert pack(((Colour.RED, True),)) == reference.pack(((7, True),))


@pytest.mark.parametrize(
    "value",
    [[1], {1}, object(), 1j, bytearray(b"x"), memoryview(b"x"), "\ud800", 1 << 2040, -(1 << 2040)],
)
def test_what_has_no_encoding_is_refused(value: Any) -> None:
    with pytest.raises(Unpackable):
        pack((value,))
    with pytest.raises(Unpackable):
        pack((1, ("a", value)))


def test_the_longest_integers_still_pack() -> None:
    for value in ((1 << 2040) - 1, 1 - (1 << 2040)):
        assert pack((value,)) == reference.pack((value,))
        assert unpack(pack((value,))) == (value,)


@pytest.mark.parametrize(
    ("stamp", "order"), [(b"short", 0), (b"\xff" * 10, 0), (b"0" * 10, -1), (b"0" * 10, 65536)]
)
def test_only_complete_version_stamps_exist(stamp: bytes, order: int) -> None:
    with pytest.raises(Unpackable):
        Versionstamp(stamp, order)


@pytest.mark.parametrize(
    "key",
    [
        b"\x01abc", b"\x01a\x00\xff", b"\x02a", b"\x02\xff\x00",
        b"\x05", b"\x05\x15\x01", b"\x05\x00\xff",
        b"\x15", b"\x1c\x01", b"\x0c\x01", b"\x13", b"\x05\x16\x01",
        b"\x1d", b"\x1d\x09\x01", b"\x0b", b"\x0b\xf6\x01",
        b"\x21\x00", b"\x30\x00", b"\x33\x00", b"\x33" + b"\xff" * 12,
        b"\x40\x01", b"\x40" + b"\x09" * 19, b"\x03", b"\x20\x00\x00\x00\x00", b"\xff", b"\x41",
    ],
)  # fmt: skip
def test_damaged_keys_are_refused_by_name(key: bytes) -> None:
    with pytest.raises(MalformedKey) as caught:
        unpack(key)
    assert caught.value.key == key


@given(st.binary(max_size=30))
def test_any_bytes_either_unpack_or_are_refused(key: bytes) -> None:
    try:
        values = unpack(key)
    except MalformedKey:
        return
    assert identity(unpack(pack(values))) == identity(values)


def test_a_subspace_packs_and_unpacks_behind_its_prefix() -> None:
    space = Subspace((1, "jobs"))
    key = space.pack(("a", 5))
    assert key == pack((1, "jobs", "a", 5))
    assert space.unpack(key) == ("a", 5)
    assert space["a"].unpack(key) == (5,)
    assert space["a"][5].key == key
    assert space.pack() == space.key
    assert key in space
    assert b"elsewhere" not in space


def test_a_subspace_may_have_a_raw_prefix() -> None:
    space = Subspace(b"\xfe\x01")
    assert space.pack((1,)) == b"\xfe\x01\x15\x01"
    assert space.range() == (b"\xfe\x01\x00", b"\xfe\x01\xff")
    assert space.range((1,)) == (b"\xfe\x01\x15\x01\x00", b"\xfe\x01\x15\x01\xff")
    assert Subspace().pack((uuid.UUID(int=1),)) == pack((uuid.UUID(int=1),))


def test_subspaces_are_values() -> None:
    assert Subspace((1,))["x"] == Subspace((1, "x"))
    assert len({Subspace((1,)), Subspace(pack((1,))), Subspace((2,))}) == 2
    assert Subspace((1,)) != (1,)
    assert repr(Subspace(b"a")) == "Subspace(b'a')"


def test_a_key_of_another_subspace_is_refused() -> None:
    with pytest.raises(MalformedKey, match="not in the subspace"):
        Subspace((1,)).unpack(pack((2, 3)))
