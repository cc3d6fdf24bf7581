"""Traces and logs, as a collector of OpenTelemetry gets them over HTTP."""

import gzip
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from forewarn_base.settings import OtlpSettings
from tests.api.live import FLEET, NOW_MS, SETTINGS, Live
from tests.outbox.rig import Receiver
from tests.serving import Request

Spans = dict[str, Any]


@pytest.fixture
def collector() -> Iterator[Receiver]:
    """A receiver of OTLP."""
    made = Receiver()
    yield made
    made.close()


def body_of(request: Request) -> bytes:
    """Return what a request carries."""
    packed = request.headers.get("content-encoding") == "gzip"
    return gzip.decompress(request.body) if packed else request.body


def spans_of(collector: Receiver) -> list[Any]:
    """Return every span that came."""
    found = []
    for request in collector.taken:
        if request.path.endswith("/v1/traces"):
            told = ExportTraceServiceRequest.FromString(body_of(request))
            for resource in told.resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
    return found


def logged(collector: Receiver) -> list[str]:
    """Return every line of the log that came."""
    found = []
    for request in collector.taken:
        if request.path.endswith("/v1/logs"):
            told = ExportLogsServiceRequest.FromString(body_of(request))
            for resource in told.resource_logs:
                for scope in resource.scope_logs:
                    found += [record.body.string_value for record in scope.log_records]
    return found


def test_operation_is_one_trace_from_request_to_end(
    collector: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """An operation is a trace of notice, approvals, calls and work, with history's times. L-1."""
    caplog.set_level(logging.INFO, "forewarn")  # as a service has it
    endpoint = OtlpSettings(collector.url.removesuffix("/events"))
    service = Live(replace(SETTINGS, otlp=endpoint))
    service.fleet(**FLEET)
    service.enable("web-0", "db-0")
    [operation] = service.post("/v1/hosts/h1/reboot")["operations"]
    service.advance(60)
    for event in operation["events"]:
        service.post(f"/v1/operations/{event}/approve")
    service.settle()
    service.advance(30)
    service.post(f"/v1/operations/{operation['id']}/complete")
    service.settle()
    service.stop()
    spans = spans_of(collector)
    names = sorted(span.name for span in spans)
    assert names.count("approval") == 2
    assert {"notice", "work", "driver begin", "operation host-reboot"} <= set(names)
    [root] = [span for span in spans if not span.parent_span_id]
    assert root.name == "operation host-reboot"
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert {span.parent_span_id for span in spans} == {b"", root.span_id}
    start_ns = NOW_MS * 1_000_000
    by_name = {span.name: span for span in spans}
    seconds = {
        name: (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        for name, span in by_name.items()
    }
    assert root.start_time_unix_nano == start_ns
    assert seconds["operation host-reboot"] == 90
    assert seconds["notice"] == seconds["approval"] == 60
    assert seconds["work"] == 30
    assert "op-1 has succeeded" in logged(collector)
