"""Watches every commit of a simulated store, and every line of log, for what must never happen."""

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.engine.database.test_model import Recount

from perdure import Id
from perdure.engine.database.gauges import Gauges, gauges
from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import Status, decode
from perdure.engine.history.events import ActivityEvent, decode_event
from perdure.kv.driver import CommitRequest, CommitResult, Refusal
from perdure.testing.simulation import Process, SimulatedStore

KEYS = Keys()
_WORKFLOWS = KEYS.workflow(b"")
_SIGNALS = KEYS.signals(b"")
_EXPECTED = re.compile(r"error=['\"](CommitUnknown|RetriesExhausted|StoreClosed|TransactionTooOld)")
_BUG = "RuntimeError: a bug in the code"
_HARMLESS = ("a stray lease was released", "a worker was lost")


class Rows:
    """The newest rows of the store, read without anybody noticing."""

    def __init__(self, store: SimulatedStore) -> None:
        self._driver = store.driver

    def get(self, key: bytes) -> bytes | None:
        return self._driver.snapshot()._visible(self._driver.rows().get(key))

    def below(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        snapshot, rows = self._driver.snapshot(), self._driver.rows()
        keys = rows.irange(prefix, prefix + b"\xff", (True, False))
        return [(key, value) for key in keys if (value := snapshot._visible(rows[key])) is not None]

    def status(self, workflow_id: bytes) -> Status | None:
        row = self.get(KEYS.status(workflow_id))
        return None if row is None else decode.status(row[1:])

    def event(self, key: bytes) -> Any:
        row = self.get(key)
        return None if row is None or row[0] else decode_event(row[1:])


class CommitWatch:
    """Sees what each process writes. `worker_of` tells the worker id of a process."""

    def __init__(
        self,
        store: SimulatedStore,
        worker_of: Callable[[Process], Id | None],
        wrong: list[str],
    ) -> None:
        self.rows = Rows(store)
        self.queued: dict[bytes, dict[str, tuple[bytes, Any]]] = defaultdict(dict)
        """By workflow: the key and body of each signal that was ever queued, by the body's text."""
        self.taken: dict[bytes, list[Any]] = defaultdict(list)
        """By workflow: the bodies that a run received, in the order of their commits."""
        self._worker_of = worker_of
        self._wrong = wrong
        self._holders: dict[bytes, Id | None] = {}
        self._finished: dict[bytes, ActivityEvent] = {}
        self._pending: dict[bytes, tuple[bytes, str, Any]] = {}
        self._places: dict[str, bytes] = {}
        store.before = self.before
        store.after = self.after

    def before(self, _process: Process, batch: Sequence[CommitRequest]) -> None:
        self._holders.clear()
        self._finished.clear()
        self._pending.clear()
        for request in batch:
            for key in request.writes:
                if key.startswith(_SIGNALS):
                    self._note_queue(key)
                elif key.startswith(_WORKFLOWS):
                    workflow_id = _owner_of(key, _WORKFLOWS)
                    if workflow_id not in self._holders:
                        status = self.rows.status(workflow_id)
                        self._holders[workflow_id] = None if status is None else status.worker
                    if key.startswith(KEYS.history(workflow_id)):
                        event = self.rows.event(key)
                        if isinstance(event, ActivityEvent) and event.output is not None:
                            self._finished[key] = event

    def after(
        self, process: Process, batch: Sequence[CommitRequest], results: Sequence[CommitResult]
    ) -> None:
        for request, result in zip(batch, results, strict=True):
            if request.stamped:
                self._note_published(request)
            if isinstance(result, Refusal):
                continue
            for key, value in request.writes.items():
                if key.startswith(_WORKFLOWS):
                    self._check_step(process, request.name, key, value)
            self._note_taken(request)
        # What was applied without anybody hearing of it counts too.
        for request, result in zip(batch, results, strict=True):
            if result is Refusal.UNKNOWN and any(
                key in self._pending and self.rows.get(key) is None for key in request.writes
            ):
                self._note_taken(request)

    def _check_step(self, process: Process, name: str, key: bytes, value: bytes | None) -> None:
        workflow_id = _owner_of(key, _WORKFLOWS)
        in_run = key.startswith((KEYS.history(workflow_id), KEYS.state(workflow_id)))
        if not in_run or name == "revive":  # it undoes the failure that a workflow died of
            return
        if self._holders[workflow_id] != self._worker_of(process):
            self._wrong.append(f"{process.name} wrote {name} without holding {Id(workflow_id)}")
        finished = self._finished.get(key)
        if finished is not None and value is not None and not value[0]:
            event = decode_event(value[1:])
            if not isinstance(event, ActivityEvent) or event.output != finished.output:
                self._wrong.append(f"{name} changed a finished activity of {Id(workflow_id)}")

    def _note_queue(self, key: bytes) -> None:
        row = self.rows.get(key)
        if row is None:
            return
        signal = decode.pending_signal(row[1:])
        workflow_id = _owner_of(key, _SIGNALS)
        self._pending[key] = (workflow_id, signal.name, msgspec.msgpack.decode(signal.body))

    def _note_published(self, request: CommitRequest) -> None:
        for prefix, suffix, value in request.stamped:
            for key, row in self.rows.below(prefix):
                if key.endswith(suffix) and row == value:
                    signal = decode.pending_signal(row[1:])
                    body = msgspec.msgpack.decode(signal.body)
                    self.queued[_owner_of(key, _SIGNALS)].setdefault(repr(body), (key, body))
                    if self._places.setdefault(repr(body), key) != key:
                        self._wrong.append(f"the signal {body} was queued twice")

    def _note_taken(self, request: CommitRequest) -> None:
        for key, value in request.writes.items():
            if key not in self._pending or value is not None:
                continue
            workflow_id, name, body = self._pending.pop(key)
            self.taken[workflow_id].append(body)
            queue = KEYS.signal_queue(workflow_id, name)
            if any(older < key for older, _ in self.rows.below(queue)):
                self._wrong.append(f"{body} was received before an older signal")


def _owner_of(key: bytes, prefix: bytes) -> bytes:
    return key[len(prefix) : len(prefix) + Id.SIZE]


class _View:
    keys = KEYS


async def recount(store: SimulatedStore) -> None:
    """Compute every index and counter anew from what is not derived, and compare."""
    rows = [(k, v) for k, v in Rows(store).below(b"") if not k.startswith(KEYS.node)]
    found = await gauges(store.database().transaction(), KEYS)
    told = Gauges(
        {name: _without_zeros(counts) for name, counts in found.workflows.items()},
        _without_zeros(found.signals),
    )
    Recount(_View(), rows).check(told, set())  # type: ignore[arg-type]  # all it needs


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


class LogWatch(logging.Handler):
    """Notes every warning that no fault of the simulated world explains."""

    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if _EXPECTED.search(line) or _BUG in line or line.startswith(_HARMLESS):
            return
        self._wrong.append(f"log: {line}")
