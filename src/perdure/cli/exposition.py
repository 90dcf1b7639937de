"""An HTTP page with an engine's metrics, for Prometheus to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

__all__ = ["serve_metrics"]


@contextmanager
def serve_metrics(registry: CollectorRegistry, port: int, address: str) -> Iterator[int]:
    """Serve `registry` (and facts about this process) while the block runs; gives the real port.

    Port 0 takes a free one. Raises `OSError` if the port cannot be had.
    """
    ProcessCollector(registry=registry)
    server, thread = start_http_server(port, address, registry=registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
