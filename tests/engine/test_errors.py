"""The errors of the engine: stable codes, texts that name the thing, and safe transport."""

import copy
import pickle

import pytest

from perdure.engine import errors
from perdure.engine.history.failure import Failure
from perdure.errors import CallerError, PerdureError, WorldError
from perdure.ids import Id

WORKFLOW = Id(b"\x01" + b"\x07" * 16 + b"\x00\x00")
FAILURE = Failure("ValueError", "bad", cause=Failure("KeyError", "'x'"))

EXAMPLES: list[tuple[PerdureError, str]] = [
    (errors.HistoryDiverged(((1,), (2, 1)), "a", "b"), "{1, 2.1}"),
    (errors.LatentHistoryFound(((1,),), [(((1,), (2,)), "sleep")]), "{1, 2} sleep"),
    (errors.InvalidVersion(0, 1), "version 0"),
    (errors.CorruptHistory(((3,),), "torn"), "{3}: torn"),
    (errors.Quarantined(WORKFLOW, "torn"), "torn"),
    (errors.LeaseLost(WORKFLOW), "no longer holds"),
    (errors.WorkflowFailed(WORKFLOW, FAILURE), "ValueError: bad"),
    (errors.WorkflowCancelled(WORKFLOW, "late"), "cancelled: late"),
    (errors.WorkflowTerminated(WORKFLOW), "terminated"),
    (errors.ResultTimeout(WORKFLOW, 1.5), "after 1.5 s"),
    (errors.WorkflowNotFound(WORKFLOW), "never dispatched"),
    (errors.WorkflowNotFound(name="ship", tags={"a": 1}), '"ship" with tags'),
    (errors.WorkflowFinished(WORKFLOW, "complete"), "finished (complete)"),
    (errors.UnknownWorkflow("ship", iter(["pay", "bill"])), "known: bill, pay"),
    (errors.UnknownWorkflow("ship", []), "none are known"),
    (errors.DuplicateName("signal", "paid"), 'signal definitions named "paid"'),
    (errors.ActivityFailed("charge", 1, FAILURE), "(1 attempt): ValueError: bad"),
    (errors.ActivityTimedOut("charge", 30.0), "within 30 s"),
    (errors.ChildFailed(WORKFLOW, FAILURE), "ValueError: bad"),
    (errors.ChildCancelled(WORKFLOW), "was cancelled"),
    (errors.ChildTerminated(WORKFLOW, "why"), "terminated: why"),
]


@pytest.mark.parametrize(("error", "text"), EXAMPLES)
def test_text_and_transport(error: PerdureError, text: str) -> None:
    assert text in str(error)
    assert isinstance(error, CallerError) != isinstance(error, WorldError)
    transported = pickle.loads(pickle.dumps(error))
    for other in (transported, copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        fields, others = dict(vars(error)), dict(vars(other))
        fields.pop("_arguments")
        others.pop("_arguments")
        assert others == fields


def test_ids_are_written_as_text() -> None:
    assert str(WORKFLOW) in str(errors.LeaseLost(WORKFLOW))


def test_codes_are_distinct() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    codes = [cls.code for cls in classes if issubclass(cls, PerdureError)]
    assert len(set(codes)) == len(codes)
    assert all(code.startswith("engine.") for code in codes)


def test_many_unused_events_are_counted() -> None:
    events = [(((number,),), "sleep") for number in range(1, 31)]
    error = errors.LatentHistoryFound((), events)
    assert "{10} sleep and 20 more" in str(error)
    assert len(error.events) == 30
