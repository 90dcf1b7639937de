"""Exceptions as data: bounded, always storable, with their causes."""

import pytest

from perdure.engine.errors import ChildFailed, UnknownWorkflow
from perdure.engine.history.events import ChildResultEvent, decode_event, encode_event
from perdure.engine.history.failure import AttemptFailure, Failure
from perdure.ids import Id


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def causes(failure: Failure) -> list[str]:
    found: Failure | None = failure
    texts = []
    while found is not None:
        texts.append(found.message)
        found = found.cause
    return texts


def stored(failure: Failure) -> Failure | None:
    event = decode_event(encode_event(ChildResultEvent(1, 0, 0, b"", 3, failure=failure)))
    assert isinstance(event, ChildResultEvent)
    return event.failure


def test_what_is_kept() -> None:
    failure = Failure.from_exception(raised(ValueError("bad")))
    assert (failure.type, failure.message, failure.code) == ("ValueError", "bad", "")
    assert "in raised" in failure.stack
    assert failure.summary == "ValueError: bad"
    assert Failure("E", "").summary == "E"
    assert stored(failure) == failure


def test_class_names_are_qualified_and_codes_kept() -> None:
    assert Failure.from_exception(Unprintable()).type.endswith("test_failure.Unprintable")
    failure = Failure.from_exception(UnknownWorkflow("ship", ["pay"]))
    assert failure.code == "engine.unknown_workflow"


def test_causes_and_contexts_are_kept() -> None:
    explicit = raised(ValueError("outer"), raised(KeyError("inner")))
    assert causes(Failure.from_exception(explicit)) == ["outer", "'inner'"]
    implicit = ValueError("second")
    implicit.__context__ = KeyError("first")
    assert causes(Failure.from_exception(implicit)) == ["second", "'first'"]
    implicit.__suppress_context__ = True
    assert causes(Failure.from_exception(implicit)) == ["second"]


def test_the_chain_is_bounded_even_if_it_is_a_circle() -> None:
    error: BaseException = ValueError("0")
    for number in range(1, 30):
        error = raised(ValueError(str(number)), error)
    assert causes(Failure.from_exception(error)) == [str(n) for n in range(29, 21, -1)]
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert causes(Failure.from_exception(one)) == ["one", "other"] * 4


def test_the_failure_an_error_carries_is_its_cause() -> None:
    failure = Failure("Root", "0")
    for _ in range(30):
        failure = Failure.from_exception(ChildFailed(Id.new(), failure))
    assert len(causes(failure)) == 8


def test_long_texts_keep_both_ends() -> None:
    failure = Failure.from_exception(ValueError("a" + "-" * 1_000_000 + "z"))
    assert len(failure.message) == 16_384
    assert failure.message[0] == "a"
    assert failure.message[-1] == "z"
    assert "characters left out" in failure.message
    attempt = AttemptFailure.from_exception(ValueError("x" * 5_000), 7)
    assert (attempt.kind, len(attempt.message), attempt.at) == ("ValueError", 2_048, 7)


@pytest.mark.parametrize("text", ["\ud800", "ü\udfff", "\x00"])
def test_any_text_can_be_stored(text: str) -> None:
    failure = Failure.from_exception(raised(ValueError(text)))
    assert stored(failure) == failure


def test_an_exception_without_text() -> None:
    failure = Failure.from_exception(raised(Unprintable()))
    assert failure.message == "(its text cannot be made: RuntimeError)"
    assert stored(failure) == failure
