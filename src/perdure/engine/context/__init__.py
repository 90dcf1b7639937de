"""What workflow, activity and operation code sees of the engine."""

from __future__ import annotations

from perdure.engine.context.activity import ActivityContext
from perdure.engine.context.child_step import Child
from perdure.engine.context.loop_step import Break, Continue
from perdure.engine.context.outside import OperationContext
from perdure.engine.context.step import Step
from perdure.engine.context.workflow import WorkflowContext

__all__ = [
    "ActivityContext",
    "Break",
    "Child",
    "Continue",
    "OperationContext",
    "Step",
    "WorkflowContext",
]
