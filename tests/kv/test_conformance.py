"""One meaning for all drivers: random calls, each answer compared with a plain model.

The model keeps whole copies of the data and lists of calls, and answers every question by doing
everything again from the start. It is slow and has nothing to get wrong.
"""

import asyncio
import itertools
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure.clock import VirtualClock
from perdure.kv import Transaction
from perdure.kv.errors import TransactionConflict, TransactionTooOld, VersionstampUnknown
from perdure.testing.store import Store, StoreKind

T = TypeVar("T")
Range = tuple[bytes, bytes]

LIFE_SECONDS = 5


@dataclass
class ModelTransaction:
    base: dict[bytes, bytes]
    start: int
    started: float
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    reads: list[Range] = field(default_factory=list)
    writes: list[Range] = field(default_factory=list)

    def view(self) -> dict[bytes, bytes]:
        """The data as this transaction sees it, versionstamped rows left out."""
        rows = dict(self.base)
        for call, *arguments in self.calls:
            if call == "set":
                rows[arguments[0]] = arguments[1]
            elif call == "clear":
                begin, end = arguments
                rows = {key: rows[key] for key in rows if not begin <= key < end}
            elif call == "add":
                key, delta = arguments
                number = int.from_bytes(rows.get(key, b"")[:8], "little") + delta
                rows[key] = (number % 2**64).to_bytes(8, "little")
        return rows

    def stamped(self) -> list[tuple[bytes, bytes, bytes]]:
        """The versionstamped rows that no later clear has removed."""
        rows: list[tuple[bytes, bytes, bytes]] = []
        for call, *arguments in self.calls:
            if call == "stamped":
                rows.append((arguments[0], arguments[1], arguments[2]))
            elif call == "clear":
                begin, end = arguments
                rows = [row for row in rows if not begin <= row[0] < end]
        return rows

    def decides(self, key: bytes) -> bool:
        """Whether the own writes alone determine the value of `key`."""
        return any(
            (call == "set" and arguments[0] == key)
            or (call == "clear" and arguments[0] <= key < arguments[1])
            for call, *arguments in self.calls
        )


class Model:
    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.commits: list[list[Range]] = []

    def begin(self, now: float) -> ModelTransaction:
        return ModelTransaction(dict(self.rows), len(self.commits), now)

    def conflicts(self, transaction: ModelTransaction) -> bool:
        written = itertools.chain.from_iterable(self.commits[transaction.start :])
        return any(
            begin < other_end and other_begin < end
            for other_begin, other_end in written
            for begin, end in transaction.reads
        )

    def apply(self, transaction: ModelTransaction, stamp: bytes) -> None:
        """Do the writes on the newest data, which may have moved on since the snapshot."""
        now = ModelTransaction(self.rows, 0, 0, transaction.calls)
        rows = now.view()
        writes = list(transaction.writes)
        for prefix, suffix, value in transaction.stamped():
            key = prefix + stamp + suffix
            rows[key] = value
            writes.append((key, key + b"\0"))
        self.rows = rows
        self.commits.append(writes)


letters = st.sampled_from([b"\x00", b"a", b"\xff"])
keys = st.lists(letters, max_size=2).map(b"".join)
values = st.binary(max_size=9) | st.sampled_from([b"", b"\xff" * 8, b"\x01" + b"\x00" * 7])
deltas = st.sampled_from([1, -1, 2**63 - 1, -(2**63), 2**64 + 3, 0])
picks = st.integers(0, 2)
rarely = st.integers(0, 4).map(lambda number: number == 4)

EXAMPLES = itertools.count()


class StoreMachine(RuleBasedStateMachine):
    """A few open transactions, and the model of each.

    All examples share one store: each works in a region of its own. Ordinary keys lie in the part
    `k` of the region, versionstamped ones behind it in the part `s`.
    """

    def __init__(self, runner: asyncio.Runner, store: Store, clock: VirtualClock) -> None:
        super().__init__()
        self.runner = runner
        self.store = store
        self.clock = clock
        self.region = b"%08d/" % next(EXAMPLES)
        self.model = Model()
        self.open: list[tuple[Transaction, ModelTransaction]] = []
        self.last_stamp = b""

    def do(self, awaitable: Awaitable[T]) -> T:
        async def outer() -> T:
            return await awaitable

        return self.runner.run(outer())

    def key(self, name: bytes) -> bytes:
        return self.region + b"k" + name

    def span(self, one: bytes, other: bytes) -> Range:
        begin, end = sorted([one, other])
        return self.key(begin), self.key(end)

    @property
    def stamps(self) -> Range:
        return self.region + b"s", self.region + b"t"

    def too_old(self, model: ModelTransaction) -> bool:
        return self.clock.monotonic() - model.started > LIFE_SECONDS

    def begin(self) -> tuple[Transaction, ModelTransaction]:
        model = self.model.begin(self.clock.monotonic())
        return self.store.database.transaction("random"), model

    def pick(self, pick: int) -> tuple[Transaction, ModelTransaction]:
        if pick >= len(self.open):
            self.open.append(self.begin())
            return self.open[-1]
        return self.open[pick]

    @initialize(rows=st.dictionaries(keys, values, min_size=3))
    def fill(self, rows: dict[bytes, bytes]) -> None:
        real, model = self.begin()
        for name, value in rows.items():
            self.set_in(real, model, self.key(name), value)
        self.commit_all([(real, model)])

    @rule(name=keys, value=values)
    def somebody_sets(self, name: bytes, value: bytes) -> None:
        real, model = self.begin()
        self.set_in(real, model, self.key(name), value)
        self.commit_all([(real, model)])

    @rule(one=keys, other=keys)
    def somebody_clears(self, one: bytes, other: bytes) -> None:
        real, model = self.begin()
        self.clear_range_in(real, model, *self.span(one, other))
        self.commit_all([(real, model)])

    @rule(pick=picks, name=keys, snapshot=st.booleans())
    def get(self, pick: int, name: bytes, snapshot: bool) -> None:
        real, model = self.pick(pick)
        key = self.key(name)
        if self.too_old(model):
            with pytest.raises(TransactionTooOld):
                self.do(real.get(key, snapshot=snapshot))
            return
        if not snapshot and not model.decides(key):
            model.reads.append((key, key + b"\0"))
        assert self.do(real.get(key, snapshot=snapshot)) == model.view().get(key)

    @precondition(lambda self: self.open)
    @rule(
        pick=picks,
        one=keys,
        other=keys,
        limit=st.integers(0, 4),
        reverse=st.booleans(),
        snapshot=st.booleans(),
    )
    def get_range(
        self, pick: int, one: bytes, other: bytes, limit: int, reverse: bool, snapshot: bool
    ) -> None:
        begin, end = self.span(one, other)
        self.check_range(pick, begin, end, limit, reverse, snapshot)

    @rule(pick=picks, limit=st.integers(0, 4), reverse=st.booleans(), snapshot=st.booleans())
    def get_stamped(self, pick: int, limit: int, reverse: bool, snapshot: bool) -> None:
        self.check_range(pick, *self.stamps, limit, reverse, snapshot)

    def check_range(
        self, pick: int, begin: bytes, end: bytes, limit: int, reverse: bool, snapshot: bool
    ) -> None:
        real, model = self.pick(pick)
        reading = real.get_range(begin, end, limit=limit, reverse=reverse, snapshot=snapshot)
        if self.too_old(model):
            with pytest.raises(TransactionTooOld):
                self.do(reading)
            return
        if any(begin <= prefix < end for prefix, _, _ in model.stamped()):
            with pytest.raises(VersionstampUnknown):
                self.do(reading)
            return
        rows = sorted(
            ((key, value) for key, value in model.view().items() if begin <= key < end),
            reverse=reverse,
        )
        if limit:
            rows = rows[:limit]
        assert self.do(reading) == rows
        if not snapshot and begin < end:
            if limit and len(rows) == limit:
                last = rows[-1][0]
                model.reads.append((last, end) if reverse else (begin, last + b"\0"))
            else:
                model.reads.append((begin, end))

    @rule(pick=picks, reverse=st.booleans(), page=st.integers(1, 3), stop=st.integers(1, 5))
    def scan(self, pick: int, reverse: bool, page: int, stop: int) -> None:
        real, model = self.pick(pick)
        begin, end = self.region + b"k", self.region + b"l"
        if self.too_old(model):
            return
        rows = sorted(
            ((key, value) for key, value in model.view().items() if begin <= key < end),
            reverse=reverse,
        )

        async def consume() -> list[tuple[bytes, bytes]]:
            seen = []
            scanning = real.scan(begin, end, reverse=reverse, page=page)
            async for row in scanning:
                seen.append(row)
                if len(seen) == stop:
                    break
            await scanning.aclose()  # type: ignore[attr-defined]
            return seen

        assert self.do(consume()) == rows[:stop]
        # Whole pages are read, and an incomplete page has seen the end of the range.
        pages = -(-min(stop, len(rows) + 1) // page)
        if pages * page <= len(rows):
            last = rows[pages * page - 1][0]
            model.reads.append((last, end) if reverse else (begin, last + b"\0"))
        else:
            model.reads.append((begin, end))

    @rule(pick=picks, name=keys, value=values)
    def set(self, pick: int, name: bytes, value: bytes) -> None:
        self.set_in(*self.pick(pick), self.key(name), value)

    def set_in(self, real: Transaction, model: ModelTransaction, key: bytes, value: bytes) -> None:
        real.set(key, value)
        model.calls.append(("set", key, value))
        model.writes.append((key, key + b"\0"))

    @rule(pick=picks, name=keys)
    def clear(self, pick: int, name: bytes) -> None:
        real, model = self.pick(pick)
        key = self.key(name)
        real.clear(key)
        model.calls.append(("clear", key, key + b"\0"))
        model.writes.append((key, key + b"\0"))

    @rule(pick=picks, one=keys, other=keys, stamps=st.booleans())
    def clear_range(self, pick: int, one: bytes, other: bytes, stamps: bool) -> None:
        begin, end = self.stamps if stamps else self.span(one, other)
        self.clear_range_in(*self.pick(pick), begin, end)

    def clear_range_in(
        self, real: Transaction, model: ModelTransaction, begin: bytes, end: bytes
    ) -> None:
        real.clear_range(begin, end)
        model.calls.append(("clear", begin, end))
        if begin < end:
            model.writes.append((begin, end))

    @rule(pick=picks, name=keys, delta=deltas)
    def add(self, pick: int, name: bytes, delta: int) -> None:
        real, model = self.pick(pick)
        key = self.key(name)
        real.add(key, delta)
        model.calls.append(("add", key, delta))
        model.writes.append((key, key + b"\0"))

    @rule(pick=picks, suffix=keys, value=values)
    def set_versionstamped(self, pick: int, suffix: bytes, value: bytes) -> None:
        real, model = self.pick(pick)
        real.set_versionstamped(self.stamps[0], suffix, value)
        model.calls.append(("stamped", self.stamps[0], suffix, value))

    @rule(pick=picks, one=keys, other=keys, single=st.booleans(), write=st.booleans())
    def add_conflict(self, pick: int, one: bytes, other: bytes, single: bool, write: bool) -> None:
        real, model = self.pick(pick)
        begin, end = self.span(one, other)
        if single:
            end = begin + b"\0"
            (real.add_write_conflict if write else real.add_read_conflict)(begin)
        elif write:
            real.add_write_conflict_range(begin, end)
        else:
            real.add_read_conflict_range(begin, end)
        if begin < end:
            (model.writes if write else model.reads).append((begin, end))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def commit(self, pick: int) -> None:
        self.commit_all([self.open.pop(pick % len(self.open))])

    @precondition(lambda self: len(self.open) > 1)
    @rule(backwards=st.booleans())
    def commit_together(self, backwards: bool) -> None:
        together = self.open[::-1] if backwards else self.open
        self.open = []
        self.commit_all(together)

    def commit_all(self, together: list[tuple[Transaction, ModelTransaction]]) -> None:
        async def all_at_once() -> list[Any]:
            commits = [real.commit() for real, _ in together]
            return await asyncio.gather(*commits, return_exceptions=True)

        outcomes = self.do(all_at_once())
        for (real, model), outcome in zip(together, outcomes, strict=True):
            if not model.writes and not any(call == "stamped" for call, *_ in model.calls):
                assert outcome == real.read_version
            elif self.too_old(model):
                assert isinstance(outcome, TransactionTooOld)
            elif self.model.conflicts(model):
                assert isinstance(outcome, TransactionConflict)
            else:
                assert isinstance(outcome, int), outcome
                assert outcome > real.read_version
                assert real.versionstamp > self.last_stamp
                self.last_stamp = real.versionstamp
                self.model.apply(model, real.versionstamp)
        self.check_everything()

    @precondition(lambda self: self.open)
    @rule(pick=picks, really=rarely)
    def abandon(self, pick: int, really: bool) -> None:
        if really:
            self.open.pop(pick % len(self.open))

    @rule(seconds=st.sampled_from([0.5, 3]), really=rarely)
    def let_time_pass(self, seconds: float, really: bool) -> None:
        if really:
            self.clock.advance(seconds * 1000)

    @rule(really=rarely)
    def reopen(self, really: bool) -> None:
        if not really:
            return
        self.open = []
        self.do(self.store.reopen())
        self.check_everything()

    def check_everything(self) -> None:
        reader = self.store.database.transaction("check")
        rows = self.do(reader.get_range(self.region, self.region + b"\xff"))
        assert rows == sorted(self.model.rows.items())


def check_random_calls(kind: StoreKind, folder: Path, examples: int) -> None:
    clock = VirtualClock()
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(kind, folder, clock=clock))

        class BoundMachine(StoreMachine):
            def __init__(self) -> None:
                super().__init__(runner, store, clock)

        run_state_machine_as_test(
            BoundMachine,
            settings=settings(max_examples=examples, stateful_step_count=50, deadline=None),
        )
        runner.run(store.close())


def test_random_calls_answer_like_the_model(kind: StoreKind, tmp_path: Path) -> None:
    check_random_calls(kind, tmp_path, examples=100)


def test_short_cuts_through_deleted_keys_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gap is remembered, not only those that were slow to cross."""
    monkeypatch.setattr("perdure.kv.gaps._SLOW", -1.0)
    check_random_calls("rocksdb", tmp_path, examples=100)


@pytest.mark.soak
def test_many_random_calls_answer_like_the_model(
    kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.kv.gaps._SLOW", -1.0)
    check_random_calls(kind, tmp_path, examples=1500)
