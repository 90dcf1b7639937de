"""Random histories that a real workflow could have left, and the code that would have left them.

What a workflow does is a handful of small generators, one for each thing it starts (a timer, an
activity, ...). Each step of one appends an event, with the command that caused it if there is one,
and yields when its next step may come: with the commands of a task, or by itself before one.
Commands follow only tasks in which the workflow had something to react to: nothing else is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from random import Random
from typing import Any

from temporalio.api.common.v1 import Memo, SearchAttributes, WorkflowExecution, WorkflowType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.history_builder import (
    HistoryBuilder,
    application_failure,
    cancelled_failure,
    duration,
    payload,
    payloads,
)

from perdure.core.history.events import COMMAND_EVENTS, TASK_COMPLETED

__all__ = ["Lang", "Story", "random_story"]

_TERMINAL = frozenset(
    {
        "complete_workflow_execution",
        "fail_workflow_execution",
        "continue_as_new_workflow_execution",
        "cancel_workflow_execution",
    }
)


_WAIT_COMPLETED, _TRY_CANCEL, _WAIT_REQUESTED = 0, 2, 3
"""Ways to cancel a Nexus operation. To abandon one leaves nothing in the history."""


class Phase(Enum):
    """When the next step of something may come."""

    COMMAND = "command"
    EVENT = "event"


Steps = Generator[Phase, None, None]


class Story:
    """A history and the command that caused each of its command events."""

    def __init__(self, run_id: str) -> None:
        self.built = HistoryBuilder(run_id=run_id)
        self.commands: dict[int, WorkflowCommand] = {}


class Lang:
    """The workflow's code of one story: answers activations as it did back then."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._answered: set[int] = set()
        self._locals = 0
        self._held: WorkflowCommand | None = None

    def answer(self, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = WorkflowActivationCompletion(run_id=activation.run_id)
        completion.successful.SetInParent()
        if not any(job.HasField("remove_from_cache") for job in activation.jobs):
            completion.successful.commands.extend(self._commands(activation))
        return completion

    def _commands(self, activation: WorkflowActivation) -> list[WorkflowCommand]:
        commands = []
        if activation.history_length not in self._answered:
            self._answered.add(activation.history_length)
            commands = self._after(activation.history_length)
        for job in activation.jobs:
            self._locals -= job.HasField("resolve_activity") and job.resolve_activity.is_local
        for command in commands:
            self._locals += command.HasField("schedule_local_activity")
        if commands and self._locals and commands[-1].WhichOneof("variant") in _TERMINAL:
            self._held = commands.pop()
        if self._held is not None and not self._locals:
            commands.append(self._held)
            self._held = None
        return commands

    def _after(self, event_id: int) -> list[WorkflowCommand]:
        """What was sent when the task that ends with this event was completed."""
        events = self._story.built.events[event_id:]
        if not events or events[0].event_type != TASK_COMPLETED:
            return []
        commands = []
        for event in events[1:]:
            if event.event_type not in COMMAND_EVENTS:
                break
            if event.event_id in self._story.commands:
                commands.append(self._story.commands[event.event_id])
        return commands


class _Author:
    """Writes a story, one task after the other."""

    def __init__(self, random: Random, run_id: str, *, live: bool) -> None:
        self.random = random
        self.live = live
        self.story = Story(run_id)
        self.built = self.story.built
        self.has_jobs = True
        self.has_flags = live or self.chance(0.8)
        self.has_indexes = self.chance(0.7)
        self.seq = 0
        self.locals_in_task = 0
        self.patches: list[str] = []
        self.waiting: dict[Phase, list[Steps]] = {Phase.COMMAND: [], Phase.EVENT: []}
        self.kinds: list[Callable[[], Steps]] = [
            self.timer,
            self.activity,
            self.child,
            self.external,
            self.nexus,
            self.attributes,
            self.patch,
        ]
        if not live:
            self.kinds.append(self.local_activity)

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def command(self, event_id: int, variant: str, **fields: Any) -> None:
        """This event was caused by this command."""
        command = WorkflowCommand()
        part = getattr(command, variant)
        part.SetInParent()
        part.MergeFrom(type(part)(**fields))
        self.story.commands[event_id] = command

    def advance(self, steps: Steps) -> None:
        phase = next(steps, None)
        if phase is not None:
            self.waiting[phase].append(steps)

    def advance_some(self, phase: Phase, chance: float) -> None:
        waiting, self.waiting[phase] = self.waiting[phase], []
        for steps in waiting:
            if self.chance(chance):
                self.advance(steps)
            else:
                self.waiting[phase].append(steps)

    # Tasks

    def beginning(self) -> None:
        built = self.built
        built.started("argument")
        if self.chance(0.15):
            built.signaled("early")
        for _ in range(self.random.choice([0, 0, 0, 1, 2])):
            built.task_scheduled_and_started()
            built.task_failed()
        built.task_scheduled()
        if self.chance(0.15):
            built.signaled("during")
        built.task_started()
        self.task_completed()

    def task_completed(self) -> None:
        if self.has_flags and not self.built.last_task_completed:
            self.built.task_completed(core_flags=[1, 2, 3, 4], lang_flags=[1])
        else:
            self.built.task_completed()
        self.locals_in_task = 0

    def commands(self) -> None:
        self.advance_some(Phase.COMMAND, 0.5)
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            self.advance(self.random.choice(self.kinds)())

    def task(self) -> None:
        """One more task."""
        built = self.built
        self.has_jobs = False
        if self.chance(0.6):
            self.advance_some(Phase.EVENT, 0.6)
        if self.chance(0.2):
            self.signal("between")
        if self.chance(0.05):
            built.cancel_requested("reason")
            self.has_jobs = True
        sequencing = built.task_scheduled()
        if self.chance(0.15):
            sequencing = self.signal("during")
        if self.chance(0.2):
            built.task_started()
            self.random.choice([built.task_failed, built.task_timed_out])()
            if self.chance(0.2):
                self.signal("buffered")
            sequencing = built.task_scheduled()
        built.task_started()
        self.task_completed()
        if not self.live and self.chance(0.2):
            self.advance(self.update(sequencing))

    def signal(self, name: str) -> int:
        self.has_jobs = True
        return self.built.signaled(name, name)

    def end(self) -> None:
        ends = ["nothing", "task", "terminated", "timed_out"]
        if self.has_jobs:
            ends += ["completed", "failed", "canceled", "continued_as_new"]
        end = self.random.choice(ends)
        if end == "task":
            self.built.task_scheduled_and_started()
        elif end in {"terminated", "timed_out"}:
            getattr(self.built, end)()
        elif end != "nothing":
            verb = {"completed": "complete", "failed": "fail", "canceled": "cancel"}
            event = getattr(self.built, end)()
            self.command(event, verb.get(end, "continue_as_new") + "_workflow_execution")

    # What a workflow may do

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def timer(self) -> Steps:
        seq = self.next_seq()
        started = self.built.timer_started(seq)
        self.command(started, "start_timer", seq=seq, start_to_fire_timeout=duration(1))
        if self.chance(0.25):
            yield Phase.COMMAND
            self.command(self.built.timer_canceled(started, seq), "cancel_timer", seq=seq)
        else:
            yield Phase.EVENT
            self.built.timer_fired(started, seq)
            self.has_jobs = True

    def activity(self) -> Steps:
        built, seq = self.built, self.next_seq()
        how = self.random.choice([0, 1])
        scheduled = built.activity_scheduled(str(seq))
        self.command(
            scheduled,
            "schedule_activity",
            seq=seq,
            activity_id=str(seq),
            activity_type="activity",
            cancellation_type=how,
            start_to_close_timeout=duration(9),
        )
        if self.chance(0.3):
            yield Phase.COMMAND
            requested = built.activity_cancel_requested(scheduled)
            self.command(requested, "request_cancel_activity", seq=seq)
            yield Phase.EVENT
            built.activity_canceled(scheduled, built.activity_started(scheduled), "details")
            self.has_jobs |= how == 1
            return
        yield Phase.EVENT
        outcome = self.random.choice(["completed", "failed", "timed_out", "not_started"])
        if outcome == "not_started":
            built.activity_timed_out(scheduled, kind=2)
        else:
            getattr(built, f"activity_{outcome}")(scheduled, built.activity_started(scheduled))
        self.has_jobs = True

    def child(self) -> Steps:
        built, seq = self.built, self.next_seq()
        name = f"child-{seq}"
        initiated = built.child_initiated(name)
        self.command(
            initiated,
            "start_child_workflow_execution",
            seq=seq,
            workflow_id=name,
            workflow_type="child",
            namespace=self.random.choice(["", "namespace"]),
            cancellation_type=2,
        )
        yield Phase.EVENT
        self.has_jobs = True
        if self.chance(0.2):
            built.child_start_failed(initiated, name)
            return
        started = built.child_started(initiated, name)
        if self.chance(0.2):
            yield Phase.COMMAND
            request = built.cancel_external_initiated(name, child_workflow_only=True)
            fields = {"child_workflow_seq": seq, "reason": "why"}
            self.command(request, "cancel_child_workflow_execution", **fields)
            yield Phase.EVENT
            built.external_cancel_requested(request)
        yield Phase.EVENT
        self.has_jobs = True
        ends = ["completed", "failed", "canceled", "timed_out", "terminated"]
        end = self.random.choice(ends)
        fields = {"failure": application_failure()} if end == "failed" else {}
        built.add(
            f"child_workflow_execution_{end}",
            initiated_event_id=initiated,
            started_event_id=started,
            workflow_execution=WorkflowExecution(workflow_id=name, run_id="child-run"),
            workflow_type=WorkflowType(name="child"),
            namespace="namespace",
            **fields,
        )

    def external(self) -> Steps:
        built, seq = self.built, self.next_seq()
        execution = {"namespace": "namespace", "workflow_id": "other-id"}
        if self.chance(0.5):
            initiated = built.signal_external_initiated()
            self.command(
                initiated,
                "signal_external_workflow_execution",
                seq=seq,
                workflow_execution=execution,
                signal_name="signal",
            )
            ends = [built.external_signaled, built.signal_external_failed]
        else:
            initiated = built.cancel_external_initiated()
            self.command(
                initiated,
                "request_cancel_external_workflow_execution",
                seq=seq,
                workflow_execution=execution,
            )
            ends = [built.external_cancel_requested, built.cancel_external_failed]
        yield Phase.EVENT
        self.random.choice(ends)(initiated)
        self.has_jobs = True

    def nexus(self) -> Steps:
        built, seq = self.built, self.next_seq()
        how = self.random.choice([_WAIT_COMPLETED, _TRY_CANCEL, _WAIT_REQUESTED])
        cancelled = self.random.choice(["", "", "before", "after"])
        if how == _TRY_CANCEL and cancelled == "before":
            cancelled = ""  # the compiled core tells lang twice then that it is over
        scheduled = built.nexus_scheduled()
        self.command(
            scheduled,
            "schedule_nexus_operation",
            seq=seq,
            endpoint="endpoint",
            service="service",
            operation="operation",
            cancellation_type=how,
        )
        if cancelled == "before":
            yield from self.nexus_cancel(scheduled, seq)
        yield Phase.EVENT
        self.has_jobs = True
        if cancelled or self.chance(0.5):
            built.nexus("started", scheduled, operation_token="token")
            if cancelled == "after":
                yield from self.nexus_cancel(scheduled, seq)
            yield Phase.EVENT
        resolved = bool(cancelled) and how == _TRY_CANCEL
        if cancelled and self.chance(0.7):
            end = self.random.choice(["completed", "failed"])
            fields: dict[str, Any] = {"failure": application_failure()}
            if end == "completed":
                fields = {}
            built.nexus(f"cancel_request_{end}", scheduled, **fields)
            self.has_jobs |= how == _WAIT_REQUESTED
            resolved |= how == _WAIT_REQUESTED
            if end == "failed" and how == _WAIT_REQUESTED:
                return  # the compiled core tells lang of the end as well
            yield Phase.EVENT
        self.has_jobs |= not resolved
        end = self.random.choice(["completed", "failed", "canceled", "timed_out"])
        fields = {"result": payload("done")}
        if end != "completed":
            failure = cancelled_failure() if end == "canceled" else application_failure()
            fields = {"failure": failure}
        built.nexus(end, scheduled, **fields)

    def nexus_cancel(self, scheduled: int, seq: int) -> Steps:
        yield Phase.COMMAND
        requested = self.built.nexus_cancel_requested(scheduled)
        self.command(requested, "request_cancel_nexus_operation", seq=seq)

    def attributes(self) -> Steps:
        if self.chance(0.5):
            attributes = SearchAttributes(indexed_fields={"key": payload("value")})
            kind = "upsert_workflow_search_attributes"
            event = self.built.add(kind, search_attributes=attributes)
            self.command(event, kind, search_attributes=attributes)
        else:
            memo = Memo(fields={"key": payload("value")})
            event = self.built.add("workflow_properties_modified", upserted_memo=memo)
            self.command(event, "modify_workflow_properties", upserted_memo=memo)
        yield from ()

    def patch(self) -> Steps:
        name = f"patch-{self.next_seq()}"
        self.patches.append(name)
        self.command(self.built.patch_marker(name), "set_patch_marker", patch_id=name)
        if self.has_flags:
            self.built.patch_search_attributes(*self.patches)
        yield from ()

    def local_activity(self) -> Steps:
        seq = self.next_seq()
        self.locals_in_task += 1
        kind = self.random.choice(["completed", "failed", "cancelled"])
        failures = {"failed": application_failure(), "cancelled": cancelled_failure()}
        event = self.built.local_activity_marker(
            seq,
            "done",
            failure=failures.get(kind),
            activation_index=self.locals_in_task if self.has_indexes else None,
        )
        self.command(
            event,
            "schedule_local_activity",
            seq=seq,
            activity_id=str(seq),
            activity_type="activity",
            start_to_close_timeout=duration(9),
        )
        yield from ()

    def update(self, sequencing: int) -> Steps:
        name = f"update-{self.next_seq()}"
        self.has_jobs = True
        accepted = self.built.update_accepted(name, sequencing_event_id=sequencing)
        self.command(accepted, "update_response", protocol_instance_id=name, accepted={})
        if self.chance(0.5):
            yield Phase.COMMAND
        completed = self.built.update_completed(accepted, name)
        result = payloads(None).payloads[0]
        self.command(completed, "update_response", protocol_instance_id=name, completed=result)


def random_story(random: Random, run_id: str, *, live: bool = False) -> Story:
    """Everything a workflow can do, heartbeats, failed and timed-out tasks, and any end.

    With `live` there is nothing that needs more than history to happen again (local activities,
    updates), so that the story can be told task by task.
    """
    author = _Author(random, run_id, live=live)
    author.beginning()
    for _ in range(random.randint(0, 8)):
        if author.has_jobs:
            author.commands()
        author.task()
    author.end()
    return author.story
