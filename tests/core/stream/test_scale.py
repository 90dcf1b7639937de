"""Large histories and large tasks: they come through, and the work grows no faster than they do.

Work is counted in lines of the core that were executed, so the tests do not depend on a clock: four
times as much of anything may cost a little more than four times the lines, but not sixteen times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueResponse
from temporalio.bridge.proto import ActivityTaskCompletion
from temporalio.bridge.proto.activity_result import ActivityExecutionResult, Success
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity, WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload, update_message
from tests.core.support.stage import (
    RUN,
    Stage,
    cancel_timer,
    complete_workflow,
    kinds,
    run_local,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import (
    FetchPage,
    LangActivation,
    ReleasePermit,
    RunLocalActivities,
)
from perdure.core.activities.events import ReportResult
from perdure.core.activities.reports import ActivitySettings
from perdure.core.activities.tasks import Activities
from perdure.core.inputs import LocalResolved
from perdure.core.local_activities.entry import Instant
from perdure.core.local_activities.requests import (
    CancelsDelivered,
    LocalActivityCancel,
    LocalActivityRequest,
    LocalOutcome,
    LocalResult,
    PermitReleased,
    Resolved,
)
from perdure.core.local_activities.tasks import LocalActivities
from perdure.core.run_info import RunInfo

Scene = Callable[[int], None]


# Scenes: each does its thing `size` times


def replay(size: int) -> None:
    """A history of `size` activities, one after the other."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for number in range(1, size + 1):
        scheduled = built.activity_scheduled(str(number))
        built.activity_completed(scheduled, built.activity_started(scheduled))
        built.full_task()
    built.completed()
    stage = Stage(evict_after_replay=True)
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    for number in range(1, size + 1):
        stage.complete(schedule_activity(number))
        assert kinds(stage.activation()) == ["resolve_activity"]
    stage.complete(complete_workflow())
    assert stage.eviction().reason == 5
    assert len(built.events) >= 6 * size


def paged_replay(size: int) -> None:
    """The same history comes in pages of 100 events."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for number in range(1, size + 1):
        started = built.timer_started(number)
        built.timer_fired(started, number)
        built.full_task()
    built.completed()
    stage = Stage(evict_after_replay=True)
    whole = built.whole()
    first = HistorySlice(
        whole.events[:100], whole.previous_started_event_id, whole.started_event_id
    )
    stage.poll(built, first, next_page_token=b"100")
    fired = 0
    while not stage.has(ReleasePermit):
        for fetch in stage.all(FetchPage):
            begin = int(fetch.token)
            end = min(begin + 100, len(built.events))
            more = str(end).encode() if end < len(built.events) else b""
            stage.page(fetch.fetch, built, begin + 1, end, more)
        for action in stage.all(LangActivation):
            fired += kinds(action.activation) == ["fire_timer"]
            stage.complete(complete_workflow() if fired == size else start_timer(fired + 1))
    assert fired == size


def signals(size: int) -> None:
    """All in one task."""
    built = HistoryBuilder()
    built.started()
    for number in range(size):
        built.signaled(str(number))
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    jobs = stage.activation().jobs
    assert [job.signal_workflow.signal_name for job in jobs[1:]] == [str(n) for n in range(size)]
    stage.complete(complete_workflow())
    stage.completion()


def paged_signals(size: int) -> None:
    """All in one task, whose history comes in many pages."""
    built = HistoryBuilder()
    built.started()
    for number in range(size):
        built.signaled(str(number))
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, HistorySlice(built.events[:5], 0, size + 3), next_page_token=b"5")
    while stage.has(FetchPage):
        fetch = stage.take(FetchPage)
        end = int(fetch.token) + 5
        more = str(end).encode() if end < len(built.events) else b""
        stage.page(fetch.fetch, built, end - 4, end, more)
    assert len(stage.activation().jobs) == size + 1


def updates(size: int) -> None:
    """All in one task, accepted and completed at once."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, messages=[update_message(f"update-{n}", event_id=2) for n in range(size)])
    activation = stage.activation()
    assert kinds(activation).count("do_update") == size
    commands = []
    for job in activation.jobs[1:]:
        for answer in ("accepted", "completed"):
            command = WorkflowCommand()
            command.update_response.protocol_instance_id = job.do_update.protocol_instance_id
            if answer == "accepted":
                command.update_response.accepted.SetInParent()
            else:
                command.update_response.completed.CopyFrom(payload("done"))
            commands.append(command)
    stage.complete(*commands)
    request = stage.completion()
    assert len(request.messages) == len(request.commands) == 2 * size


def fan_out(size: int) -> None:
    """Activities begun in one task and resolved in the next one."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    scheduled = [built.activity_scheduled(str(n + 1)) for n in range(size)]
    for event in scheduled:
        built.activity_completed(event, built.activity_started(event))
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(*(schedule_activity(n + 1) for n in range(size)))
    assert len(stage.completion().commands) == size
    stage.report()
    stage.poll(built, built.only_task(2))
    assert [j.resolve_activity.seq for j in stage.activation().jobs] == [*range(1, size + 1)]


def cancelled(activity: WorkflowCommand) -> WorkflowCommand:
    command = WorkflowCommand()
    kind = activity.WhichOneof("variant")
    if kind == "schedule_local_activity":
        command.request_cancel_local_activity.seq = activity.schedule_local_activity.seq
    else:
        command.request_cancel_activity.seq = activity.schedule_activity.seq
    return command


def cancels_at_once(size: int) -> None:
    """Timers, activities and local activities, begun and cancelled in one activation."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    begun = [start_timer(n + 1) for n in range(size)]
    begun += [schedule_activity(n + 1) for n in range(size)]
    begun += [run_local(n + 1) for n in range(size)]
    ended = [cancel_timer(n + 1) for n in range(size)]
    ended += [cancelled(command) for command in begun[size:]]
    stage.complete(*begun, *ended)
    assert not stage.has(RunLocalActivities)
    activation = stage.activation()
    assert len(activation.jobs) == 2 * size
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == size + 1, "the markers of local activities"


def cancel_storm(size: int) -> None:
    """Everything that the last task began is cancelled in one activation of the next."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for number in range(size):
        built.timer_started(number + 1)
    built.signaled("stop")
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(*(start_timer(n + 1) for n in range(size)))
    stage.completion()
    stage.report()
    stage.poll(built, built.only_task(2))
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete(*(cancel_timer(n + 1) for n in range(size)))
    assert len(stage.completion().commands) == size


def local_activities(size: int) -> None:
    """Begun together; each result is an activation of its own."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(*(run_local(n + 1) for n in range(size)))
    requests = stage.take(RunLocalActivities).requests
    assert len(requests) == size
    for request in requests:
        assert isinstance(request, LocalActivityRequest)
        seq = request.command.seq
        result = LocalResult(seq, LocalOutcome.COMPLETED, 1, Timestamp(), runtime=0.1)
        stage.feed(LocalResolved(RUN, seq, result))
        activation: WorkflowActivation = stage.activation()
        assert [job.resolve_activity.seq for job in activation.jobs] == [seq]
        stage.complete()
    assert len(stage.completion().commands) == size


def local_cancels(size: int) -> None:
    """Local activities that run are all cancelled in one activation, by the end of the run."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(*(run_local(n) for n in range(1, size + 2)))
    stage.take(RunLocalActivities)
    result = LocalResult(1, LocalOutcome.COMPLETED, 1, Timestamp(), runtime=0.1)
    stage.feed(LocalResolved(RUN, 1, result))
    stage.activation()
    stage.complete(complete_workflow())
    cancels = stage.take(RunLocalActivities).requests
    assert all(isinstance(request, LocalActivityCancel) for request in cancels)
    assert len(cancels) == size


def local_manager(size: int) -> None:
    """The manager runs them all at once; half is cancelled, half completes; then the run leaves."""
    manager, now = LocalActivities(), Instant(0.0, 0.0)
    run = RunInfo("namespace", "workflow-id", RUN, "workflow-type", "task-queue")
    for seq in range(1, size + 1):
        command = ScheduleLocalActivity(seq=seq, activity_type="activity", attempt=1)
        command.schedule_to_close_timeout.seconds = 1000
        command.start_to_close_timeout.seconds = 100
        manager.request([LocalActivityRequest(run, command)], now)
    tokens = []
    for number in range(size):
        task = manager.start_next(number, now)
        assert task is not None
        tokens.append(task.task_token)
    manager.request([LocalActivityCancel(RUN, seq) for seq in range(1, size // 2 + 1)], now)
    while manager.take_cancel() is not None:
        manager.next_deadline()
    success = ActivityExecutionResult(completed=Success(result=payload("done")))
    for token in tokens[size // 2 :]:
        assert manager.complete(token, success, now)
        manager.next_deadline()
    manager.cancel_all(RUN)
    for token in tokens[: size // 2]:
        assert manager.complete(token, success, now)
    assert manager.is_idle
    events = manager.drain()
    assert sum(isinstance(event, PermitReleased) for event in events) == size
    assert sum(isinstance(event, Resolved) for event in events) == size - size // 2
    assert sum(isinstance(event, CancelsDelivered) for event in events) == 1


def remote_manager(size: int) -> None:
    """Tasks of the server: all are cancelled at once, and all complete."""
    manager = Activities(
        ActivitySettings(namespace="namespace", task_queue="task-queue", identity="worker")
    )
    for number in range(size):
        task = PollActivityTaskQueueResponse(task_token=b"task-%d" % number)
        task.activity_type.name = "activity"
        task.start_to_close_timeout.seconds = 100
        manager.polled(task, number, 0.0)
        assert manager.next_task() is not None
    for number in range(size):
        manager.cancel(b"task-%d" % number)
    while manager.next_task() is not None:
        manager.next_deadline()
    for number in range(size):
        completion = ActivityTaskCompletion(task_token=b"task-%d" % number)
        completion.result.completed.result.data = b"1"
        manager.complete(completion, 1.0)
        manager.next_deadline()
    for event in manager.drain():
        if isinstance(event, ReportResult):
            manager.reported(event.token)
    assert manager.outstanding == 0


def work_of(scene: Scene, size: int) -> int:
    """Lines of the core that the scene executes."""
    lines = 0

    def count(_: FrameType, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        return count if "/perdure/core/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        scene(size)
    finally:
        sys.settrace(before)
    return lines


SCENES: dict[Scene, int] = {
    replay: 8_400,
    paged_replay: 2_000,
    signals: 10_000,
    paged_signals: 10_000,
    updates: 5_000,
    fan_out: 2_000,
    cancels_at_once: 2_000,
    cancel_storm: 2_000,
    local_activities: 10_000,
    local_cancels: 2_000,
    local_manager: 10_000,
    remote_manager: 2_000,
}


def named(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("scene", SCENES, ids=named)
def test_work_grows_with_size_and_not_faster(scene: Scene) -> None:
    small, large = work_of(scene, 100), work_of(scene, 400)
    assert large < 5 * small


@pytest.mark.parametrize(("scene", "size"), SCENES.items(), ids=named)
def test_large_ones_come_through(scene: Scene, size: int) -> None:
    """The replay has more than 50,000 events."""
    scene(size)
