"""An HTTP page with an engine's metrics, for Prometheus to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from perdure.errors import CallerError

__all__ = ["MetricsUnavailable", "serve_metrics"]


class MetricsUnavailable(CallerError):
    """The port for metrics cannot be had."""

    code = "cli.metrics_unavailable"

    def __init__(self, address: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot serve metrics at {address} port {port} ({reason}): choose another"
            " --metrics-port, or 0 for a free one"
        )
        self.address = address
        self.port = port
        self.reason = reason


@contextmanager
def serve_metrics(registry: CollectorRegistry, port: int, address: str) -> Iterator[int]:
    """Serve `registry` (and facts about this process) while the block runs; gives the real port.

    Port 0 takes a free one. Raises `MetricsUnavailable` if the port cannot be had.
    """
    # A registry of the application's may have these facts already.
    with suppress(ValueError):
        ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry=registry)
    except OSError as error:
        raise MetricsUnavailable(address, port, str(error)) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
