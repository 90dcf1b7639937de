"""A workflow stream with everything around it played by the test: server, lang, timers.

Feed inputs with the methods named for what happens; look at what came out with the attributes.
What comes out is sorted by kind, and every look at it is explicit: `activation()` takes the next
activation, `completion()` the next answer of a task, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from temporalio.api.failure.v1 import Failure
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueResponse,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload

from perdure.core.actions import (
    Action,
    CompleteTask,
    Counted,
    FailTask,
    FetchPage,
    LangActivation,
    RespondQuery,
)
from perdure.core.inputs import (
    Completed,
    EvictionRequested,
    Input,
    NewTask,
    PageFetched,
    PollersStopped,
    Problem,
    ProblemKind,
    Reported,
    ShutdownRequested,
)
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_stream import WorkflowStream

A = TypeVar("A")

RUN = "run-id"


def settings(**changes: Any) -> StreamSettings:
    defaults: dict[str, Any] = {
        "namespace": "default",
        "task_queue": "task-queue",
        "identity": "worker",
        "sticky_queue": "sticky",
        "max_cached_workflows": 10,
    }
    return StreamSettings(**(defaults | changes))


class Stage:
    """See the module."""

    def __init__(self, **changes: Any) -> None:
        self.stream = WorkflowStream(settings(**changes))
        self.actions: deque[Action] = deque()
        self.polls = 0

    # What happens

    def feed(self, given: Input) -> None:
        self.actions.extend(self.stream.handle(given))

    def poll(
        self,
        built: HistoryBuilder,
        part: HistorySlice | None = None,
        *,
        attempt: int = 1,
        token: bytes | None = None,
        received_at: float = 0.0,
        **fields: Any,
    ) -> str:
        """A task from a poll; the permit that it came with is returned."""
        self.polls += 1
        permit = f"permit-{self.polls}"
        token = token if token is not None else f"task-{self.polls}".encode()
        task = built.poll(part, attempt=attempt, token=token, **fields)
        self.feed(NewTask(task, permit, received_at))
        return permit

    def poll_query(self, built: HistoryBuilder, *, sticky: bool, query: str = "query") -> str:
        """A lone query in the old form: with the whole history, or to a run in the cache."""
        whole = built.whole()
        events = [] if sticky else whole.events
        ends = built.task_ends()
        return self.poll(
            built,
            HistorySlice(events, ends[-1] if ends else 0, 0),
            query=WorkflowQuery(query_type=query),
        )

    def complete(
        self, *commands: WorkflowCommand, run_id: str = RUN, flags: Iterable[int] = ()
    ) -> None:
        """Lang answers with these commands."""
        completion = WorkflowActivationCompletion(run_id=run_id)
        completion.successful.commands.extend(commands)
        completion.successful.used_internal_flags.extend(flags)
        completion.successful.SetInParent()
        self.feed(Completed(completion))

    def fail(
        self, message: str = "lang failed", *, run_id: str = RUN, force_cause: int = 0
    ) -> None:
        completion = WorkflowActivationCompletion(run_id=run_id)
        completion.failed.failure.message = message
        completion.failed.force_cause = force_cause  # type: ignore[assignment]
        self.feed(Completed(completion))

    def report(
        self,
        *,
        run_id: str = RUN,
        next_task: PollWorkflowTaskQueueResponse | None = None,
        reset_to: int = 0,
        received_at: float = 0.0,
    ) -> None:
        """The server took the answer."""
        response = RespondWorkflowTaskCompletedResponse(
            workflow_task=next_task, reset_history_event_id=reset_to
        )
        self.feed(Reported(run_id, received_at, response))

    def refuse(self, kind: ProblemKind, text: str = "refused", *, run_id: str = RUN) -> None:
        """The server did not take the answer."""
        problem = Problem(kind, text)
        self.feed(Reported(run_id, 0.0, None, problem))

    def page(
        self, fetch: int, built: HistoryBuilder, first: int, last: int, token: bytes = b""
    ) -> None:
        page = built.page(first, last, token)
        self.feed(PageFetched(fetch, page.history, page.next_page_token))

    def evict(self, run_id: str = RUN) -> None:
        """Somebody asks for the eviction of the run."""
        reason = RemoveFromCache.EvictionReason.LANG_REQUESTED
        self.feed(EvictionRequested(run_id, "wanted by the test", reason))

    def stop(self) -> None:
        self.feed(ShutdownRequested())
        self.feed(PollersStopped())

    # What came out

    def take(self, kind: type[A]) -> A:
        """The first action of this kind; it is gone afterwards."""
        for action in self.actions:
            if isinstance(action, kind):
                self.actions.remove(action)
                return action
        raise AssertionError(f"no {kind.__name__} came out, only {list(self.actions)}")

    def all(self, kind: type[A]) -> list[A]:
        """All actions of this kind; they are gone afterwards."""
        found: list[A] = [action for action in self.actions if isinstance(action, kind)]
        self.actions = deque(a for a in self.actions if not isinstance(a, kind))
        return found

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(action, kind) for action in self.actions)

    def activation(self) -> WorkflowActivation:
        return self.take(LangActivation).activation

    def completion(self) -> RespondWorkflowTaskCompletedRequest:
        return self.take(CompleteTask).request

    def failure(self) -> RespondWorkflowTaskFailedRequest:
        return self.take(FailTask).request

    def query_answer(self) -> RespondQueryTaskCompletedRequest:
        return self.take(RespondQuery).request

    def eviction(self) -> Any:
        """The next activation, which must be an eviction, and answer it."""
        activation = self.activation()
        assert kinds(activation) == ["remove_from_cache"], activation
        self.complete(run_id=activation.run_id)
        return activation.jobs[0].remove_from_cache

    @property
    def is_quiet(self) -> bool:
        """True if nothing came out for lang or for the server."""
        loud = (
            LangActivation,
            CompleteTask,
            FailTask,
            RespondQuery,
            FetchPage,
        )
        return not any(isinstance(action, loud) for action in self.actions)


def kinds(activation: WorkflowActivation) -> list[str]:
    """The jobs of an activation by name."""
    return [job.WhichOneof("variant") or "" for job in activation.jobs]


def counted(actions: Iterable[Counted]) -> list[str]:
    return [action.name for action in actions]


# Commands of lang


def start_timer(seq: int = 1, seconds: int = 1) -> WorkflowCommand:
    command = WorkflowCommand()
    command.start_timer.seq = seq
    command.start_timer.start_to_fire_timeout.seconds = seconds
    return command


def cancel_timer(seq: int = 1) -> WorkflowCommand:
    command = WorkflowCommand()
    command.cancel_timer.seq = seq
    return command


def schedule_activity(
    seq: int = 1, *, task_queue: str = "task-queue", **fields: Any
) -> WorkflowCommand:
    command = WorkflowCommand()
    activity = command.schedule_activity
    activity.seq = seq
    activity.activity_id = str(seq)
    activity.activity_type = "activity"
    activity.task_queue = task_queue
    for name, value in fields.items():
        setattr(activity, name, value)
    return command


def run_local(seq: int = 1, *, cancellation: int = 0) -> WorkflowCommand:
    command = WorkflowCommand()
    local = command.schedule_local_activity
    local.seq = seq
    local.activity_id = str(seq)
    local.activity_type = "activity"
    local.start_to_close_timeout.seconds = 60
    local.cancellation_type = cancellation  # type: ignore[assignment]
    return command


def complete_workflow(result: object = None) -> WorkflowCommand:
    command = WorkflowCommand()
    command.complete_workflow_execution.result.CopyFrom(payload(result))
    return command


def fail_workflow(message: str = "failed") -> WorkflowCommand:
    command = WorkflowCommand()
    command.fail_workflow_execution.failure.message = message
    return command


def answer_query(query_id: str = "legacy_query", result: object = "answer") -> WorkflowCommand:
    command = WorkflowCommand()
    command.respond_to_query.query_id = query_id
    command.respond_to_query.succeeded.response.CopyFrom(payload(result))
    return command


def fail_query(query_id: str = "legacy_query", message: str = "no") -> WorkflowCommand:
    command = WorkflowCommand()
    command.respond_to_query.query_id = query_id
    command.respond_to_query.failed.CopyFrom(Failure(message=message))
    return command


def queries(**types: str) -> Mapping[str, WorkflowQuery]:
    return {query_id: WorkflowQuery(query_type=kind) for query_id, kind in types.items()}
