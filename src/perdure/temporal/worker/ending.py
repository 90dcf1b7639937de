"""How a worker ends.

In order: no new work is asked for; the server is told, so that it gives sticky tasks to other
workers and, where it can, answers the polls that are under way; what came is finished; lang's polls
end with `PollShutdownError` once nothing can come any more; `finish` waits for all of it.

Nothing here waits without a bound for anybody else than lang: the server has some seconds to hear
that we go, and then our polls are cancelled; calls end by their own deadlines; permits have a
second. What lang has, it must answer, as long as that takes; `waiting_for` says what it is, and so
does the log from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from temporalio.api.namespace.v1 import NamespaceInfo

from perdure.core.inputs import PollersStopped, ShutdownRequested
from perdure.temporal.sdk_errors import PollShutdownError
from perdure.temporal.worker.activities import ActivityShell
from perdure.temporal.worker.dealers import Dealers
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.nexus import NexusShell
from perdure.temporal.worker.polling.workflow_polls import WorkflowPolls
from perdure.temporal.worker.workflows import WorkflowShell

__all__ = ["WorkerEnding", "WorkerParts"]

_HEARING = 5.0
_PERMITS_RETURN = 1.0
_REPORT_PAUSE = 10.0


@dataclass(slots=True)
class WorkerParts:
    """What a worker is made of; what it does not do is None."""

    dealers: Dealers
    activity_mailbox: Mailbox = field(default_factory=Mailbox)
    workflows: WorkflowShell | None = None
    workflow_polls: WorkflowPolls | None = None
    activities: ActivityShell | None = None
    nexus: NexusShell | None = None


class WorkerEnding:
    """The end of one worker; see the module."""

    def __init__(
        self, journal: Journal, parts: WorkerParts, say_goodbye: Callable[[float], Awaitable[bool]]
    ) -> None:
        """`say_goodbye` tells the server, for so many seconds at most, and says if it has heard."""
        self.begun = False
        self.capabilities = NamespaceInfo.Capabilities()
        self._say_goodbye = say_goodbye
        self._journal = journal
        self._parts = parts
        self._local_over = False
        self._activities_over = False
        self._stopping: asyncio.Task[None] | None = None
        self._telling = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._report: asyncio.TimerHandle | None = None

    # The ends of parts

    def workflows_over(self) -> None:
        """No workflow task is left; local activities may be."""
        self._journal.workflows_over()
        self._close_if_over()
        workflows = self._parts.workflows
        if workflows is not None and workflows.local is not None:
            workflows.local.when_idle(self._local_activities_over)

    def activities_over(self) -> None:
        """No activity is left."""
        self._activities_over = True
        self._close_if_over()

    def _local_activities_over(self) -> None:
        self._local_over = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        parts = self._parts
        remote = parts.activities is not None and not self._activities_over
        has_local = parts.workflows is not None and parts.workflows.local is not None
        if self.begun and not remote and (self._local_over or not has_local):
            parts.activity_mailbox.close(PollShutdownError())

    # The whole

    def polled(self) -> None:
        """Lang polls on this loop; a worker that was told to end elsewhere ends here."""
        self._loop = asyncio.get_running_loop()
        if self.begun:
            self.begin()

    @property
    def polled_elsewhere(self) -> bool:
        """Whether lang polls on another loop than the running one: no work may come from here."""
        return self._loop is not None and self._loop is not asyncio.get_running_loop()

    def begin(self) -> None:
        """Ask for nothing new. May be called again, and from anywhere: it happens on the loop that
        polls, now or from its first poll on."""
        if not self.begun:
            self.begun = True
            self._journal.shutdown_began()
        if self._stopping is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self.begin)
                return
            home = self._loop
            if home is not None and home is not loop and home.is_running():
                home.call_soon_threadsafe(self.begin)
                return
            self._stopping = loop.create_task(self._stop())
            self._report = loop.call_later(_REPORT_PAUSE, self._write_report)

    async def finish(self) -> None:
        """Wait until everything has ended; what is still out is written to the log."""
        self.begin()
        assert self._stopping is not None
        try:
            await self._stopping
            parts = self._parts
            if parts.workflows is not None:
                await parts.workflows.idle()
            if parts.activities is not None:
                await parts.activities.idle()
            if parts.nexus is not None:
                await parts.nexus.over()
            self._close()
            await parts.dealers.all_returned(_PERMITS_RETURN)
        finally:
            if self._report is not None:
                self._report.cancel()
        if left := self.waiting_for():
            self._journal.ended_with(left)

    def _close(self) -> None:
        """No timer and no wish for a slot outlives the worker."""
        for part in (self._parts.workflows, self._parts.activities, self._parts.nexus):
            if part is not None:
                part.close()

    def waiting_for(self) -> list[str]:
        """What there still is, in words; nothing when the worker has ended."""
        parts, left = self._parts, []
        if self._telling:
            left.append("the server's answer to ShutdownWorker")
        if parts.workflow_polls is not None:
            left += _some(parts.workflow_polls.under_way, "polls for workflow tasks")
        if parts.workflows is not None:
            left += parts.workflows.waiting_for()
        if parts.activities is not None:
            left += parts.activities.waiting_for()
        if parts.nexus is not None:
            left += _some(parts.nexus.outstanding, "Nexus tasks that lang has not answered")
        left += [f"{count} permits of kind {kind}" for kind, count in parts.dealers.out().items()]
        return left

    def _write_report(self) -> None:
        self._report = asyncio.get_running_loop().call_later(_REPORT_PAUSE, self._write_report)
        self._journal.shutdown_waits(self.waiting_for())

    async def _stop(self) -> None:
        parts = self._parts
        if parts.workflow_polls is not None:
            parts.workflow_polls.stop()
        if parts.activities is not None:
            parts.activities.stop()
        if parts.nexus is not None:
            parts.nexus.stop()
        if parts.workflows is not None:
            parts.workflows.feed(ShutdownRequested())
        telling = asyncio.get_running_loop().create_task(self._tell_server())
        by_server = self.capabilities.worker_poll_complete_on_shutdown and await telling
        await asyncio.gather(
            self._end_workflow_polls(by_server=by_server),
            self._end_activity_polls(by_server=by_server),
            self._end_nexus_polls(by_server=by_server),
        )
        self._close_if_over()
        await telling

    async def _end_workflow_polls(self, *, by_server: bool) -> None:
        if self._parts.workflow_polls is not None:
            await self._parts.workflow_polls.ended(by_server=by_server)
        if self._parts.workflows is not None:
            self._parts.workflows.feed(PollersStopped())

    async def _end_activity_polls(self, *, by_server: bool) -> None:
        if self._parts.activities is not None:
            await self._parts.activities.polls_ended(by_server=by_server)

    async def _end_nexus_polls(self, *, by_server: bool) -> None:
        if self._parts.nexus is not None:
            await self._parts.nexus.polls_ended(by_server=by_server)

    async def _tell_server(self) -> bool:
        self._telling = True
        try:
            return await self._say_goodbye(_HEARING)
        finally:
            self._telling = False


def _some(count: int, what: str) -> list[str]:
    return [f"{count} {what}"] if count else []
