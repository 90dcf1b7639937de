"""Activities of both kinds under random trouble: whatever happens, every slot comes back once.

The world is a random sequence of everything that may happen to a manager: tasks, heartbeats,
cancellations, answers of lang (also wrong, late and repeated ones), errors of the server, time. In
the end everything is answered, and then nothing may be left.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from temporalio.api.common.v1 import RetryPolicy
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatResponse,
)
from temporalio.bridge.proto import ActivityHeartbeat, ActivityTaskCompletion
from temporalio.bridge.proto.activity_result import ActivityExecutionResult
from temporalio.bridge.proto.activity_task import ActivityTask
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity
from tests.core.support.history_builder import application_failure, cancelled_failure, duration
from tests.core.support.mutations import mutate

from perdure.core.activities.events import HeartbeatAnswer, RecordHeartbeat, ReportResult
from perdure.core.activities.reports import ActivitySettings, MalformedActivityCompletion
from perdure.core.activities.tasks import Activities
from perdure.core.local_activities.entry import Instant
from perdure.core.local_activities.requests import (
    CancelsDelivered,
    LocalActivityCancel,
    LocalActivityRequest,
    PermitReleased,
    Resolved,
)
from perdure.core.local_activities.tasks import LocalActivities
from perdure.core.run_info import RunInfo


def result(random: Random) -> ActivityExecutionResult:
    answer = ActivityExecutionResult()
    kind = random.choice(["completed", "failed", "cancelled"])
    if kind == "completed":
        answer.completed.result.data = b"1"
    elif kind == "failed":
        answer.failed.failure.CopyFrom(application_failure())
    else:
        answer.cancelled.failure.CopyFrom(cancelled_failure())
    return answer


class Remote:
    """The manager of the server's activities."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.manager = Activities(
            ActivitySettings(
                namespace="namespace",
                task_queue="queue",
                identity="worker",
                graceful_shutdown_period=self.random.choice([0, 5]),
            )
        )
        self.now = 0.0
        self.made = 0
        self.at_lang: list[bytes] = []
        self.calls: list[Any] = []
        self.permits: Counter[object] = Counter()

    def step(self) -> None:
        random, manager = self.random, self.manager
        chosen = random.randrange(8)
        if chosen == 0:
            self.poll()
        elif chosen == 1:
            while (task := manager.next_task()) is not None:
                if task.HasField("start"):
                    self.at_lang.append(task.task_token)
        elif chosen == 2 and self.at_lang:
            beat = ActivityHeartbeat(task_token=random.choice([*self.at_lang, b"unknown"]))
            beat.details.add().data = b"1"
            manager.heartbeat(beat, self.now)
        elif chosen == 3 and self.at_lang:
            self.answer(self.at_lang.pop(random.randrange(len(self.at_lang))))
        elif chosen == 4 and self.at_lang:
            manager.cancel(random.choice([*self.at_lang, b"unknown"]))
        elif chosen == 5 and self.calls:
            self.reply(self.calls.pop(random.randrange(len(self.calls))))
        elif chosen == 6:
            self.now += random.choice([0.1, 1, 30])
            manager.wake(self.now)
        self.collect()

    def poll(self) -> None:
        self.made += 1
        task = PollActivityTaskQueueResponse(task_token=b"task-%d" % self.made)
        task.activity_type.name = "activity"
        task.heartbeat_timeout.CopyFrom(duration(self.random.choice([0, 3])))
        task.start_to_close_timeout.CopyFrom(duration(self.random.choice([0, 10])))
        if self.random.random() < 0.3:
            mutate(self.random, task)
            task.task_token = b"task-%d" % self.made
        permit = f"permit-{self.made}"
        if self.random.random() < 0.3:
            self.manager.eager([task], [permit], self.now)
        else:
            self.manager.polled(task, permit, self.now)

    def answer(self, token: bytes) -> None:
        completion = ActivityTaskCompletion(task_token=token, result=result(self.random))
        if self.random.random() < 0.2:
            mutate(self.random, completion)
        with suppress(MalformedActivityCompletion):
            self.manager.complete(completion, self.now)
        good = ActivityTaskCompletion(task_token=token, result=result(self.random))
        self.manager.complete(good, self.now)

    def reply(self, call: Any) -> None:
        if isinstance(call, ReportResult):
            self.manager.reported(call.token)
            return
        answers: list[Any] = [
            HeartbeatAnswer.FAILED,
            HeartbeatAnswer.NOT_FOUND,
            RecordActivityTaskHeartbeatResponse(),
            RecordActivityTaskHeartbeatResponse(cancel_requested=True),
            RecordActivityTaskHeartbeatResponse(activity_paused=True, activity_reset=True),
        ]
        self.manager.heartbeat_answered(call.token, self.random.choice(answers), self.now)

    def collect(self) -> None:
        for event in self.manager.drain():
            if isinstance(event, RecordHeartbeat | ReportResult):
                self.calls.append(event)
            elif hasattr(event, "permit"):
                self.permits[event.permit] += 1

    def finish(self) -> None:
        self.manager.shutdown(self.now)
        self.manager.pollers_stopped()
        for _ in range(200):
            while (task := self.manager.next_task()) is not None:
                if task.HasField("start"):
                    self.at_lang.append(task.task_token)
            while self.at_lang:
                self.answer(self.at_lang.pop())
            self.collect()
            while self.calls:
                self.reply(self.calls.pop())
            self.collect()
            if self.manager.is_finished:
                break
        assert self.manager.is_finished
        assert self.permits == Counter(f"permit-{n + 1}" for n in range(self.made))


class Local:
    """The manager of local activities."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.manager = LocalActivities()
        self.now = 0.0
        self.seq = 0
        self.given: list[str] = []
        self.at_lang: list[bytes] = []
        self.permits: Counter[object] = Counter()
        self.resolved: Counter[tuple[str, int]] = Counter()
        self.leaving: set[str] = set()
        self.delivered: set[str] = set()

    def instant(self) -> Instant:
        return Instant(self.now, 1_800_000_000 + self.now)

    def step(self) -> None:
        random, manager = self.random, self.manager
        run = random.choice(["one", "two", "three"])
        chosen = random.randrange(9)
        if chosen in (0, 1):
            self.request(run)
        elif chosen == 2:
            self.start()
        elif chosen == 3:
            manager.request(
                [LocalActivityCancel(run, random.randrange(self.seq + 2))], self.instant()
            )
        elif chosen == 4 and self.at_lang:
            self.answer(self.at_lang.pop(random.randrange(len(self.at_lang))))
        elif chosen == 5:
            self.now += random.choice([0.1, 1, 5, 100])
            manager.wake(self.instant())
        elif chosen == 6:
            manager.take_cancel()
        elif chosen == 7:
            manager.task_completed(run)
        elif chosen == 8 and random.random() < 0.1 and run not in self.leaving:
            self.leaving.add(run)
            manager.cancel_all(run)
        self.collect()

    def request(self, run: str) -> None:
        if run in self.leaving:
            return
        self.seq += 1
        command = ScheduleLocalActivity(seq=self.seq, activity_type="activity")
        command.start_to_close_timeout.CopyFrom(duration(self.random.choice([2, 1000])))
        command.schedule_to_close_timeout.CopyFrom(duration(self.random.choice([4, 1000])))
        command.schedule_to_start_timeout.CopyFrom(duration(self.random.choice([0, 1])))
        command.retry_policy.CopyFrom(
            RetryPolicy(initial_interval=duration(self.random.choice([1, 90])), maximum_attempts=3)
        )
        if self.random.random() < 0.3:
            mutate(self.random, command)
            command.seq = self.seq
        info = RunInfo("namespace", "workflow-id", run, "workflow-type", "queue")
        self.manager.request([LocalActivityRequest(info, command)], self.instant())

    def start(self) -> None:
        permit = f"permit-{len(self.given) + 1}"
        task: ActivityTask | None = self.manager.start_next(permit, self.instant())
        if task is not None:
            self.given.append(permit)
            self.at_lang.append(task.task_token)

    def answer(self, token: bytes) -> None:
        answer = result(self.random)
        if self.random.random() < 0.2:
            mutate(self.random, answer)
        assert self.manager.complete(token, answer, self.instant())
        assert not self.manager.complete(token, answer, self.instant())

    def collect(self) -> None:
        for event in self.manager.drain():
            if isinstance(event, PermitReleased):
                self.permits[event.permit] += 1
            elif isinstance(event, Resolved):
                assert event.run_id not in self.leaving, "nothing of it surfaces any more"
                self.resolved[event.run_id, event.result.seq] += 1
            elif isinstance(event, CancelsDelivered):
                assert event.run_id in self.leaving
                self.delivered.add(event.run_id)

    def finish(self) -> None:
        for _ in range(2000):
            if self.manager.is_idle:
                break
            while self.manager.take_cancel() is not None:
                pass
            self.start()
            while self.at_lang:
                self.answer(self.at_lang.pop())
            deadline = self.manager.next_deadline()
            if deadline is not None:
                self.now = max(self.now, deadline)
                self.manager.wake(self.instant())
            self.collect()
        assert self.manager.is_idle
        assert self.permits == Counter(self.given)
        assert self.delivered == self.leaving
        assert set(self.resolved.values()) <= {1}, "each is over once"


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("world", [Remote, Local])
def test_every_slot_comes_back_once(world: type[Remote | Local], seed: int) -> None:
    trouble = world(seed)
    for _ in range(300):
        trouble.step()
    trouble.finish()
