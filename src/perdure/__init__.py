"""perdure: durable workflows as a library. Code that survives crashes, restarts and deploys.

Names are imported at first use, so that `import perdure.kv` alone does not load the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.engine.context import (
        ActivityContext,
        Break,
        Child,
        Continue,
        OperationContext,
        Step,
        WorkflowContext,
    )
    from perdure.engine.definitions import (
        Activity,
        Message,
        Operation,
        Signal,
        Workflow,
        activity,
        message,
        operation,
        signal,
        workflow,
    )
    from perdure.engine.engine import Engine
    from perdure.engine.errors import (
        ActivityFailed,
        Cancelled,
        ChildCancelled,
        ChildFailed,
        ChildTerminated,
        OperationTimedOut,
        ResultTimeout,
        WorkflowCancelled,
        WorkflowFailed,
        WorkflowFinished,
        WorkflowNotFound,
        WorkflowTerminated,
    )
    from perdure.engine.handle import Handle
    from perdure.engine.options import EngineOptions
    from perdure.engine.retry import RetryPolicy
    from perdure.errors import CallerError, LimitExceeded, PayloadError, PerdureError, WorldError
    from perdure.ids import Id

__all__ = [
    "Activity",
    "ActivityContext",
    "ActivityFailed",
    "Break",
    "CallerError",
    "Cancelled",
    "Child",
    "ChildCancelled",
    "ChildFailed",
    "ChildTerminated",
    "Continue",
    "Engine",
    "EngineOptions",
    "Handle",
    "Id",
    "LimitExceeded",
    "Message",
    "Operation",
    "OperationContext",
    "OperationTimedOut",
    "PayloadError",
    "PerdureError",
    "ResultTimeout",
    "RetryPolicy",
    "Signal",
    "Step",
    "Workflow",
    "WorkflowCancelled",
    "WorkflowContext",
    "WorkflowFailed",
    "WorkflowFinished",
    "WorkflowNotFound",
    "WorkflowTerminated",
    "WorldError",
    "activity",
    "message",
    "operation",
    "signal",
    "workflow",
]

_HOMES = {
    "Activity": "perdure.engine.definitions",
    "ActivityContext": "perdure.engine.context",
    "ActivityFailed": "perdure.engine.errors",
    "Break": "perdure.engine.context",
    "CallerError": "perdure.errors",
    "Cancelled": "perdure.engine.errors",
    "Child": "perdure.engine.context",
    "ChildCancelled": "perdure.engine.errors",
    "ChildFailed": "perdure.engine.errors",
    "ChildTerminated": "perdure.engine.errors",
    "Continue": "perdure.engine.context",
    "Engine": "perdure.engine.engine",
    "EngineOptions": "perdure.engine.options",
    "Handle": "perdure.engine.handle",
    "Id": "perdure.ids",
    "LimitExceeded": "perdure.errors",
    "Message": "perdure.engine.definitions",
    "Operation": "perdure.engine.definitions",
    "OperationContext": "perdure.engine.context",
    "OperationTimedOut": "perdure.engine.errors",
    "PayloadError": "perdure.errors",
    "PerdureError": "perdure.errors",
    "ResultTimeout": "perdure.engine.errors",
    "RetryPolicy": "perdure.engine.retry",
    "Signal": "perdure.engine.definitions",
    "Step": "perdure.engine.context",
    "Workflow": "perdure.engine.definitions",
    "WorkflowCancelled": "perdure.engine.errors",
    "WorkflowContext": "perdure.engine.context",
    "WorkflowFailed": "perdure.engine.errors",
    "WorkflowFinished": "perdure.engine.errors",
    "WorkflowNotFound": "perdure.engine.errors",
    "WorkflowTerminated": "perdure.engine.errors",
    "WorldError": "perdure.errors",
    "activity": "perdure.engine.definitions",
    "message": "perdure.engine.definitions",
    "operation": "perdure.engine.definitions",
    "signal": "perdure.engine.definitions",
    "workflow": "perdure.engine.definitions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
