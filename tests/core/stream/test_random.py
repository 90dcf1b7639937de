"""Many runs under random trouble: evictions, lost answers, failures, pages, queries, stale tasks.

The world around the stream is a small model: a server that keeps a history per run and gives out
one task at a time, and a lang whose workflow starts one timer after the other, has two local
activities at once after the second timer, and then ends. What must hold whatever happens: every
workflow ends, with exactly its own history; a run never has two activations at once; every slot
comes back exactly once; a shutdown ends.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import CommandType
from temporalio.api.workflowservice.v1 import RespondWorkflowTaskCompletedRequest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload
from tests.core.support.stage import (
    Stage,
    answer_query,
    complete_workflow,
    kinds,
    queries,
    run_local,
    start_timer,
)

from perdure.core.actions import (
    CancelAllLocalActivities,
    ClearHeartbeat,
    CompleteTask,
    FailTask,
    FetchPage,
    ForgetLocalActivities,
    LangActivation,
    ReleasePermit,
    RespondQuery,
    RunLocalActivities,
    SetHeartbeat,
)
from perdure.core.inputs import (
    Completed,
    HeartbeatDue,
    LocalCancelsDelivered,
    LocalResolved,
    PageFetchFailed,
    ProblemKind,
)
from perdure.core.local_activities.requests import LocalActivityRequest, LocalOutcome, LocalResult

TIMERS = 4
LOCALS_AFTER = 2
LOCALS = (101, 102)


class Server:
    """One run as the server sees it: a history, and perhaps a task that a worker has."""

    def __init__(self, run_id: str) -> None:
        self.built = HistoryBuilder(run_id=run_id, workflow_id=f"workflow of {run_id}")
        self.built.started()
        self.built.task_scheduled()
        self.token = b""
        self.tasks = 0
        self.attempt = 1
        self.sticky = False
        self.last_started = 0
        self.timers = 0
        self.pending_timer = 0
        self.done = False

    def start_task(self) -> HistorySlice:
        """Give a worker the task: all of the history, or what is new since the last one."""
        if self.pending_timer:
            self.built.timer_fired(self.pending_timer, self.timers)
            self.built.task_scheduled()
            self.pending_timer = 0
        started = self.built.task_started()
        self.tasks += 1
        self.token = f"{self.built.run_id}/{self.tasks}".encode()
        first = self.last_started if self.sticky else 0
        return HistorySlice(self.built.events[first:], self.last_started, started)

    def complete(self, request: RespondWorkflowTaskCompletedRequest) -> None:
        self.last_started = self.built.last_task_started
        self.built.task_completed(core_flags=[1, 2, 3, 4])
        self.token, self.attempt, self.sticky = b"", 1, True
        for command in request.commands:
            match command.command_type:
                case CommandType.COMMAND_TYPE_RECORD_MARKER:
                    marker = command.record_marker_command_attributes
                    details = {key: part.payloads[0] for key, part in marker.details.items()}
                    self.built.marker(marker.marker_name, details)
                case CommandType.COMMAND_TYPE_START_TIMER:
                    self.timers += 1
                    timer_id = command.start_timer_command_attributes.timer_id
                    assert timer_id == str(self.timers), "no timer is lost or doubled"
                    self.pending_timer = self.built.timer_started(self.timers)
                case CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION:
                    self.built.completed()
                    self.done = True
                case other:
                    raise AssertionError(other)
        if not self.done and not self.pending_timer:
            assert request.force_create_new_workflow_task, "somebody has to go on"
            self.built.task_scheduled()

    def give_up(self, *, failed: bool) -> None:
        """The worker failed or lost the task: the next attempt goes to any worker."""
        if failed:
            self.built.task_failed()
        else:
            self.built.task_timed_out()
        self.token, self.sticky = b"", False
        self.attempt += 1
        self.built.task_scheduled()


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stage = Stage(max_cached_workflows=self.random.choice([0, 1, 3, 10]))
        self.servers = {f"run-{number}": Server(f"run-{number}") for number in range(6)}
        self.activations: list[WorkflowActivation] = []
        self.at_lang: set[str] = set()
        self.lang: dict[str, int] = {}
        self.locals: list[tuple[str, int]] = []
        self.cancelling: list[str] = []
        self.heartbeats: dict[str, bytes] = {}
        self.locals_done: Counter[str] = Counter()
        self.tasks: list[CompleteTask | FailTask | RespondQuery] = []
        self.fetches: list[FetchPage] = []
        self.permits: Counter[object] = Counter()
        self.trouble = True

    def run(self) -> None:
        for _ in range(4000):
            self.step()
            if all(server.done for server in self.servers.values()):
                break
        assert all(server.done for server in self.servers.values()), "every workflow ends"
        self.trouble = False
        self.stage.stop()
        for _ in range(2000):
            if self.stage.stream.finished:
                break
            self.collect()
            self.go_on()
        assert self.stage.stream.finished, self.stage.stream.pending_runs()
        self.collect()
        assert len(self.permits) == self.stage.polls
        assert set(self.permits.values()) == {1}, "every slot comes back exactly once"

    def step(self) -> None:
        self.collect()
        chosen = self.random.random()
        if chosen < 0.3:
            self.poll()
        elif chosen < 0.34:
            self.stage.evict(self.random.choice(list(self.servers)))
        elif chosen < 0.38:
            self.query()
        else:
            self.go_on()

    def collect(self) -> None:
        stage = self.stage
        for action in stage.all(LangActivation):
            run_id = action.activation.run_id
            assert run_id not in self.at_lang, "one activation at a time"
            self.at_lang.add(run_id)
            self.activations.append(action.activation)
        self.tasks += stage.all(CompleteTask)
        self.tasks += stage.all(FailTask)
        self.tasks += stage.all(RespondQuery)
        self.fetches += stage.all(FetchPage)
        for run in stage.all(RunLocalActivities):
            for request in run.requests:
                assert isinstance(request, LocalActivityRequest)
                self.locals.append((run.run_id, request.command.seq))
        self.cancelling += [a.run_id for a in stage.all(CancelAllLocalActivities)]
        for forgotten in stage.all(ForgetLocalActivities):
            self.locals = [one for one in self.locals if one[0] != forgotten.run_id]
            self.heartbeats.pop(forgotten.run_id, None)
        for heartbeat in stage.all(SetHeartbeat):
            self.heartbeats[heartbeat.run_id] = heartbeat.task_token
        stage.all(ClearHeartbeat)
        self.permits.update(action.permit for action in stage.all(ReleasePermit))
        limit = max(1, stage.stream.settings.max_cached_workflows)
        assert stage.stream.cached_runs <= limit

    def happens(self, chance: float) -> bool:
        return self.trouble and self.random.random() < chance

    def poll(self) -> None:
        waiting = [s for s in self.servers.values() if not s.done]
        server = self.random.choice(waiting)
        if server.token:
            if not self.happens(0.1):
                return
            server.give_up(failed=False)
        part = server.start_task()
        cut = self.random.randrange(1, len(part.events) + 1)
        paged = self.happens(0.3) and cut < len(part.events)
        if paged:
            part.events[:] = part.events[:cut]
        self.stage.poll(
            server.built,
            part,
            token=server.token,
            attempt=server.attempt,
            next_page_token=str(part.events[-1].event_id).encode() if paged else b"",
            queries=queries(q="question") if self.happens(0.2) else None,
        )

    def query(self) -> None:
        server = self.random.choice(list(self.servers.values()))
        if not server.pending_timer and not server.done:
            return
        sticky = server.done and self.random.random() < 0.5
        self.stage.poll_query(server.built, sticky=sticky)

    def go_on(self) -> None:
        """One of those who have something to do does it."""
        everything = (self.activations, self.tasks, self.fetches, self.locals, self.cancelling)
        sources: list[Any] = [source for source in everything if source]
        if self.heartbeats and self.random.random() < 0.1:
            run_id, token = self.heartbeats.popitem()
            self.stage.feed(HeartbeatDue(run_id, token))
            return
        if not sources:
            return
        source = self.random.choice(sources)
        if source is self.activations:
            self.answer(self.activations.pop(self.random.randrange(len(self.activations))))
        elif source is self.tasks:
            self.report(self.tasks.pop(self.random.randrange(len(self.tasks))))
        elif source is self.fetches:
            self.fetch(self.fetches.pop(self.random.randrange(len(self.fetches))))
        elif source is self.locals:
            run_id, seq = self.locals.pop(self.random.randrange(len(self.locals)))
            result = LocalResult(
                seq, LocalOutcome.COMPLETED, 1, Timestamp(), payload=payload(seq), runtime=0.5
            )
            self.stage.feed(LocalResolved(run_id, seq, result))
        else:
            self.stage.feed(LocalCancelsDelivered(self.cancelling.pop(0)))

    def answer(self, activation: WorkflowActivation) -> None:
        run_id = activation.run_id
        self.at_lang.discard(run_id)
        if kinds(activation) == ["remove_from_cache"]:
            self.lang.pop(run_id, None)
            self.stage.complete(run_id=run_id)
            return
        if self.happens(0.05):
            completion = WorkflowActivationCompletion(run_id=run_id)
            completion.failed.failure.message = "trouble"
            self.stage.feed(Completed(completion))
            return
        commands = []
        for job in activation.jobs:
            match job.WhichOneof("variant"):
                case "initialize_workflow":
                    assert run_id not in self.lang, "begun only once while it is cached"
                    self.lang[run_id] = 1
                    self.locals_done[run_id] = 0
                    commands.append(start_timer(1))
                case "fire_timer":
                    assert job.fire_timer.seq == self.lang[run_id], "in order, and only once"
                    if job.fire_timer.seq == LOCALS_AFTER:
                        commands += [run_local(seq) for seq in LOCALS]
                    else:
                        commands.append(self.next_step(run_id))
                case "resolve_activity":
                    assert len(activation.jobs) == 1, "one result at a time"
                    self.locals_done[run_id] += 1
                    if self.locals_done[run_id] == len(LOCALS):
                        commands.append(self.next_step(run_id))
                case "query_workflow":
                    assert run_id in self.lang
                    commands.append(answer_query(job.query_workflow.query_id))
                case other:
                    raise AssertionError(other)
        self.stage.complete(*commands, run_id=run_id)

    def next_step(self, run_id: str) -> WorkflowCommand:
        self.lang[run_id] += 1
        if self.lang[run_id] > TIMERS:
            return complete_workflow()
        return start_timer(self.lang[run_id])

    def report(self, action: CompleteTask | FailTask | RespondQuery) -> None:
        run_id = action.run_id
        server = self.servers[run_id]
        known = action.request.task_token == server.token
        if isinstance(action, RespondQuery):
            self.stage.report(run_id=run_id)
        elif not known or self.happens(0.05):
            if not (isinstance(action, FailTask) and action.unstored):
                self.stage.refuse(ProblemKind.NOT_FOUND, run_id=run_id)
            if known:
                server.give_up(failed=False)
        elif isinstance(action, FailTask):
            server.give_up(failed=True)
            if not action.unstored:
                self.stage.report(run_id=run_id)
        else:
            server.complete(action.request)
            next_task = None
            if not server.done and self.happens(0.3) and action.request.return_new_workflow_task:
                part = server.start_task()
                next_task = server.built.poll(part, token=server.token)
            self.stage.report(run_id=run_id, next_task=next_task)

    def fetch(self, action: FetchPage) -> None:
        built = self.servers[action.run_id].built
        if self.happens(0.1):
            self.stage.feed(PageFetchFailed(action.fetch, "trouble"))
            return
        first = int(action.token or b"0") + 1
        last = min(built.last_event_id, first + self.random.randrange(12))
        more = str(last).encode() if last < built.last_event_id else b""
        self.stage.page(action.fetch, built, first, last, more)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_under_random_trouble(seed: int) -> None:
    """Rows: fuzzy_workflow."""
    World(seed).run()
