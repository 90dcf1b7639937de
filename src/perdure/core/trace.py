"""Inputs and actions of the workflow stream in words: one line each, the run first.

For people. Arguments and results of workflows are left out, since they may be long and secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from temporalio.api.enums.v1 import CommandType
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    RemoveFromCache,
    WorkflowActivation,
)
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    WorkflowActivationCompletion,
)

from perdure.core.actions import (
    Action,
    CompleteTask,
    Counted,
    FailTask,
    FetchPage,
    LangActivation,
    Measured,
    RespondQuery,
    RunLocalActivities,
    SetHeartbeat,
)
from perdure.core.history.events import NAMES
from perdure.core.inputs import (
    Completed,
    EvictionRequested,
    Input,
    LocalResolved,
    NewTask,
    PageFetched,
    PageFetchFailed,
    Reported,
)
from perdure.core.local_activities.requests import LocalActivityRequest

__all__ = ["describe_action", "describe_input", "is_bookkeeping", "run_of"]

_IDENTITY: Final = ("seq", "activity_id", "activity_type", "workflow_id", "patch_id", "query_id")


def run_of(subject: Input | Action) -> str:
    """The id of the run it is about; empty if it is about the whole worker."""
    match subject:
        case NewTask(task=task):
            return task.workflow_execution.run_id
        case Completed(completion=completion):
            return completion.run_id
        case LangActivation(activation=activation):
            return activation.run_id
        case _:
            return getattr(subject, "run_id", "")


def describe_input(given: Input) -> str:
    """What happened."""
    words = _INPUTS.get(type(given))
    return _line(given, words(given) if words is not None else _name(given))


def describe_action(action: Action) -> str:
    """What is to be done."""
    words = _ACTIONS.get(type(action))
    return _line(action, words(action) if words is not None else _name(action))


def is_bookkeeping(action: Action) -> bool:
    """Whether it only counts or measures, which says nothing about a run."""
    return isinstance(action, Counted | Measured)


def _line(subject: Input | Action, words: str) -> str:
    return f"{run_of(subject) or 'worker'}: {words}"


def _name(subject: object) -> str:
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in type(subject).__name__)
    return spaced.strip()


def _new_task(given: NewTask) -> str:
    task = given.task
    events = task.history.events
    kinds = ", ".join(NAMES.get(event.event_type, str(event.event_type)) for event in events[-4:])
    ids = f"{events[0].event_id}-{events[-1].event_id}" if events else "none"
    parts = [
        f"task of {task.workflow_type.name} (attempt {task.attempt})",
        f"started {task.started_event_id}, before {task.previous_started_event_id}",
        f"events {ids}",
    ]
    if kinds:
        parts.append(f"ending {kinds}")
    if task.next_page_token:
        parts.append("more pages")
    if task.HasField("query"):
        parts.append(f"query {task.query.query_type!r}")
    parts += [f"query {query.query_type!r}" for query in task.queries.values()]
    parts += [f"message {message.id}" for message in task.messages]
    return "; ".join(parts)


def _page(given: PageFetched) -> str:
    events = given.history.events
    ids = f"{events[0].event_id}-{events[-1].event_id}" if events else "none"
    return f"page {given.fetch}: events {ids}{', more pages' if given.next_page_token else ''}"


def _completed(given: Completed) -> str:
    completion: WorkflowActivationCompletion = given.completion
    if completion.HasField("failed"):
        return f"lang failed: {completion.failed.failure.message}"
    said = []
    for index, command in enumerate(completion.successful.commands):
        variant = command.WhichOneof("variant") or "nothing"
        text = _with_identity(variant, getattr(command, variant, None))
        site = given.sites[index] if index < len(given.sites) else None
        said.append(f"{text} at {site}" if site is not None else text)
    return f"lang did: {_joined(said)}"


def _with_identity(name: str, body: Any) -> str:
    known = (str(getattr(body, field, "")) for field in _IDENTITY)
    inside = ", ".join(text for text in known if text)
    return f"{name}({inside})"


def _reported(given: Reported) -> str:
    if given.problem is not None:
        return f"the server refused ({given.problem.kind.value}): {given.problem.text}"
    response = given.response
    if response is None:
        return "the server has it"
    parts = ["the server has it"]
    if response.reset_history_event_id:
        parts.append(f"back to event {response.reset_history_event_id}")
    if response.workflow_task.task_token:
        parts.append(f"next task started {response.workflow_task.started_event_id}")
    return ", ".join(parts)


def _local_resolved(given: LocalResolved) -> str:
    return (
        f"local activity {given.seq} {given.result.outcome.value}, attempt {given.result.attempt}"
    )


def _activation(action: LangActivation) -> str:
    activation: WorkflowActivation = action.activation
    jobs = []
    for job in activation.jobs:
        variant = job.WhichOneof("variant") or "nothing"
        if variant == "remove_from_cache":
            reason = RemoveFromCache.EvictionReason.Name(job.remove_from_cache.reason)
            jobs.append(f"remove_from_cache({reason}: {job.remove_from_cache.message})")
        else:
            jobs.append(_with_identity(variant, getattr(job, variant, None)))
    mode = "replaying" if activation.is_replaying else "live"
    return f"to lang, {mode} at event {activation.history_length}: {_joined(jobs)}"


def _complete_task(action: CompleteTask) -> str:
    request = action.request
    commands = [
        CommandType.Name(c.command_type).removeprefix("COMMAND_TYPE_") for c in request.commands
    ]
    parts = [f"complete the task: {_joined(commands)}"]
    parts += [f"message {message.id}" for message in request.messages]
    parts += [f"answer of query {query_id}" for query_id in sorted(request.query_results)]
    if request.force_create_new_workflow_task:
        parts.append("wants another task")
    return "; ".join(parts)


def _run_local(action: RunLocalActivities) -> str:
    said = [
        _with_identity("run", request.command)
        if isinstance(request, LocalActivityRequest)
        else f"cancel({request.seq})"
        for request in action.requests
    ]
    return f"local activities: {_joined(said)}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "nothing"


_INPUTS: Final[dict[type, Callable[[Any], str]]] = {
    NewTask: _new_task,
    PageFetched: _page,
    PageFetchFailed: lambda given: f"page {given.fetch} failed: {given.text}",
    Completed: _completed,
    Reported: _reported,
    LocalResolved: _local_resolved,
    EvictionRequested: lambda given: f"eviction wanted: {given.message}",
}
_ACTIONS: Final[dict[type, Callable[[Any], str]]] = {
    LangActivation: _activation,
    CompleteTask: _complete_task,
    FailTask: lambda action: f"fail the task: {action.request.failure.message}",
    RespondQuery: lambda action: (
        f"answer the query: {action.request.error_message or 'with a result'}"
    ),
    FetchPage: lambda action: f"fetch page {action.fetch}",
    RunLocalActivities: _run_local,
    SetHeartbeat: lambda _: "keep the task open while local activities run",
    Counted: lambda action: f"count {action.name}",
}
"""What has more to say than its name."""
