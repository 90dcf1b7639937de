"""What the admin interface answers with: plain records that turn into JSON and back.

They are views for people and tools, not what is stored: ids are texts, instants are milliseconds
since 1970 (UTC), stored values are the plain form that `perdure.codec.to_json` gives (bytes as
base64, NaN as `"NaN"`). A field is only ever added, never renamed or given another meaning: scripts
read them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engine.tags import Tags

__all__ = [
    "ControlResult",
    "DispatchResult",
    "FailureView",
    "HistoryNode",
    "PendingSignalView",
    "ProgressView",
    "PruneResult",
    "ReviveResult",
    "SignalResult",
    "StatsView",
    "WorkflowDetail",
    "WorkflowHistory",
    "WorkflowPage",
    "WorkflowView",
]


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """Why something failed, with the chain of causes."""

    type: str
    message: str
    code: str | None = None
    stack: str | None = None
    cause: FailureView | None = None


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far the long work of a workflow has come: an activity's heartbeat or a loop's iteration.

    `what` is `activity` or `loop`. Loops have an `iteration`; activities have an `attempt` (the one
    under way or due next) and the `details` of the last heartbeat. `at` is when this was stored.
    """

    location: str
    what: str
    name: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    details: Any = None
    at: int


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list.

    `state` is `sleeping`, `running`, `silenced`, `complete`, `dead`, `cancelled` or `terminated`.
    `waiting_for` says in words what a sleeping workflow waits for. `error` is the one-line reason
    of a dead one.
    """

    id: str
    name: str
    state: str
    created_at: int
    changed_at: int
    tags: Tags = {}
    wake_at: int | None = None
    waiting_for: list[str] = []
    error: str | None = None
    progress: list[ProgressView] = []


class WorkflowDetail(WorkflowView, frozen=True, kw_only=True):
    """Everything about one workflow but its history."""

    ray_id: str
    parent: str | None = None
    unique: str | None = None
    worker: str | None = None
    epoch: int = 0
    input: Any = None
    value: Any = None
    output: Any = None
    failure: FailureView | None = None
    cancel_requested_at: int | None = None
    cancel_reason: str | None = None
    silenced_at: int | None = None
    pruned_at: int | None = None
    pending_signals: dict[str, int] = {}


class WorkflowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some workflows, newest first; `next_page` asks for the ones after them, None if none."""

    workflows: list[WorkflowView]
    next_page: str | None = None


class HistoryNode(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded event and the events below it.

    `created_at` is when the step first started, `at` when this record was written. `details` holds
    what is particular to the kind. A record that cannot be read has the kind `unreadable`.
    """

    location: str
    kind: str
    name: str | None = None
    version: int = 1
    created_at: int = 0
    at: int = 0
    forgotten: bool = False
    details: dict[str, Any] = {}
    children: list[HistoryNode] = []


class WorkflowHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow with the tree of its history."""

    workflow: WorkflowView
    events: list[HistoryNode]


class PendingSignalView(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent and not received yet."""

    id: str
    name: str
    sent_at: int
    ray_id: str
    body: Any = None


class DispatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow that was started (`created`), or the open one that holds the unique key."""

    workflow_id: str
    name: str
    created: bool


class SignalResult(msgspec.Struct, frozen=True, kw_only=True):
    """A signal was stored. `woken`: the workflow slept waiting for it and is due now."""

    workflow_id: str
    signal_id: str
    woken: bool


class ControlResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one workflow. `changed` is False if it already was that way."""

    workflow_id: str
    action: str
    changed: bool = True


class ReviveResult(msgspec.Struct, frozen=True, kw_only=True):
    """Dead workflows that were revived, or would be if `dry_run`. `more`: the limit was reached."""

    workflows: list[WorkflowView]
    dry_run: bool
    more: bool = False


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many closed workflows were pruned."""

    pruned: int


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the whole store: per workflow name and phase word, and pending signals by name."""

    at: int
    workflows: dict[str, dict[str, int]]
    signals: dict[str, int]
