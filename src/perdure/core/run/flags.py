"""Which behaviours a history was recorded with.

A change of behaviour that would break the replay of older histories gets a flag. The flags in
force are written into WorkflowTaskCompleted events, by the core for itself (`CoreFlag`) and on
behalf of lang (plain numbers, unknown to the core). A replay behaves as the flags in its history
say. Name and version of the SDK travel with them.

A server without the capability `sdk_metadata` would lose what is written, so nothing is used for
the first time there; flags that a history carries count all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata

__all__ = ["CoreFlag", "InternalFlags"]


class CoreFlag(IntEnum):
    """Behaviours of the core itself. Numbers are stored in histories and never reused."""

    ID_AND_TYPE_CHECKS = 1
    """Ids and types of activities and children must be those of the history."""
    UPSERT_SEARCH_ATTRIBUTES_ON_PATCH = 2
    """A patch marker is followed by an upsert of the patches met so far."""
    MOVE_TERMINAL_COMMANDS = 3
    """Commands after the command that ends the workflow are kept and sent before it."""
    NEXUS_OPERATION_CHECKS = 4
    """Service and operation of a Nexus operation must be those of the history."""


_KNOWN = frozenset(int(flag) for flag in CoreFlag)


class InternalFlags:
    """The flags of one run: what its history says and what is new since the last task."""

    __slots__ = (
        "_core",
        "_lang",
        "_new_lang",
        "_sdk_name",
        "_sdk_version",
        "_server_keeps_metadata",
        "_used",
    )

    def __init__(self, *, server_keeps_metadata: bool) -> None:
        """`server_keeps_metadata` is the server's capability `sdk_metadata`."""
        self._server_keeps_metadata = server_keeps_metadata
        self._core: set[int] = set()
        self._used: set[int] = set()
        self._lang: set[int] = set()
        self._new_lang: set[int] = set()
        self._sdk_name = ""
        self._sdk_version = ""

    @property
    def lang_flags(self) -> list[int]:
        """All flags of lang that the history holds, in order."""
        return sorted(self._lang)

    @property
    def last_sdk_version(self) -> str:
        """The newest version in the history that was not empty."""
        return self._sdk_version

    def seen(self, metadata: WorkflowTaskCompletedMetadata) -> None:
        """Take over what a WorkflowTaskCompleted event says. Unknown core flags are ignored."""
        self._core.update(_KNOWN.intersection(metadata.core_used_flags))
        self._lang.update(metadata.lang_used_flags)
        self._sdk_name = metadata.sdk_name or self._sdk_name
        self._sdk_version = metadata.sdk_version or self._sdk_version

    def try_use(self, flag: CoreFlag, *, record: bool) -> bool:
        """Whether the behaviour is in force.

        `record` says that this happens now rather than being replayed: then the behaviour starts
        to be in force, provided that the server will remember it.
        """
        if record and self._server_keeps_metadata:
            self._used.add(flag)
        return flag in self._core or flag in self._used

    def lang_used(self, flags: Iterable[int]) -> None:
        """Flags that lang used in an activation; the next completed task writes the new ones."""
        self._new_lang.update(flags)
        self._new_lang -= self._lang

    def metadata_of_completion(
        self, sdk_name: str, sdk_version: str
    ) -> WorkflowTaskCompletedMetadata:
        """What a completed workflow task writes; from now on it counts as part of the history."""
        if not self._server_keeps_metadata:
            return WorkflowTaskCompletedMetadata()
        metadata = WorkflowTaskCompletedMetadata(
            core_used_flags=sorted(_KNOWN - self._core),
            lang_used_flags=sorted(self._new_lang),
            sdk_name=sdk_name if sdk_name != self._sdk_name else "",
            sdk_version=sdk_version if sdk_version != self._sdk_version else "",
        )
        self.seen(metadata)
        self._new_lang.clear()
        return metadata
