"""Traces and logs for OpenTelemetry, exported by OTLP over HTTP; imported only if configured.

The exporter creates a span after its end, from times in history, so that spans survive a restart of
the service.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from forewarn_base.clock import Clock
from forewarn_base.version import version
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.state import Entry
from forewarn_core.fleet.step import StepResult
from forewarn_server.control.driver_calls import CallResult, DriverCall
from forewarn_server.control.plane import ControlPlane

APPROVED = "event.approved"
#: Longest wait for the collector during a stop of the service, in milliseconds.
FLUSH_MS_MAX = 1000
#: Levels of Python's log -> severities of OpenTelemetry.
SEVERITIES = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}


class OtlpTelemetry:
    """Exports spans of operations, approvals and drivers' calls, and the log, to one collector.

    The control loop's thread calls the exporter for commits and driver calls. The SDK's threads
    send the data.
    """

    def __init__(self, endpoint: str, plane: ControlPlane, clock: Clock) -> None:
        """Prepare the export to `endpoint`, the collector's URL without `/v1/traces`."""
        base = endpoint.rstrip("/")
        resource = Resource.create({"service.name": "forewarn", "service.version": version()})
        self._plane = plane
        self._clock = clock
        self._ids = _OperationIds()
        self._spans = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._spans.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{base}/v1/traces"))
        )
        self._tracer = self._spans.get_tracer("forewarn", version())
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{base}/v1/logs"))
        )
        self._handler = _Handler(self._logs)
        logging.getLogger("forewarn").addHandler(self._handler)

    def stop(self) -> None:
        """Send the remaining data and stop; waits at most a second for the collector."""
        logging.getLogger("forewarn").removeHandler(self._handler)
        self._spans.force_flush(FLUSH_MS_MAX)
        self._logs.force_flush(FLUSH_MS_MAX)
        self._spans.shutdown()
        self._logs.shutdown()

    def committed(self, committed: StepResult) -> None:
        """Create the spans that end with a commit; O(changes of the commit)."""
        changes = committed.changes
        for entry in changes.entries:
            if entry.action == APPROVED:
                operation = changes.operations.get(entry.operation)
                operation = operation or self._plane.state.operations.get(entry.operation)
                if operation is not None:
                    self._approval(entry, operation)
        for operation in changes.operations.values():
            # Ignore the later answer of the driver, which is not a second end.
            if not operation.live and any(
                entry.operation == operation.number and entry.action in _ENDS
                for entry in changes.entries
            ):
                self._lifecycle(operation)

    def observe_call(self, call: DriverCall, result: CallResult, duration_ms: int) -> None:
        """Create the span of a driver's call."""
        operation, now_ms = call.task.operation, self._clock.now_ms()
        self._child(
            operation,
            f"driver {call.verb.value}",
            (now_ms - duration_ms, now_ms),
            {
                "forewarn.driver": call.driver,
                "forewarn.task": call.task.id,
                "forewarn.result": result.value,
            },
            failed=result is not CallResult.OK,
        )

    def _approval(self, entry: Entry, operation: Operation) -> None:
        began_ms = operation.notice.shown_ms or operation.notice.announced_ms or entry.at_ms
        facts = {
            "forewarn.event": entry.event,
            "forewarn.group": entry.group,
            "forewarn.actor": entry.actor,
        }
        self._child(operation, "approval", (began_ms, entry.at_ms), facts)

    def _lifecycle(self, operation: Operation) -> None:
        """Create the spans of an ended operation: root, notice and work."""
        failed = operation.state is OperationState.FAILED
        ended_ms = operation.ended_ms
        assert ended_ms is not None, operation
        if operation.notice.announced_ms:
            until_ms = operation.execution.started_ms or ended_ms
            self._child(operation, "notice", (operation.notice.announced_ms, until_ms), {})
        if operation.execution.started_ms:
            span = operation.execution.started_ms, ended_ms
            self._child(operation, "work", span, {}, failed=failed)
        self._ids.next_ids = self._root(operation)
        try:
            root = self._tracer.start_span(
                f"operation {operation.cause.value}",
                kind=SpanKind.INTERNAL,
                attributes=_facts(operation),
                start_time=_ns(operation.created_ms),
            )
        finally:
            self._ids.next_ids = None
        if failed:
            root.set_status(StatusCode.ERROR, operation.reason)
        root.end(_ns(ended_ms))

    def _child(
        self,
        operation: Operation,
        name: str,
        span: tuple[int, int],
        facts: Mapping[str, AttributeValue],
        *,
        failed: bool = False,
    ) -> None:
        child = self._tracer.start_span(
            name,
            context=self._context(operation),
            attributes={"forewarn.operation": operation.id, **facts},
            start_time=_ns(span[0]),
        )
        if failed:
            child.set_status(StatusCode.ERROR)
        child.end(_ns(max(span)))

    def _root(self, operation: Operation) -> tuple[int, int]:
        """Return the ids of an operation's trace and root span; restarts keep the ids."""
        name = f"{self._plane.store.epoch}/{operation.number}".encode()
        digest = hashlib.sha256(name).digest()
        return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1

    def _context(self, operation: Operation) -> Context:
        trace_id, span_id = self._root(operation)
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = SpanContext(trace_id, span_id, is_remote=False, trace_flags=sampled)
        return set_span_in_context(NonRecordingSpan(parent))


#: Actions by which an operation ends.
_ENDS = frozenset(
    f"operation.{state.value}"
    for state in (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED)
)


class _OperationIds(RandomIdGenerator):
    """Generates preset ids for the next root span, and random ids for all others."""

    def __init__(self) -> None:
        self.next_ids: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        """Return the id of a trace; the SDK requests the span's id first."""
        return self.next_ids[0] if self.next_ids else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return a span's id."""
        if self.next_ids is None:
            return super().generate_span_id()
        return self.next_ids[1]


class _Handler(logging.Handler):
    """Forwards log records unchanged, with their attributes."""

    def __init__(self, provider: LoggerProvider) -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one log record."""
        level = max((each for each in SEVERITIES if each <= record.levelno), default=logging.DEBUG)
        facts = {
            f"forewarn.{name}": str(value)
            for name in ("action", "actor")
            if (value := getattr(record, name, None))
        }
        self._provider.get_logger(record.name).emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                severity_text=record.levelname,
                severity_number=SEVERITIES[level],
                body=record.getMessage(),
                attributes=facts,
            )
        )


def _facts(operation: Operation) -> dict[str, AttributeValue]:
    return {
        "forewarn.operation": operation.id,
        "forewarn.cause": operation.cause.value,
        "forewarn.event_type": operation.impact.value,
        "forewarn.source": operation.source.value,
        "forewarn.host": operation.host,
        "forewarn.vms": len(operation.vms),
        "forewarn.state": operation.state.value,
        "forewarn.maintenance": f"m-{operation.maintenance}" if operation.maintenance else "",
        "forewarn.actor": operation.actor,
    }


def _ns(at_ms: int) -> int:
    return at_ms * 1_000_000
