"""A handle on one workflow, from outside of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from perdure.clock import wait
from perdure.codec import codec_for, decode, encode
from perdure.engine import subjects
from perdure.engine.context.pulse import Pulse
from perdure.engine.database.control import request_cancel, terminate
from perdure.engine.database.inspect import Description, describe
from perdure.engine.database.results import Outcome, outcome
from perdure.engine.database.rows import Phase
from perdure.engine.errors import (
    ResultTimeout,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowNotFound,
    WorkflowTerminated,
)
from perdure.engine.history.failure import Failure
from perdure.engine.retry import seconds
from perdure.ids import Id
from perdure.kv.chunks import read_value

if TYPE_CHECKING:
    from perdure.engine.definitions import Workflow
    from perdure.engine.services import Services
    from perdure.kv import Transaction

__all__ = ["Handle"]

O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")


class Handle(Generic[O]):
    """One workflow by its id. Cheap: it holds nothing but the id."""

    __slots__ = ("_services", "_workflow", "id")

    def __init__(
        self, services: Services, id: Id, workflow: Workflow[Any, O] | None = None
    ) -> None:
        self._services = services
        self._workflow = workflow
        self.id = id

    async def result(self, timeout: float | timedelta | None = None) -> O:
        """Wait for the workflow's output; `timeout` in seconds, None waits without end.

        Raises `WorkflowFailed`, `WorkflowCancelled` or `WorkflowTerminated` for those ends,
        `ResultTimeout` when it is still open then, and `WorkflowNotFound`.
        """
        services = self._services
        bound = None if timeout is None else seconds(timeout, "timeout")
        end = None if bound is None else services.clock.monotonic() + bound
        pulse = Pulse()
        subscription = services.pubsub.subscribe(
            subjects.closed(self.id), lambda _payload: pulse.beat()
        )
        try:
            while True:
                beat = pulse.next()
                found = await outcome(services.database, services.keys, self.id)
                if found is not None:
                    return self._output(found)
                pause = services.options.poll_interval
                if end is not None:
                    left = end - services.clock.monotonic()
                    if left <= 0:
                        raise ResultTimeout(self.id, bound or 0.0)
                    pause = min(pause, left)
                await wait(services.clock, beat, timeout=pause)
        finally:
            subscription.close()

    def _output(self, found: Outcome) -> O:
        failure = found.failure
        match found.phase:
            case Phase.COMPLETE:
                stored = found.output or encode(None)
                if self._workflow is None:
                    return cast("O", decode(stored))
                return self._workflow.read_output(stored)
            case Phase.CANCELLED:
                raise WorkflowCancelled(self.id, failure.message if failure else "")
            case Phase.TERMINATED:
                raise WorkflowTerminated(self.id, failure.message if failure else "")
        raise WorkflowFailed(self.id, failure or Failure(type="Unknown", message=""))

    async def signal(self, body: Any) -> Id:
        """Send a signal; returns the signal's id. Raises `WorkflowFinished` when it is closed."""
        return await self._services.client.signal(self.id, body)

    async def cancel(self, reason: str = "") -> None:
        """Ask the workflow to end: its code gets `Cancelled` at its next step.

        Raises `WorkflowNotFound` and `WorkflowFinished`.
        """
        services = self._services
        done = await request_cancel(
            services.database, services.keys, self.id, reason, services.clock.now()
        )
        woken = () if done.woken is None else (done.woken,)
        services.announce(self.id, woken=woken, worker=done.worker)

    async def terminate(self, reason: str = "") -> None:
        """Stop the workflow now, without asking its code.

        Raises `WorkflowNotFound` and `WorkflowFinished`.
        """
        services = self._services
        done = await terminate(
            services.database, services.keys, self.id, reason, services.clock.now()
        )
        services.announce(self.id, worker=done.worker)
        services.announce_end(self.id, done.woken)

    @overload
    async def state(self) -> Any: ...
    @overload
    async def state(self, kind: type[T]) -> T | None: ...
    async def state(self, kind: Any = Any) -> Any:
        """Return the workflow's state value as last stored; None when there is none."""
        services = self._services

        async def read(tx: Transaction) -> bytes | None:
            return await read_value(tx, services.keys.state(self.id), snapshot=True)

        stored = await services.database.run(read, name="read_state")
        if stored is None:
            return None
        return codec_for(kind).decode(stored)

    async def describe(self) -> Description:
        """Return what is known about the workflow. Raises `WorkflowNotFound`."""
        services = self._services
        found = await describe(services.database, services.keys, [self.id])
        if not found or found[0] is None:
            raise WorkflowNotFound(self.id)
        return found[0]

    def __repr__(self) -> str:
        return f"<handle {self.id}>"
