"""Says in the log what is larger than its user wants to send, and what the server would refuse.

Every client has one, with the sizes its user set for warnings. Only workers know the limits of
their namespace, so they bring those along. What is measured is in `perdure.core.payload_limits`,
which is imported late: it needs temporalio, whose import needs the bridge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.temporal.telemetry.log_filter import ERROR, WARN

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from temporalio.bridge.client import ClientConfig

    from perdure.core.payload_limits import Limits
    from perdure.temporal.connection.rpcs import Rpc
    from perdure.temporal.telemetry.logs import Log

__all__ = ["PayloadGuard"]

_TARGET = "temporalio_common::payload_limits"


class PayloadGuard:
    """See the module."""

    def __init__(self, config: ClientConfig, log: Log) -> None:
        self._sizes = (config.payloads_warn_size, config.memo_warn_size)
        self._smallest = min((size for size in self._sizes if size), default=0)
        self._log = log

    def look_at(self, rpc: Rpc, request: bytes) -> None:
        """Warn of what is large in a request of the user's own."""
        if not self._smallest or len(request) <= self._smallest or rpc.request_type is None:
            return
        from perdure.core.payload_limits import Limits, is_measured

        if is_measured(rpc.request_type.DESCRIPTOR.name):
            self.check(rpc.request_type.FromString(request), Limits())

    def check(self, request: Message, errors: Limits) -> str | None:
        """Warn of what is large; the text of an error if the server would refuse the request."""
        from perdure.core.payload_limits import Limits, excesses

        refused = excesses(request, errors, refused=True)
        for found in refused:
            fields = {"size": found.size, "limit": found.allowed, "field": found.field}
            self._log.write(ERROR, _TARGET, found.error, **fields)
        told = {found.field for found in refused}
        for found in excesses(request, Limits(*self._sizes)):
            if found.field not in told:
                fields = {"size": found.size, "limit": found.allowed, "field": found.field}
                self._log.write(WARN, _TARGET, found.warning, **fields)
        return refused[0].error if refused else None
