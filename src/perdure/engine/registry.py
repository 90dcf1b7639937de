"""The names one worker can run.

Only workflows need registering: they are started by name from the store. Activities are found
through the objects that workflow code passes. A worker pulls only names in its registry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.engine.definitions import Signal, Workflow, require, signal_in
from perdure.engine.errors import DuplicateName, UnknownWorkflow

__all__ = ["Registry"]


class Registry:
    """Workflow definitions by name."""

    def __init__(self, workflows: Iterable[Workflow[Any, Any]] = ()) -> None:
        self._workflows: dict[str, Workflow[Any, Any]] = {}
        for workflow in workflows:
            self.add(workflow)

    def add(self, workflow: Workflow[Any, Any]) -> None:
        """Register one definition.

        Raises `DuplicateName` when another one has its name, `InvalidDefinition` if it is none.
        """
        require(Workflow, workflow)
        known = self._workflows.setdefault(workflow.name, workflow)
        if known is not workflow:
            raise DuplicateName("workflow", workflow.name)

    def get(self, name: str) -> Workflow[Any, Any]:
        """Return the definition with this name. Raises `UnknownWorkflow`."""
        found = self._workflows.get(name)
        if found is None:
            raise UnknownWorkflow(name, tuple(self.names))
        return found

    def signals(self, name: str) -> list[Signal[Any]]:
        """The signals of this name that the modules of these workflows define or import."""
        found: dict[int, Signal[Any]] = {}
        for workflow in self._workflows.values():
            for value in workflow.function.__globals__.values():
                signal = signal_in(value)
                if signal is not None and signal.name == name:
                    found[id(signal)] = signal
        return list(found.values())

    def __contains__(self, name: str) -> bool:
        return name in self._workflows

    @property
    def names(self) -> frozenset[str]:
        """All registered names."""
        return frozenset(self._workflows)
