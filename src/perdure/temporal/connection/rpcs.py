"""The RPCs of the services, by the snake_case names the official SDK calls them.

The names come from the SDK's own generated classes, so a newer SDK brings its own RPCs. The wire
name is the CamelCase form, without exception.
"""

from __future__ import annotations

import functools
from typing import Any, Final

__all__ = ["TASK_POLLS", "Rpc", "UnknownRpc", "find"]

_SERVICES: Final = {
    "workflow": ("temporal.api.workflowservice.v1.WorkflowService", "WorkflowService"),
    "operator": ("temporal.api.operatorservice.v1.OperatorService", "OperatorService"),
    "cloud": ("temporal.api.cloud.cloudservice.v1.CloudService", "CloudService"),
    "test": ("temporal.api.testservice.v1.TestService", "TestService"),
    "health": ("grpc.health.v1.Health", "HealthService"),
}

_ROUTED: Final = frozenset(
    {
        ("operator", "delete_namespace"),
        ("cloud", "delete_namespace"),
        ("cloud", "get_namespace"),
        ("cloud", "update_namespace"),
    }
)
TASK_POLLS: Final = frozenset(
    {"poll_workflow_task_queue", "poll_activity_task_queue", "poll_nexus_task_queue"}
)
_LONG_POLLS: Final = TASK_POLLS | {
    "execute_multi_operation",
    "poll_workflow_execution_time_skipping",
    "update_workflow_execution",
}


class UnknownRpc(ValueError):
    """No such RPC in the service; the SDK expects a ValueError."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown RPC call {name}")


class Rpc:
    """One RPC: its wire path, its default deadline, and how to find a request's namespace."""

    __slots__ = ("name", "operation", "path", "request_type")

    def __init__(self, service: str, name: str) -> None:
        wire, _ = _SERVICES[service]
        self.name = name
        self.operation = "".join(word.capitalize() for word in name.split("_"))
        self.path = f"/{wire}/{self.operation}"
        self.request_type = _request_type(service, name, self.operation)

    def long(self, request: bytes) -> bool:
        """Whether the server may hold the answer back for about a minute."""
        if self.name == "get_workflow_execution_history" and self.request_type is not None:
            return bool(self.request_type.FromString(request).wait_new_event)
        return self.name in _LONG_POLLS

    def namespace(self, request: bytes) -> str | None:
        """The namespace a request is for, maybe an empty one; None where none routes it."""
        if self.request_type is None:
            return None
        return str(self.request_type.FromString(request).namespace)


@functools.cache
def find(service: str, name: str) -> Rpc:
    """The RPC of that name; raises `UnknownRpc`."""
    from temporalio.bridge import services_generated

    _, class_name = _SERVICES[service]
    if name.startswith("_") or not hasattr(getattr(services_generated, class_name), name):
        raise UnknownRpc(name)
    return Rpc(service, name)


def _request_type(service: str, name: str, operation: str) -> Any | None:
    """The message of the request if it is one that names the namespace it is for.

    That is so for the workflow service; in the others a namespace is rather what a call is about.
    """
    if service != "workflow" and (service, name) not in _ROUTED:
        return None
    if service == "workflow":
        import temporalio.api.workflowservice.v1 as messages
    elif service == "operator":
        import temporalio.api.operatorservice.v1 as messages  # type: ignore[no-redef]
    else:
        import temporalio.api.cloud.cloudservice.v1 as messages  # type: ignore[no-redef]
    request = getattr(messages, f"{operation}Request", None)
    if request is None or "namespace" not in request.DESCRIPTOR.fields_by_name:
        return None
    return request
