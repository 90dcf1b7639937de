"""Ids: layout, text form, refusals."""

from __future__ import annotations

import copy
import pickle
import random

import pytest
from hypothesis import given, strategies as st

from perdure.ids import Id, InvalidId

bodies = st.binary(min_size=18, max_size=18)


def test_layout_is_version_uuid4_label() -> None:
    identifier = Id.new(label=0x1234)
    assert len(identifier) == 19
    assert identifier[0] == 1
    assert identifier.uuid.version == 4
    assert identifier.uuid.variant == "specified in RFC 4122"
    assert identifier.uuid.bytes == identifier[1:17]
    assert identifier[17:] == b"\x12\x34"
    assert identifier.label == 0x1234


def test_an_id_of_a_key_is_always_the_same() -> None:
    identifier = Id.of("order 17", label=3)
    assert str(identifier) == "fp31j1i6gifxducw9xa1imy1yllo00"
    assert identifier == Id.of("order 17", label=3)
    assert identifier != Id.of("order 18", label=3)
    assert (identifier.uuid.version, identifier.label) == (8, 3)
    assert Id.parse(str(identifier)) == identifier
    with pytest.raises(InvalidId):
        Id.of("order 17", label=65_536)


def test_random_source_is_injected() -> None:
    first, again = (Id.new(random_bytes=random.Random(7).randbytes) for _ in range(2))
    assert first == again
    assert first != Id.new(random_bytes=random.Random(8).randbytes)


def test_two_new_ids_differ() -> None:
    assert len({Id.new() for _ in range(1000)}) == 1000


@given(bodies)
def test_text_is_thirty_digits_least_significant_first(body: bytes) -> None:
    identifier = Id(b"\x01" + body)
    text = str(identifier)
    assert len(text) == 30
    value = sum("0123456789abcdefghijklmnopqrstuvwxyz".index(c) * 36**i for i, c in enumerate(text))
    assert value == int.from_bytes(identifier, "big")


@given(bodies)
def test_text_round_trips_in_either_case(body: bytes) -> None:
    identifier = Id(b"\x01" + body)
    assert Id.parse(str(identifier)) == identifier
    assert Id.parse(str(identifier).upper()) == identifier
    assert type(Id.parse(str(identifier))) is Id


def test_known_text() -> None:
    assert str(Id(b"\x01" + bytes(18))) == str(Id.parse(str(Id(b"\x01" + bytes(18)))))
    one_label = Id(b"\x01" + bytes(16) + b"\x00\x01")
    zero_label = Id(b"\x01" + bytes(18))
    assert int(str(one_label)[::-1], 36) - int(str(zero_label)[::-1], 36) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "30 characters"),
        ("0" * 29, "30 characters"),
        ("0" * 31, "30 characters"),
        ("-" + "0" * 29, "letters a to z"),
        ("_" + "0" * 29, "letters a to z"),
        (" " + "0" * 29, "letters a to z"),
        ("\u212a" + "0" * 29, "letters a to z"),  # Kelvin sign: lower() makes it a plain k
        ("\u0661" + "0" * 29, "letters a to z"),  # an Arabic digit that int() would accept
        ("z" * 30, "does not fit"),
        ("0" * 30, "version is 0"),
    ],
)
def test_bad_text_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidId, match=problem) as caught:
        Id.parse(text)
    assert caught.value.value == text
    assert caught.value.code == "caller.invalid_id"


@pytest.mark.parametrize("raw", [b"", b"\x01" + bytes(17), b"\x01" + bytes(19), bytes(19)])
def test_bad_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidId):
        Id(raw)


@pytest.mark.parametrize("label", [-1, 65536])
def test_label_has_two_bytes(label: int) -> None:
    with pytest.raises(InvalidId, match="between 0 and 65535"):
        Id.new(label=label)


def test_behaves_as_bytes() -> None:
    identifier = Id.new()
    raw = bytes(identifier)
    assert identifier == raw
    assert hash(identifier) == hash(raw)
    assert {raw: 1}[identifier] == 1
    assert repr(identifier) == f"Id('{identifier}')"


def test_pickles_and_copies() -> None:
    identifier = Id.new()
    for copied in (pickle.loads(pickle.dumps(identifier)), copy.deepcopy(identifier)):
        assert copied == identifier
        assert type(copied) is Id
