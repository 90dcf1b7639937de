"""Everything an operator can do to workflows, as methods.

`Admin` works on an open database: the engine's own (`engine.admin`), or one that the command line
opened for a moment. Each method is one or a few transactions of `perdure.engine.database`, then
the wake-ups that make a running engine notice at once. Answers are the records of `views`.

Ids are taken as texts, because they come from people; a malformed one raises `InvalidId`.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from perdure.clock import Clock
from perdure.codec import encode
from perdure.engine import subjects
from perdure.engine.admin import reading
from perdure.engine.admin.requests import Request
from perdure.engine.admin.views import (
    ControlResult,
    DispatchResult,
    PendingSignalView,
    PruneResult,
    ReviveResult,
    SignalResult,
    StatsView,
    WorkflowDetail,
    WorkflowHistory,
    WorkflowPage,
    WorkflowView,
)
from perdure.engine.database import control
from perdure.engine.database.dispatch import Dispatch, dispatch
from perdure.engine.database.gauges import gauges
from perdure.engine.database.inspect import ListFilter
from perdure.engine.database.keys import Keys
from perdure.engine.database.prune import prune
from perdure.engine.database.rows import PendingSignal, Prune
from perdure.engine.database.signals import publish
from perdure.engine.definitions import check_name
from perdure.engine.errors import WorkflowBusy
from perdure.engine.registry import Registry
from perdure.engine.tags import TagMapping
from perdure.errors import PayloadError
from perdure.ids import Id
from perdure.kv import Database
from perdure.pubsub import Doorbell, PubSub

__all__ = ["Admin"]

Answer = TypeVar("Answer")

# Inside the class `list` is a method.
Signals = list[PendingSignalView]
Workflows = list[WorkflowView]

_PRUNED_AT_ONCE: Final = 100
_REVIVED_AT_ONCE: Final = 100


class Admin:
    """The admin interface of one store. Bound to the event loop of its database.

    `registry` is what the engine that owns the store can run; without one, nothing is known about
    the workflows that are dispatched here.
    """

    def __init__(
        self,
        database: Database,
        keys: Keys,
        pubsub: PubSub,
        clock: Clock,
        *,
        registry: Registry | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._database = database
        self._keys = keys
        self._pubsub = pubsub
        self._clock = clock
        self._registry = registry
        self._random_bytes = random_bytes
        self._doorbell = Doorbell(pubsub, subjects.work())

    async def ask(self, request: Request[Answer]) -> Answer:
        """Perform a request: the method it is named for, with its fields."""
        method = getattr(self, str(request.__struct_config__.tag))
        return cast("Answer", await method(**msgspec.structs.asdict(request)))

    # Looking ------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        tags: TagMapping | None = None,
        since: int | None = None,
        before: int | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> WorkflowPage:
        """Workflows, newest first: of one `state` (a phase, `silenced`, `open` or `closed`), one
        `name`, with at least these `tags`, created in [`since`, `before`) (ms).

        `page` is `next_page` of an earlier answer to the same question. Raises `InvalidState`,
        `InvalidPage`.
        """
        wanted = ListFilter(
            state=state,
            name=name,
            tags=dict(tags or {}),
            created_after=since,
            created_before=before,
        )
        return await reading.list_page(self._database, self._keys, wanted, limit, page)

    async def get(self, id: str) -> WorkflowDetail:
        """Everything about one workflow but its history. Raises `WorkflowNotFound`."""
        return await reading.detail(self._database, self._keys, Id.parse(id))

    async def history(self, id: str, *, forgotten: bool = False) -> WorkflowHistory:
        """The recorded steps of a workflow; with `forgotten`, finished loop iterations too.

        Raises `WorkflowNotFound`.
        """
        return await reading.history(self._database, self._keys, Id.parse(id), forgotten=forgotten)

    async def signals(self, id: str, *, limit: int = 100) -> Signals:
        """The oldest signals that the workflow has not received. Raises `WorkflowNotFound`."""
        return await reading.pending_signals(self._database, self._keys, Id.parse(id), limit)

    async def stats(self) -> StatsView:
        """Counts of the whole store."""
        counted = await gauges(self._database, self._keys)
        return StatsView(at=self._clock.now(), workflows=counted.workflows, signals=counted.signals)

    # Changing -----------------------------------------------------------------------------------

    async def dispatch(
        self,
        name: str,
        input: Any = None,
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
    ) -> DispatchResult:
        """Start a workflow by its name. `input` is a plain value, as JSON gives it; `unique` is as
        in `Engine.dispatch`.

        Beside an engine that runs workflows, the name must be one of its own and the input must fit
        its annotation: raises `UnknownWorkflow`, `PayloadError`. Also raises `InvalidName`,
        `LimitExceeded`.
        """
        check_name("workflow", name)
        stored = encode(input)
        request = Dispatch(
            id=self._new_id(),
            name=name,
            input=stored,
            tags=dict(tags or {}),
            ray_id=self._new_id(),
            unique=unique,
            prune=self._checked(name, stored),
        )
        outcome = await dispatch(self._database, self._keys, request, self._clock.now())
        if outcome.created:
            self._doorbell.ring(name)
        return DispatchResult(workflow_id=str(outcome.id), name=name, created=outcome.created)

    def _checked(self, name: str, stored: bytes) -> Prune:
        """What the definition says of pruning, once name and input have proved to fit it."""
        if self._registry is None or not self._registry.names:
            return Prune.ALL
        workflow = self._registry.get(name)
        workflow.read_input(stored)
        return workflow.stored_prune

    def _check_signal(self, name: str, stored: bytes) -> None:
        known = [] if self._registry is None else self._registry.signals(name)
        refusals = []
        for signal in known:
            try:
                signal.read(stored)
            except PayloadError as error:
                refusals.append(error)
        if known and len(refusals) == len(known):
            raise refusals[0]

    async def signal(self, id: str, name: str, body: Any = None) -> SignalResult:
        """Put a signal into a workflow's queue. `body` is a plain value, as JSON gives it.

        Beside an engine that runs workflows, it must fit the signal of that name in their modules,
        if there is one: a body that does not would be the death of the workflow.

        Raises `WorkflowNotFound`, `WorkflowFinished`, `InvalidName`, `PayloadError`.
        """
        workflow_id = Id.parse(id)
        stored = encode(body)
        self._check_signal(name, stored)
        now = self._clock.now()
        signal = PendingSignal(
            id=self._new_id(),
            name=check_name("signal", name),
            body=stored,
            ray_id=self._new_id(),
            sent_at=now,
        )
        published = await publish(self._database, self._keys, workflow_id, signal, now)
        self._ring(published.woken)
        self._pubsub.publish(subjects.signalled(workflow_id))
        return SignalResult(
            workflow_id=str(workflow_id),
            signal_id=str(signal.id),
            woken=published.woken is not None,
        )

    async def cancel(self, id: str, *, reason: str = "") -> ControlResult:
        """Ask a workflow to end; its code is told.

        Raises `WorkflowNotFound`, `WorkflowFinished`.
        """
        workflow_id = Id.parse(id)
        requested = await control.request_cancel(
            self._database, self._keys, workflow_id, reason, self._clock.now()
        )
        self._ring(requested.woken)
        self._tell(requested.worker, workflow_id)
        return _done(workflow_id, "cancel", changed=requested.first)

    async def terminate(self, id: str, *, reason: str = "") -> ControlResult:
        """End a workflow at once, unasked. Raises `WorkflowNotFound`, `WorkflowFinished`."""
        workflow_id = Id.parse(id)
        terminated = await control.terminate(
            self._database, self._keys, workflow_id, reason, self._clock.now()
        )
        self._doorbell.ring(*sorted(terminated.woken))
        self._tell(terminated.worker, workflow_id)
        self._pubsub.publish(subjects.closed(workflow_id))
        return _done(workflow_id, "terminate")

    async def wake(self, id: str) -> ControlResult:
        """Run a sleeping workflow now.

        Raises `WorkflowNotFound`, `WorkflowFinished`, `WorkflowBusy`.
        """
        workflow_id = Id.parse(id)
        woken = await control.wake(self._database, self._keys, workflow_id, self._clock.now())
        self._ring(woken)
        return _done(workflow_id, "wake", changed=woken is not None)

    async def silence(self, id: str) -> ControlResult:
        """Keep a workflow from running.

        Raises `WorkflowNotFound`, `WorkflowFinished`, `WorkflowBusy`.
        """
        workflow_id = Id.parse(id)
        changed = await control.silence(self._database, self._keys, workflow_id, self._clock.now())
        return _done(workflow_id, "silence", changed=changed)

    async def unsilence(self, id: str) -> ControlResult:
        """Let a silenced workflow run again. Raises `WorkflowNotFound`, `WorkflowFinished`."""
        workflow_id = Id.parse(id)
        name = await control.unsilence(self._database, self._keys, workflow_id, self._clock.now())
        self._ring(name)
        return _done(workflow_id, "unsilence", changed=name is not None)

    async def revive(
        self,
        *,
        ids: Sequence[str] = (),
        name: str | None = None,
        error: str | None = None,
        dry_run: bool = False,
        limit: int = 1000,
    ) -> ReviveResult:
        """Let dead workflows go on from their last step: these `ids`, and those called `name`
        whose error (`type: message`) contains `error`.

        Looks at no more than `limit` dead workflows of that name, the longest dead first. For `ids`
        it stops at the first that cannot be revived: raises `WorkflowNotFound`, `WorkflowBusy` or
        `UniqueKeyTaken`. By name, those stay dead and are not in the answer.
        """
        views = [await self._revive(Id.parse(text), dry_run=dry_run) for text in ids]
        if name is None:
            return ReviveResult(workflows=views, dry_run=dry_run)
        matching, more = await self._revive_matching(
            name, error or "", dry_run=dry_run, limit=limit
        )
        return ReviveResult(workflows=views + matching, dry_run=dry_run, more=more)

    async def _revive(self, workflow_id: Id, *, dry_run: bool) -> WorkflowView:
        if not dry_run:
            now = self._clock.now()
            self._ring(await control.revive(self._database, self._keys, workflow_id, now))
        view = await reading.view(self._database, self._keys, workflow_id)
        if dry_run and view.state != "dead":
            raise WorkflowBusy(workflow_id, view.state, "revive", "only a dead one can be")
        return view

    async def _revive_matching(
        self, name: str, error: str, *, dry_run: bool, limit: int
    ) -> tuple[Workflows, bool]:
        found: builtins.list[Id] = []
        cursor: bytes | None = None
        looked = 0
        while looked < limit:
            count = min(limit - looked, _REVIVED_AT_ONCE)
            revived = await control.revive_matching(
                self._database,
                self._keys,
                name,
                error,
                self._clock.now(),
                count,
                cursor,
                dry_run=dry_run,
            )
            found += revived.ids
            if revived.ids and not dry_run:
                self._doorbell.ring(name)
            looked += count
            cursor = revived.cursor
            if cursor is None:
                break
        views = await reading.views(self._database, self._keys, found)
        return views, cursor is not None

    async def prune(self, *, closed_before: int, limit: int = 10_000) -> PruneResult:
        """Prune up to `limit` workflows that ended before `closed_before` (ms), oldest first, each
        as its definition says (`prune="all"`, `"history"` or `"none"`)."""
        pruned = looked = 0
        cursor: bytes | None = None
        while looked < limit:
            count = min(limit - looked, _PRUNED_AT_ONCE)
            step = await prune(
                self._database, self._keys, closed_before, count, self._clock.now(), cursor
            )
            pruned += step.count
            looked += count
            cursor = step.cursor
            if cursor is None:
                break
        return PruneResult(pruned=pruned)

    def _tell(self, worker: Id | None, workflow_id: Id) -> None:
        """Tell the worker that runs a workflow to look after it."""
        if worker is not None:
            self._pubsub.publish(subjects.worker(worker), bytes(workflow_id))

    def _new_id(self) -> Id:
        return Id.new(random_bytes=self._random_bytes)

    def _ring(self, name: str | None) -> None:
        if name is not None:
            self._doorbell.ring(name)


def _done(workflow_id: Id, action: str, *, changed: bool = True) -> ControlResult:
    return ControlResult(workflow_id=str(workflow_id), action=action, changed=changed)
