"""A small OTLP collector for metrics: it takes requests over gRPC or HTTP and keeps them."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

_PATIENCE = 20.0


class Collector:
    """What was received: requests with their headers, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: queue.Queue[tuple[Mapping[str, str], ExportMetricsServiceRequest]] = (
            queue.Queue()
        )

    def next(self) -> tuple[Mapping[str, str], ExportMetricsServiceRequest]:
        """The next request; fails when none comes."""
        return self.received.get(timeout=_PATIENCE)

    def metric(self, name: str) -> Metric:
        """The first metric of that name in a request to come."""
        while True:
            _, request = self.next()
            found = metrics(request).get(name)
            if found is not None:
                return found


def metrics(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    """All metrics of a request by name."""
    return {
        metric.name: metric
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""

    def value(pair: KeyValue) -> Any:
        return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")

    return {pair.key: value(pair) for pair in attributes}


@contextmanager
def over_grpc() -> Iterator[Collector]:
    """A collector that speaks gRPC."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(f"http://127.0.0.1:{port}")

    def export(
        request: ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> ExportMetricsServiceResponse:
        headers = {str(key): str(value) for key, value in context.invocation_metadata()}
        collector.received.put((headers, request))
        return ExportMetricsServiceResponse()

    method = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=ExportMetricsServiceRequest.FromString,
        response_serializer=ExportMetricsServiceResponse.SerializeToString,
    )
    name = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    handler = grpc.method_handlers_generic_handler(name, {"Export": method})
    server.add_generic_rpc_handlers((handler,))
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait(_PATIENCE)


@contextmanager
def over_http() -> Iterator[Collector]:
    """A collector that takes protobuf by POST."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {key.lower(): value for key, value in self.headers.items()}
            headers["path"] = self.path
            collector.received.put((headers, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Requests are not news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_port}/v1/metrics")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
