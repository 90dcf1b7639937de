"""Broken histories, tasks and completions, beside runs in which nothing is wrong.

Whatever comes in, a worker goes on: the only errors that leave the stream say that one completion
or one task is malformed; all other trouble fails the task of its own run. Runs that are well finish
with exactly the answers they would have given alone, every slot comes back exactly once, every
eviction is answered, and a shutdown ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings, strategies as st
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.history_builder import HistorySlice
from tests.core.support.mutations import break_history, mutate
from tests.core.support.random_histories import Lang, random_story
from tests.core.support.stage import Stage, answer_query, queries

from perdure.core.actions import (
    CancelAllLocalActivities,
    CompleteTask,
    FailTask,
    FetchPage,
    LangActivation,
    ReleasePermit,
    RespondQuery,
    RunLocalActivities,
    RunRemoved,
    SetHeartbeat,
)
from perdure.core.inputs import (
    Completed,
    HeartbeatDue,
    LocalCancelsDelivered,
    LocalResolved,
    NewTask,
    PageFetched,
    PageFetchFailed,
    ProblemKind,
)
from perdure.core.local_activities.requests import LocalActivityRequest, LocalOutcome, LocalResult
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.workflow_tasks.completion import MalformedCompletion
from perdure.core.workflow_tasks.task import MalformedTask

VARIANTS = [field.name for field in WorkflowCommand.DESCRIPTOR.oneofs_by_name["variant"].fields]


class World:
    """The stream with a server and a lang that make mistakes in all runs but the sound ones."""

    def __init__(self, seed: int, broken: Iterable[str] = ("run-0", "run-1")) -> None:
        self.random = Random(seed)
        self.stage = Stage(max_cached_workflows=self.random.choice([0, 2, 10]))
        self.stories = {
            f"run-{number}": random_story(
                Random(seed * 10 + number), f"run-{number}", live=number % 2 == 1
            )
            for number in range(4)
        }
        self.broken = set(broken)
        self.task_of = {"run-1": 1, "run-3": 1}
        self.events = {run: list(story.built.events) for run, story in self.stories.items()}
        for run in self.broken:
            for _ in range(self.random.choice([0, 1, 1, 2])):
                break_history(self.random, self.events[run])
        self.langs: dict[str, Lang] = {}
        self.pages: dict[bytes, tuple[str, int]] = {}
        self.pending: list[Any] = []
        self.permits: Counter[object] = Counter()
        self.failed: set[str] = set()
        self.seen: set[str] = set()
        self.polls = 0

    @property
    def sound(self) -> set[str]:
        return set(self.stories) - self.broken

    def run(self) -> None:
        order = [*self.stories, *sorted(self.broken), *sorted(self.broken)]
        self.random.shuffle(order)
        for run in order:
            self.poll(run)
            for _ in range(self.random.randrange(30)):
                self.step()
        for _ in range(20_000):
            if not self.step():
                break
        else:
            raise AssertionError(f"it never comes to rest: {self.pending[:3]}")
        assert not self.failed & self.sound, "what is well does not fail"
        for run in sorted(self.seen | set(self.stories)):
            self.stage.evict(run)
        self.stage.stop()
        while self.step():
            pass
        assert self.stage.stream.finished, self.stage.stream.pending_runs()
        assert self.stage.stream.cached_runs == 0
        assert self.permits == Counter(f"permit-{n + 1}" for n in range(self.polls))

    # The server

    def known(self, run: str) -> list[HistoryEvent]:
        """The events that the server has written by now."""
        events = self.events[run]
        return events if run not in self.task_of else events[: self.task(run)[1]]

    def task(self, run: str) -> tuple[int, int]:
        """Ids of the starts of the task before, and of the task that is live."""
        ends = [0, *self.stories[run].built.task_ends()]
        number = self.task_of[run]
        return ends[number - 1], ends[number]

    def poll(self, run: str) -> None:
        story, events = self.stories[run], self.known(run)
        part = story.built.whole()
        if run in self.task_of:
            part = HistorySlice(events, *self.task(run))
            if self.task_of[run] > 1 and self.random.random() < 0.5:
                events = events[part.previous_started_event_id :]
        whole = not events or events[0].event_id == 1
        paged = whole and self.random.random() < 0.5
        first = self.random.randrange(len(events) + 1) if paged else None
        task = story.built.poll(part, token=f"task-{self.polls}".encode(), attempt=1)
        task.history.CopyFrom(History(events=events if first is None else events[:first]))
        if first is not None:
            task.next_page_token = self.page_token(run, first)
        if run in self.broken:
            if self.random.random() < 0.2:
                task.query.CopyFrom(WorkflowQuery(query_type="query"))
                task.started_event_id = self.random.choice([0, task.started_event_id])
            if self.random.random() < 0.2:
                task.queries.get_or_create("q").CopyFrom(queries(q="query")["q"])
            if self.random.random() < 0.5:
                mutate(self.random, task)
        elif first == 0:
            del task.history.events[:]
            task.history.events.extend(events)
            task.ClearField("next_page_token")
        permit = f"permit-{self.polls + 1}"
        try:
            self.stage.feed(NewTask(task, permit, 0.0))
        except MalformedTask:
            assert run in self.broken
            self.permits[permit] += 1
        self.polls += 1

    def page_token(self, run: str, first: int) -> bytes:
        token = f"{run}/{first}/{self.random.random()}".encode()
        self.pages[token] = (run, first)
        return token

    def fetch(self, action: FetchPage) -> None:
        run = action.run_id if action.run_id in self.stories else "run-0"
        events = self.known(run)
        first = self.pages[action.token][1] if action.token in self.pages else 0
        chosen = self.random.random()
        if run in self.broken and chosen < 0.1:
            self.stage.feed(PageFetchFailed(action.fetch, "no such page"))
            return
        last = first + self.random.choice([0, 1, 3, 10, 100])
        page: list[HistoryEvent] = events[first:last]
        token = self.page_token(run, last) if last < len(events) else b""
        if run in self.broken and chosen < 0.2:
            token, page = self.random.choice([(action.token, page), (b"", page), (token, [])])
        self.stage.feed(PageFetched(action.fetch, History(events=page), token))

    def report(self, action: Any) -> None:
        unstored = isinstance(action, FailTask) and action.unstored
        if isinstance(action, FailTask):
            self.failed.add(action.run_id)
        if unstored:
            return
        if action.run_id not in self.sound and self.random.random() < 0.2:
            self.stage.refuse(self.random.choice(list(ProblemKind)), run_id=action.run_id)
            return
        run = action.run_id
        if run not in self.sound and self.random.random() < 0.2:
            self.report_strangely(run)
            return
        self.stage.report(run_id=run)
        if isinstance(action, CompleteTask) and run in self.task_of:
            ends = self.stories[run].built.task_ends()
            if self.task_of[run] < len(ends):
                self.task_of[run] += 1
                self.poll(run)

    def report_strangely(self, run: str) -> None:
        """The reply rolls back what was never speculative, or brings a task of whatever kind."""
        story = self.stories.get(run) or self.stories["run-0"]
        task = story.built.poll(token=b"strange")
        task.workflow_execution.run_id = self.random.choice([run, "run-0", "unknown run"])
        mutate(self.random, task)
        self.stage.report(
            run_id=run,
            next_task=self.random.choice([None, task]),
            reset_to=self.random.choice([0, 1, 3, 1000]),
        )

    # Everybody

    def step(self) -> bool:
        """Somebody who has something to do does it; False when nobody has."""
        for action in self.stage.actions:
            if isinstance(action, ReleasePermit):
                self.permits[action.permit] += 1
            elif isinstance(action, RunRemoved):
                self.langs.pop(action.run_id, None)
            else:
                self.pending.append(action)
        self.stage.actions.clear()
        if not self.pending:
            return False
        action = self.pending.pop(self.random.randrange(len(self.pending)))
        match action:
            case LangActivation():
                self.answer(action.activation)
            case CompleteTask() | FailTask() | RespondQuery():
                self.report(action)
            case FetchPage():
                self.fetch(action)
            case RunLocalActivities():
                for request in action.requests:
                    if isinstance(request, LocalActivityRequest):
                        self.resolve(action.run_id, request.command.seq)
            case CancelAllLocalActivities():
                self.stage.feed(LocalCancelsDelivered(action.run_id))
            case SetHeartbeat():
                self.stage.feed(HeartbeatDue(action.run_id, action.task_token))
        return True

    def resolve(self, run: str, seq: int) -> None:
        result = LocalResult(seq, LocalOutcome.COMPLETED, 1, Timestamp(), runtime=0.5)
        self.stage.feed(LocalResolved(run, seq, result))

    # Lang

    def answer(self, activation: WorkflowActivation) -> None:
        run = activation.run_id
        self.seen.add(run)
        if activation.jobs[0].HasField("query_workflow"):
            commands = [answer_query(job.query_workflow.query_id) for job in activation.jobs]
            completion = WorkflowActivationCompletion(run_id=run)
            completion.successful.commands.extend(commands)
        else:
            story = self.stories.get(run) or self.stories["run-0"]
            lang = self.langs.setdefault(run, Lang(story))
            completion = lang.answer(activation)
        broken = run in self.broken or run not in self.stories
        if broken and self.random.random() < 0.3:
            self.spoil(activation, completion)
            completion.run_id = run
        try:
            self.stage.feed(Completed(completion))
        except MalformedCompletion:
            assert broken
            if _evicts(activation):
                self.stage.complete(run_id=run)
            else:
                self.stage.fail("malformed", run_id=run)

    def spoil(
        self, activation: WorkflowActivation, completion: WorkflowActivationCompletion
    ) -> None:
        commands = completion.successful.commands
        chosen = self.random.randrange(6)
        if chosen == 0:
            completion.ClearField("status")
        elif chosen == 1:
            completion.failed.failure.message = "trouble"
        elif chosen == 2 and commands:
            commands.append(self.random.choice(list(commands)))
        elif chosen == 3:
            mutate(self.random, completion)
        else:
            command = commands.add()
            body = getattr(command, self.random.choice(VARIANTS))
            body.SetInParent()
            if chosen == 4:
                mutate(self.random, command)
            else:
                mutate(self.random, body)


def _evicts(activation: WorkflowActivation) -> bool:
    return activation.jobs[0].HasField("remove_from_cache")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_the_worker_survives_whatever_comes_in(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", range(40))
def test_the_worker_survives_these(seed: int) -> None:
    """The same with seeds that are always tried."""
    World(seed).run()


@pytest.mark.parametrize("seed", range(30))
def test_the_worker_survives_faults_of_its_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machines of some runs raise, and whenever, the others do not notice."""
    world, faults = World(seed), Random(seed)

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(WorkflowMachines, name)

        def method(machines: WorkflowMachines, *given: Any, **named: Any) -> Any:
            if machines.run.run_id not in world.sound and faults.random() < 0.05:
                raise ZeroDivisionError(f"a fault in {name}")
            return real(machines, *given, **named)

        return method

    for name in (
        "activation",
        "query_activation",
        "new_history",
        "apply_next_sequence",
        "iterate",
        "outgoing_commands",
        "local_resolution",
        "needs_fetch_for_completion",
    ):
        monkeypatch.setattr(WorkflowMachines, name, failing(name))
    world.run()


def test_a_story_unbroken_comes_through() -> None:
    """The world itself is sound: without mistakes no task fails."""
    world = World(7, broken=())
    world.run()
    assert not world.failed
