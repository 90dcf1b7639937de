"""One lease from start to end: load, run the workflow's code, and store how the run ended.

Whatever happens, the lease ends: the run completes, sleeps, dies, is cancelled, or is given back.
Trouble with the store never kills a workflow: the run is given back and tried again. Only what
nobody can run, unreadable rows, is set aside with its reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from perdure.codec import encode
from perdure.engine.context.branch import Branch
from perdure.engine.context.run import Run
from perdure.engine.context.workflow import WorkflowContext
from perdure.engine.database.finish import (
    Closed,
    cancelled,
    complete,
    fail,
    quarantine,
    suspend,
)
from perdure.engine.database.lease import Lease
from perdure.engine.database.load import Loaded, load
from perdure.engine.database.rows import WakeConditions, WorkflowRecord
from perdure.engine.errors import (
    Cancelled,
    CorruptHistory,
    CorruptRecord,
    EventMissing,
    LeaseLost,
)
from perdure.engine.history.failure import Failure
from perdure.engine.history.history import History
from perdure.engine.suspension import RunAborted, Suspend, is_from_outside
from perdure.errors import WorldError

if TYPE_CHECKING:
    from perdure.engine.registry import Registry
    from perdure.engine.services import Services

__all__ = ["Runner"]

T = TypeVar("T")

_ROOT_VERSION = 1
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 30.0
_RETRY_LATER_MS = 2_000


class Runner:
    """Runs leased workflows. `slept_until` hears of deadlines (ms, name), for the timers."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        slept_until: Callable[[int, str], None],
    ) -> None:
        self._services = services
        self._registry = registry
        self._slept_until = slept_until

    async def run(
        self, lease: Lease, record: WorkflowRecord | None, started: Callable[[Run], None]
    ) -> None:
        """Run one leased workflow until it leaves memory. `started` gets the loaded run.

        `record` is given for a workflow that was created just now: there is nothing to load.
        """
        try:
            run = await self._load(lease) if record is None else self._new_run(lease, record)
            if run is None:
                return
            started(run)
            tracing = self._services.tracing
            try:
                with tracing.workflow_run(
                    lease.name, lease.workflow_id, run.record.ray_id, epoch=lease.epoch
                ):
                    await self._run(run)
            finally:
                run.close()
        except LeaseLost:
            self._services.log.info(
                "a run lost its lease", workflow=lease.name, workflow_id=str(lease.workflow_id)
            )

    async def _load(self, lease: Lease) -> Run | None:
        services = self._services
        try:
            loaded: Loaded = await self._stubborn(
                lambda: load(services.database, services.keys, lease)
            )
        except (CorruptHistory, CorruptRecord) as error:
            await self._quarantine(lease, error)
            return None
        return self._make_run(lease, loaded)

    def _new_run(self, lease: Lease, record: WorkflowRecord) -> Run:
        return self._make_run(lease, Loaded(record, None, History(), None))

    def _make_run(self, lease: Lease, loaded: Loaded) -> Run:
        return Run(
            self._services,
            self._registry.get(lease.name),
            lease,
            loaded.record,
            loaded.history,
            loaded.state,
            loaded.cancel,
        )

    async def _run(self, run: Run) -> None:
        """Run the code and store the outcome."""
        lease = run.lease
        try:
            branch = Branch(run, (), at=run.record.created_at)
            try:
                output = await self._call(run, branch)
                branch.finish()
            except BaseException as error:
                if is_from_outside(error):
                    raise
                if run.ending is not None or branch.suspended is not None:
                    branch.finish()
                raise
        except Suspend as suspension:
            await self._suspend(run, suspension.wake, branch.cancel_delivered)
        except Cancelled as cancel:
            await self._finish_cancelled(run, None, cancel.reason)
        except RunAborted as aborted:
            await self._abort(run, aborted.cause)
        except BaseException as error:
            if is_from_outside(error):
                raise
            await self._fail(run, error)
        else:
            if branch.cancel_delivered:
                await self._finish_cancelled(run, output, run.cancel_reason)
            else:
                await self._complete(lease, output)

    async def _call(self, run: Run, branch: Branch) -> bytes:
        workflow = run.workflow
        argument = workflow.read_input(run.record.input or encode(None))
        result = await workflow.call(WorkflowContext(branch, _ROOT_VERSION), argument)
        output = workflow.output_codec.encode(result)
        # An output that nobody could read must not be its end: it can be mended and revived.
        workflow.read_output(output)
        return output

    # -- ends

    async def _complete(self, lease: Lease, output: bytes) -> None:
        services = self._services
        began = services.clock.monotonic()
        closed = await self._stubborn(
            lambda: complete(services.database, services.keys, lease, output, services.clock.now())
        )
        services.metrics.ended(lease.name, services.clock.monotonic() - began)
        services.announce_end(lease.workflow_id, closed.woken)

    async def _finish_cancelled(self, run: Run, output: bytes | None, reason: str) -> None:
        services = self._services
        lease = run.lease
        failure = Failure(type="Cancelled", message=reason, code="engine.workflow_cancelled")
        closed = await self._stubborn(
            lambda: cancelled(
                services.database, services.keys, lease, output, failure, services.clock.now()
            )
        )
        services.announce_end(lease.workflow_id, closed.woken)

    async def _fail(self, run: Run, error: BaseException) -> None:
        services = self._services
        lease = run.lease
        failure = msgspec.structs.replace(Failure.from_exception(error), undo=run.failures.places())
        services.metrics.workflow_failed(lease.name, type(error).__name__)
        services.log.error(
            "a workflow failed",
            workflow=lease.name,
            workflow_id=str(lease.workflow_id),
            error=failure.summary,
        )
        closed: Closed = await self._stubborn(
            lambda: fail(services.database, services.keys, lease, failure, services.clock.now())
        )
        services.announce_end(lease.workflow_id, closed.woken)

    async def _quarantine(self, lease: Lease, error: Exception) -> None:
        services = self._services
        services.metrics.workflow_failed(lease.name, "Quarantined")
        services.log.error(
            "a workflow cannot be read and is set aside",
            workflow=lease.name,
            workflow_id=str(lease.workflow_id),
            error=str(error),
        )
        closed: Closed = await self._stubborn(
            lambda: quarantine(
                services.database, services.keys, lease, str(error), services.clock.now()
            )
        )
        services.announce_end(lease.workflow_id, closed.woken)

    async def _suspend(self, run: Run, wake: WakeConditions, cancel_delivered: bool) -> None:
        services = self._services
        lease = run.lease
        began = services.clock.monotonic()
        due = await self._stubborn(
            lambda: suspend(
                services.database,
                services.keys,
                lease,
                wake,
                services.clock.now(),
                cancel_delivered=cancel_delivered,
            )
        )
        services.metrics.suspended(lease.name, services.clock.monotonic() - began)
        if due:
            services.doorbell.ring(lease.name)
        elif wake.deadline is not None:
            self._slept_until(wake.deadline, lease.name)

    async def _abort(self, run: Run, cause: Exception) -> None:
        """The run stopped in the middle: let the next run read what is true."""
        lease = run.lease
        if isinstance(cause, LeaseLost):
            raise cause
        if isinstance(cause, CorruptHistory) or _is_about(cause, lease):
            await self._quarantine(lease, cause)
            return
        if isinstance(cause, EventMissing):
            await self._fail(run, cause)
            return
        self._services.log.warning(
            "the store failed a run, which will be tried again",
            workflow=lease.name,
            workflow_id=str(lease.workflow_id),
            error=f"{type(cause).__name__}: {cause}",
        )
        later = self._services.clock.now() + _RETRY_LATER_MS
        await self._suspend(run, WakeConditions(deadline=later), cancel_delivered=True)

    async def _stubborn(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat a fenced transaction until the store takes it or the lease is lost.

        All of these are fenced: done twice, the second finds the lease gone, which then means that
        the first was done.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await operation()
            except (LeaseLost, CorruptHistory, CorruptRecord):
                raise
            except WorldError as error:
                self._services.log.warning(
                    "the store refuses a transaction, which is tried again",
                    error=f"{type(error).__name__}: {error}",
                    pause_seconds=pause,
                )
                await self._services.clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _is_about(cause: Exception, lease: Lease) -> bool:
    """Whether it is the leased workflow that cannot be read, and not one it talks to."""
    return isinstance(cause, CorruptRecord) and cause.workflow_id == lease.workflow_id
