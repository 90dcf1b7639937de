"""Errors: two branches, stable codes, clean pickling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

import perdure.errors as errors_module
from perdure.errors import (
    CallerError,
    InvalidName,
    LimitExceeded,
    PayloadError,
    PerdureError,
    WorldError,
)

EXAMPLES: list[PerdureError] = [
    PerdureError("plain"),
    CallerError("yours"),
    WorldError("mine"),
    LimitExceeded("a key", 20_000, 10_000),
    LimitExceeded("a payload", 20_000, 10_000, advice="store it elsewhere"),
    PayloadError("$.lines[3]", "objects of type Socket cannot be stored"),
    InvalidName("signal", "", "it must not be empty"),
]


class KeywordError(WorldError):
    """A subclass whose constructor differs from its message, as real ones do."""

    code = "world.keyword"

    def __init__(self, path: str, *, holder: int) -> None:
        super().__init__(f"{path} is held by {holder}")
        self.path = path
        self.holder = holder


def subclasses(cls: type[PerdureError]) -> Iterator[type[PerdureError]]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize("error", [*EXAMPLES, KeywordError("a/b", holder=7)])
def test_survives_pickle_and_copy(error: PerdureError) -> None:
    error.add_note("seen at breakfast")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)
        assert copied.__notes__ == ["seen at breakfast"]


def test_texts_name_the_thing_and_the_way_out() -> None:
    assert str(LimitExceeded("a key", 20_000, 10_000)) == "a key is 20,000, the limit is 10,000"
    assert str(LimitExceeded("x", 2, 1, advice="use less")) == "x is 2, the limit is 1: use less"
    assert str(PayloadError("$.a", "no")) == "value at $.a: no"
    assert str(PayloadError("$.a", "no").of('signal "paid"')) == 'value at $.a of signal "paid": no'
    assert str(InvalidName("signal", "", "no")) == "'' is not a valid signal name: no"


def test_every_class_states_its_own_code_in_its_branch() -> None:
    shared = [c for c in subclasses(PerdureError) if c.__module__ == errors_module.__name__]
    codes = [c.__dict__["code"] for c in shared]
    assert len(set(codes)) == len(codes) >= 5
    for cls in shared:
        assert issubclass(cls, CallerError) == cls.code.startswith("caller")
        assert issubclass(cls, WorldError) == cls.code.startswith("world")
