"""The errors of the engine.

They fall into five groups:

* the history of a workflow and its code do not fit: `HistoryDiverged`, `LatentHistoryFound`,
  `InvalidVersion`; or it cannot be read or written: `CorruptHistory`, `Quarantined`, `LeaseLost`;
* a workflow ended in another way than with a result: `WorkflowFailed` and its neighbours;
* something that was called did: `ActivityFailed`, `ChildFailed`, `OperationTimedOut`;
* a name or an id leads nowhere, or to something this cannot be done to: `WorkflowNotFound`,
  `UnknownWorkflow`, `WorkflowBusy` and their neighbours;
* something is not defined or used as it must be: `InvalidDefinition`, `InvalidOption`,
  `ConcurrentStep`, `StateInJoin`, `EngineNotRunning`.

Control flow (sleeping, waiting, eviction) is not here and never reaches users. `Cancelled` is the
one thing here that is not an error: a message to the code of a workflow.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from perdure.engine.history.failure import Failure
from perdure.engine.history.location import Location, format_location
from perdure.engine.tags import TagMapping
from perdure.errors import CallerError, WorldError
from perdure.ids import Id

__all__ = [
    "ActivityFailed",
    "ActivityTimedOut",
    "Cancelled",
    "ChildCancelled",
    "ChildFailed",
    "ChildTerminated",
    "ConcurrentStep",
    "CorruptHistory",
    "CorruptRecord",
    "DuplicateName",
    "EngineNotRunning",
    "EventMissing",
    "HistoryDiverged",
    "InvalidDefinition",
    "InvalidOption",
    "InvalidVersion",
    "LatentHistoryFound",
    "LeaseLost",
    "OperationTimedOut",
    "Quarantined",
    "ResultTimeout",
    "StateInJoin",
    "UniqueKeyTaken",
    "UnknownWorkflow",
    "WorkflowBusy",
    "WorkflowCancelled",
    "WorkflowExists",
    "WorkflowFailed",
    "WorkflowFinished",
    "WorkflowNotFound",
    "WorkflowTerminated",
]

_LISTED = 10


class HistoryDiverged(CallerError):
    """The code took a step that is not the one recorded at this place of the history."""

    code = "engine.history_diverged"

    def __init__(self, location: Location, expected: str, found: str) -> None:
        super().__init__(
            f"history diverged at {format_location(location)}: the code runs {expected}, the"
            f" history holds {found}. Code of a workflow that has begun may only change under a"
            " version: undo the change, or guard it with ctx.v(n), ctx.check_version(n) or"
            " ctx.removed(...). The code must also decide by nothing but its input and its steps"
        )
        self.location = location
        self.expected = expected
        """The step that the code took."""
        self.found = found
        """The event that the history holds."""


class LatentHistoryFound(CallerError):
    """The code ended before all events of its history were used."""

    code = "engine.latent_history"

    def __init__(self, root: Location, events: Sequence[tuple[Location, str]]) -> None:
        listed = ", ".join(f"{format_location(at)} {what}" for at, what in events[:_LISTED])
        if len(events) > _LISTED:
            listed += f" and {len(events) - _LISTED:,} more"
        super().__init__(
            f"the code at {format_location(root)} ended, but the history goes on with {listed}."
            " Steps of a workflow that has begun may not be deleted: put ctx.removed(...) in their"
            " place"
        )
        self.root = root
        self.events = tuple(events)
        """The unused events: where each lies, and what it is."""


class InvalidVersion(CallerError):
    """A version is not a positive number, or lower than that of the context it is used in."""

    code = "engine.invalid_version"

    def __init__(self, version: int, lowest: int) -> None:
        super().__init__(
            f"version {version} cannot be used here: versions only grow, and the lowest one"
            f" possible here is {lowest}"
        )
        self.version = version
        self.lowest = lowest


class CorruptHistory(WorldError):
    """A row of a history cannot be read. `location` is as near to it as can be told."""

    code = "engine.corrupt_history"

    def __init__(self, location: Location, reason: str) -> None:
        super().__init__(
            f"the history cannot be read at {format_location(location)}: {reason}. Either the"
            " storage is damaged, or a newer release of perdure wrote this row"
        )
        self.location = location
        self.reason = reason


class CorruptRecord(WorldError):
    """A row of a workflow, other than an event, cannot be read. `row` names which."""

    code = "engine.corrupt_record"

    def __init__(self, workflow_id: Id, row: str, reason: str) -> None:
        super().__init__(
            f"the {row} of workflow {workflow_id} cannot be read: {reason}. Either the storage is"
            " damaged, or a newer release of perdure wrote this row"
        )
        self.workflow_id = workflow_id
        self.row = row
        self.reason = reason


class EventMissing(WorldError):
    """An event was to be updated that the history does not hold, so nothing was written."""

    code = "engine.event_missing"

    def __init__(self, workflow_id: Id, location: Location) -> None:
        super().__init__(
            f"the history of workflow {workflow_id} holds no event at {format_location(location)}"
            " to update: it was compacted or pruned meanwhile. Revive the workflow to replay it"
        )
        self.workflow_id = workflow_id
        self.location = location


class Quarantined(WorldError):
    """The workflow was set aside as dead, because what is stored of it cannot be read."""

    code = "engine.quarantined"

    def __init__(self, workflow_id: Id, reason: str) -> None:
        super().__init__(
            f"workflow {workflow_id} is quarantined: {reason}. Once that is mended, revive it"
        )
        self.workflow_id = workflow_id
        self.reason = reason


class LeaseLost(WorldError):
    """This run no longer holds the workflow: another worker took it, or it was terminated.

    What the run was about to write is not written. The holder of the lease goes on.
    """

    code = "engine.lease_lost"

    def __init__(self, workflow_id: Id) -> None:
        super().__init__(
            f"this worker no longer holds workflow {workflow_id}: it was taken over or closed"
            " meanwhile. Nothing of this commit was written; its holder goes on from the last step"
        )
        self.workflow_id = workflow_id


class WorkflowFailed(CallerError):
    """The workflow died; `failure` says of what."""

    code = "engine.workflow_failed"

    def __init__(self, workflow_id: Id, failure: Failure) -> None:
        super().__init__(
            f"workflow {workflow_id} failed: {failure.summary}. Mend the cause and revive it to go"
            " on from its last step"
        )
        self.workflow_id = workflow_id
        self.failure = failure


class WorkflowCancelled(CallerError):
    """The workflow was cancelled and ended because of it."""

    code = "engine.workflow_cancelled"

    def __init__(self, workflow_id: Id, reason: str = "") -> None:
        super().__init__(_because(f"workflow {workflow_id} was cancelled", reason))
        self.workflow_id = workflow_id
        self.reason = reason


class WorkflowTerminated(CallerError):
    """The workflow was terminated: stopped from outside without its code being asked."""

    code = "engine.workflow_terminated"

    def __init__(self, workflow_id: Id, reason: str = "") -> None:
        super().__init__(_because(f"workflow {workflow_id} was terminated", reason))
        self.workflow_id = workflow_id
        self.reason = reason


class ResultTimeout(WorldError):
    """The workflow has no result yet. It goes on; ask again whenever you like."""

    code = "engine.result_timeout"

    def __init__(self, workflow_id: Id, timeout: float) -> None:
        super().__init__(
            f"workflow {workflow_id} has no result after {timeout:g} s. It is not affected: ask"
            " again, or with a longer timeout"
        )
        self.workflow_id = workflow_id
        self.timeout = timeout
        """seconds"""


class WorkflowNotFound(CallerError):
    """No workflow has this id, or no open one has this name and these tags."""

    code = "engine.workflow_not_found"

    def __init__(
        self,
        workflow_id: Id | None = None,
        *,
        name: str | None = None,
        tags: TagMapping | None = None,
    ) -> None:
        if workflow_id is not None:
            text = f"there is no workflow {workflow_id}: it was never dispatched, or pruned since"
        else:
            text = f'there is no open workflow "{name}" with tags {dict(tags or {})}'
        super().__init__(text)
        self.workflow_id = workflow_id
        self.name = name
        self.tags = dict(tags or {})


class WorkflowFinished(CallerError):
    """The workflow is closed: it takes no signals and no cancel requests any more."""

    code = "engine.workflow_finished"

    def __init__(self, workflow_id: Id, phase: str) -> None:
        way_out = "until it is revived" if phase == "dead" else "any more"
        super().__init__(
            f"workflow {workflow_id} is finished ({phase}): nothing can reach its code {way_out}"
        )
        self.workflow_id = workflow_id
        self.phase = phase


class WorkflowExists(CallerError):
    """The id given for a new workflow belongs to one of another name."""

    code = "engine.workflow_exists"

    def __init__(self, workflow_id: Id, name: str) -> None:
        super().__init__(
            f'{workflow_id} is already a workflow "{name}": dispatch with another id, or none'
        )
        self.workflow_id = workflow_id
        self.name = name


class WorkflowBusy(CallerError):
    """The workflow is in a phase in which this cannot be done to it."""

    code = "engine.workflow_busy"

    def __init__(self, workflow_id: Id, phase: str, action: str, advice: str) -> None:
        super().__init__(f"cannot {action} workflow {workflow_id} while it is {phase}: {advice}")
        self.workflow_id = workflow_id
        self.phase = phase
        self.action = action
        self.advice = advice


class UniqueKeyTaken(CallerError):
    """Another open workflow holds the unique key meanwhile."""

    code = "engine.unique_key_taken"

    def __init__(self, workflow_id: Id, unique: str, holder: Id) -> None:
        super().__init__(
            f"workflow {workflow_id} cannot be opened again: workflow {holder} holds its unique key"
            f" {unique!r} now. Let that one end first"
        )
        self.workflow_id = workflow_id
        self.unique = unique
        self.holder = holder


class EngineNotRunning(CallerError):
    """The engine was used before it was started or after it was shut down."""

    code = "engine.not_running"

    def __init__(self) -> None:
        super().__init__(
            "the engine is not running: use it inside `async with Engine(...)`, or after start()"
        )


class UnknownWorkflow(CallerError):
    """No workflow of this name is registered here."""

    code = "engine.unknown_workflow"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        known = tuple(sorted(known))
        super().__init__(
            f'no workflow "{name}" is registered: pass its definition to Engine(workflows=[...])'
            f" ({_known(known)})"
        )
        self.name = name
        self.known = known


class DuplicateName(CallerError):
    """Two definitions of one kind have the same name."""

    code = "engine.duplicate_name"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f'there are two different {kind} definitions named "{name}": give one another name with'
            " name=..."
        )
        self.kind = kind
        self.name = name


class ActivityFailed(CallerError):
    """An activity failed in all its attempts, or in a way that is not retried."""

    code = "engine.activity_failed"

    def __init__(self, name: str, attempts: int, failure: Failure) -> None:
        super().__init__(f'activity "{name}" failed ({_attempts(attempts)}): {failure.summary}')
        self.name = name
        self.attempts = attempts
        self.failure = failure


class ActivityTimedOut(WorldError):
    """An attempt of an activity took longer than one of its bounds; `bound` says which."""

    code = "engine.activity_timed_out"

    def __init__(
        self,
        name: str,
        timeout: float,
        bound: Literal["timeout", "heartbeat_timeout"] = "timeout",
    ) -> None:
        what = "finish" if bound == "timeout" else "send a heartbeat"
        super().__init__(
            f'activity "{name}" did not {what} within {timeout:g} s. Raise its {bound}'
            " if it needs more"
        )
        self.name = name
        self.timeout = timeout
        """seconds"""
        self.bound = bound


class OperationTimedOut(WorldError):
    """An operation took longer than its timeout."""

    code = "engine.operation_timed_out"

    def __init__(self, name: str, timeout: float) -> None:
        super().__init__(
            f'operation "{name}" did not finish within {timeout:g} s. Raise its timeout if it needs'
            " more"
        )
        self.name = name
        self.timeout = timeout
        """seconds"""


class ChildFailed(CallerError):
    """A workflow that this one waited for died; `failure` says of what."""

    code = "engine.child_failed"

    def __init__(self, workflow_id: Id, failure: Failure) -> None:
        super().__init__(f"child workflow {workflow_id} failed: {failure.summary}")
        self.workflow_id = workflow_id
        self.failure = failure


class ChildCancelled(CallerError):
    """A workflow that this one waited for was cancelled."""

    code = "engine.child_cancelled"

    def __init__(self, workflow_id: Id, reason: str = "") -> None:
        super().__init__(_because(f"child workflow {workflow_id} was cancelled", reason))
        self.workflow_id = workflow_id
        self.reason = reason


class ChildTerminated(CallerError):
    """A workflow that this one waited for was terminated."""

    code = "engine.child_terminated"

    def __init__(self, workflow_id: Id, reason: str = "") -> None:
        super().__init__(_because(f"child workflow {workflow_id} was terminated", reason))
        self.workflow_id = workflow_id
        self.reason = reason


class Cancelled(BaseException):
    """A cancel request reached the workflow's code. Raised once, at the next step.

    Catch it to compensate: steps taken afterwards run normally, and when the workflow ends it is
    cancelled, whatever it returned. It derives from `BaseException` so that an `except Exception`
    around a step does not swallow it.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled")
        self.reason = reason


class InvalidOption(CallerError):
    """An option has a value that makes no sense."""

    code = "engine.invalid_option"

    def __init__(self, option: str, value: object, rule: str) -> None:
        super().__init__(f"{option}={value!r} is not possible: {rule}")
        self.option = option
        self.value = value
        self.rule = rule


class InvalidDefinition(CallerError):
    """A workflow, activity, operation, signal or message is not defined as it must be."""

    code = "engine.invalid_definition"

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(f'{kind} "{name}" is not well defined: {problem}')
        self.kind = kind
        self.name = name
        self.problem = problem


class ConcurrentStep(CallerError):
    """A step was begun while another one of the same branch was still running."""

    code = "engine.concurrent_step"

    def __init__(self, workflow_id: Id, location: Location) -> None:
        super().__init__(
            f"workflow {workflow_id} runs two steps at once in the branch"
            f" {format_location(location)}: give steps that run side by side to ctx.join(...), and"
            " inside a closure use the context that the closure is called with"
        )
        self.workflow_id = workflow_id
        self.location = location


class StateInJoin(CallerError):
    """An activity inside a join asked for the workflow's state, which would race."""

    code = "engine.state_in_join"

    def __init__(self, activity: str) -> None:
        super().__init__(
            f'activity "{activity}" runs inside a join and cannot use the state of its'
            " workflow: return a value instead, and store it in an activity after the join"
        )
        self.activity = activity


def _because(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count:,} attempts"


def _known(names: Sequence[str]) -> str:
    if not names:
        return "none are known"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "known: " + ", ".join(names[:_LISTED]) + more
