"""Which patches a run has met: what lang is told before it asks, and what it has asked.

A replay has to know that a patch is in history before lang's code reaches it, so markers are read
one sequence ahead. The list of patches goes into the search attribute `TemporalChangeVersion`,
so that people can find the runs of a version.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from temporalio.api.common.v1.message_pb2 import SearchAttributes
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import Annotations, LangCommand
from perdure.core.errors import NondeterminismError
from perdure.core.history.events import describe
from perdure.core.machines.fire_and_forget import UpsertSearchAttributesMachine
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine
from perdure.core.machines.patch import PatchMachine, PatchMarker

__all__ = ["CHANGE_VERSION", "Patches", "is_patch_upsert", "marker_is_skipped"]

CHANGE_VERSION: Final = "TemporalChangeVersion"
_LARGEST: Final = 2048

_log = logging.getLogger(__name__)


class Patches:
    """The patches of one run."""

    __slots__ = ("_asked", "_host", "_in_history")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._in_history: set[str] = set()
        self._asked: set[str] = set()

    def seen_ahead(self, marker: PatchMarker) -> None:
        """A marker of the next sequence: lang must know that the patch is in force."""
        self._in_history.add(marker.patch_id)
        self._host.new_job().notify_has_patch.patch_id = marker.patch_id

    def ask(self, command: LangCommand) -> None:
        """Lang's code runs with the patch. Only the first time in a run counts."""
        patch_id = command.body.patch_id
        if patch_id in self._asked:
            return
        host = self._host
        PatchMachine(host, command)
        is_new_in_replay = host.replaying and patch_id not in self._in_history
        self._asked.add(patch_id)
        if not is_new_in_replay and host.upserts_patches():
            self._upsert(command.annotations)

    def _upsert(self, annotations: Annotations) -> None:
        text = json.dumps(sorted(self._asked), separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) >= _LARGEST:
            _log.warning(
                "the search attribute %s of the workflow %s is not updated: it would be longer"
                " than %d bytes",
                CHANGE_VERSION,
                self._host.run.workflow_id,
                _LARGEST,
            )
            return
        attributes = SearchAttributes()
        value = attributes.indexed_fields[CHANGE_VERSION]
        value.metadata["encoding"] = b"json/plain"
        value.metadata["type"] = b"KeywordList"
        value.data = text
        UpsertSearchAttributesMachine(self._host, attributes, annotations)


def marker_is_skipped(marker: PatchMarker, event: HistoryEvent, front: Machine | None) -> bool:
    """True if the marker belongs to a patch that the code has lost since, which may be.

    `front` is the machine whose command the event would be matched with. A patch can be taken out
    of the code once it is deprecated; raises `NondeterminismError` if it was not.
    """
    if isinstance(front, PatchMachine):
        return marker.deprecated and front.patch_id != marker.patch_id
    if marker.deprecated:
        return True
    found = front.describe() if front is not None else "nothing"
    raise NondeterminismError(
        f"{describe(event)} of history is a marker of the patch {marker.patch_id!r}, but the"
        f" workflow's code asks for {found} at this point: a patch may be removed from the code"
        " only when no run is left in which it is not deprecated"
    )


def is_patch_upsert(event: HistoryEvent) -> bool:
    """True for the upsert that follows a marker."""
    if event.event_type != EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
        return False
    attributes = event.upsert_workflow_search_attributes_event_attributes
    return CHANGE_VERSION in attributes.search_attributes.indexed_fields
