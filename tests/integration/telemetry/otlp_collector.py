"""A collector for tests: takes OTLP over HTTP on 127.0.0.1 and decodes it with the published messages."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpCollector:
    """What arrived so far."""

    def __init__(self) -> None:
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.address = ""

    def spans(self) -> dict[str, list[Any]]:
        """Name → spans of that name."""
        found: dict[str, list[Any]] = {}
        for request in self.traces:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.setdefault(span.name, []).append(span)
        return found

    def metric(self, name: str) -> Any:
        """The newest state of a metric."""
        found = None
        for request in self.metrics:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        found = metric if metric.name == name else found
        assert found is not None, f"{name} did not arrive"
        return found

    def resource(self) -> dict[str, str]:
        (first, *_) = self.traces[0].resource_spans
        return attributes(first.resource)


def attributes(holder: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}


@contextmanager
def running_collector() -> Iterator[OtlpCollector]:
    collected = OtlpCollector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collected.headers.append({name.lower(): value for name, value in self.headers.items()})
            if self.path == "/v1/traces":
                collected.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                collected.metrics.append(ExportMetricsServiceRequest.FromString(body))
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collected.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def black_hole() -> Iterator[str]:
    """Connections are taken and nothing is ever said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
