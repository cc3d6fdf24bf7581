"""The driver for a remote service, with signed requests and signed reports.

The remote service must recognise a repeated `Idempotency-Key`, because the driver repeats requests
after a crash.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_base.http_client import ANSWER_BYTES_MAX, ClientRequest, exchange
from forewarn_base.urls import is_protected, shown_url
from forewarn_base.validation.fields import Boolean, Number, Text
from forewarn_base.validation.forms import read_table
from forewarn_base.validation.json_reader import read_json
from forewarn_base.values import replace, value
from forewarn_drivers import PlatformUnanswered, Progress, Task
from forewarn_drivers.messages import encoded, read_answer, task_message
from forewarn_drivers.task_records import (
    ABORTED,
    BEGUN,
    WHOLE,
    TaskForgotten,
    TaskRecords,
    task_numbers,
)
from forewarn_drivers.webhook.signing import (
    REQUEST,
    SECRET_BYTES_MIN,
    ReportRefused,
    check_report,
    signed,
)

#: Names of records: acceptance by the remote service, signing time of the last report, and the last
#: report.
SENT, REPORT = "sent", "report"

#: Attempts at a request before the call fails.
TRIES = 3
#: Statuses after which a retry may succeed.
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


@value
class WebhookOptions:
    """The table of a webhook driver."""

    #: URL for requests; https is required unless the service is on this machine.
    url: Annotated[str, Text(2048)]
    #: File with the shared secret.
    secret_file: Annotated[str, Text(4096)]
    #: Whether to request a task's progress instead of waiting for reports.
    polls: Annotated[bool, Boolean()] = False
    #: Trusted CA certificates; empty: the system's certificates.
    ca_file: Annotated[str, Text(4096)] = ""
    #: Time limit for each step of sending a request, and for the whole answer, in seconds.
    timeout_s: Annotated[float, Number(0.1, 3600)] = 10.0
    #: Delay before the retry of a request, in seconds; doubled each time.
    backoff_s: Annotated[float, Number(0, 60)] = 0.5
    #: Interval between checks for reports, or requests for progress, in seconds.
    poll_s: Annotated[float, Number(0.1, 86_400)] = 2.0


def create(name: str, options: Mapping[str, object], records: TaskRecords) -> WebhookDriver:
    """Create a driver from its options, with task records in the store.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
        ValueError: the URL is not https, or the secret is too short.
        OSError: the secret cannot be read.
    """
    read = read_table(WebhookOptions, options, f"[drivers.{name}]")
    if not is_protected(read.url):
        raise ValueError("the url is neither https nor on this machine")
    secret = Path(read.secret_file).read_bytes().strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"the secret in {read.secret_file} is shorter than 16 bytes")
    return WebhookDriver(WebhookEndpoint(name, read, secret), records)


class WebhookDriver:
    """Sends tasks to a remote service, and stores the records of tasks."""

    def __init__(self, endpoint: WebhookEndpoint, records: TaskRecords) -> None:
        self.name = endpoint.driver
        self._endpoint = endpoint
        self._records = records
        self._polls = endpoint.options.polls
        self._poll_ms = int(endpoint.options.poll_s * 1000)

    def begin(self, task: Task) -> None:
        """Send `begin`, unless the remote service has already accepted the task."""
        operation = task.operation
        self._records.begin(task.key)
        if SENT not in self._records.notes(operation.number)[operation.execution.attempt]:
            self._send("begin", task)
            self._records.put(operation.number, operation.execution.attempt, {SENT: ""})

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return the last report, or the answer of the remote service."""
        notes = self._records.notes(task.operation.number).get(task.attempt)
        if notes is None:
            raise TaskForgotten(task=task.id)
        progress = Progress()
        if REPORT in notes:
            body = notes[REPORT].partition("\n")[2].encode()
            progress = read_answer(body, "report", task.id, now_ms=now_ms)
        elif self._polls:
            progress = read_answer(self._send("progress", task), "progress", task.id, now_ms=now_ms)
        if progress.done or progress.failed:
            return progress
        return replace(progress, again_ms=progress.again_ms or now_ms + self._poll_ms)

    def abort(self, task: Task) -> None:
        """Refuse further begins and reports of the operation, and send `abort`."""
        self._records.abort(task.key)
        self._send("abort", task)

    def discover(self) -> dict[str, object]:
        """Return the topology from the remote service."""
        body = encoded({"verb": "discover"})
        form = read_json(send(self._endpoint, "discover", "the fleet", body=body))
        return form if isinstance(form, dict) else {}

    def take_report(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check and durably store a report for the next `progress` call.

        Whether the end of a task comes too late depends on the task alone: several senders may
        have different clocks.
        """
        now_s = SystemClock().now_ms() // 1000
        signed_s = check_report(self._endpoint.secret, self.name, headers, body=body, now_s=now_s)
        operation, attempt, last = self._read_report(body)
        task, text = f"op-{operation}/{attempt}", body.decode()
        progress = read_answer(body, "report", task, now_ms=0)
        if last:
            kept_s, _, kept = last.partition("\n")
            before = read_answer(kept.encode(), "report", task, now_ms=0)
            if before.done or before.failed:
                raise ReportRefused(driver=self.name, reason=f"{task} has ended")
            ends = progress.done or bool(progress.failed)
            if not ends and (signed_s < int(kept_s) or f"{signed_s}\n{text}" == last):
                raise ReportRefused(
                    driver=self.name, reason=("this report, or a later report, was received before")
                )
        self._records.put(operation, attempt, {REPORT: f"{signed_s}\n{text}"})

    def _read_report(self, body: bytes) -> tuple[int, int, str]:
        """Return operation and attempt of a report, and the text of the previous report."""
        form = read_json(body)
        task = str(form.get("task", "")) if isinstance(form, dict) else ""
        if numbers := task_numbers(task):
            notes = self._records.notes(numbers[0])
            attempt = notes.get(numbers[1], {})
            if BEGUN in attempt and ABORTED not in notes[WHOLE]:
                return *numbers, attempt.get(REPORT, "")
        raise ReportRefused(driver=self.name, reason=f"the driver runs no task {task!r}")

    def _send(self, verb: str, task: Task) -> bytes:
        message = encoded(task_message(verb, task))
        return send(self._endpoint, verb, task.id, body=message)


class WebhookFailed(PeerError):
    """The remote service of a webhook is unreachable, or has refused a request."""

    code = "driver-webhook-failed"
    message = "{url} {problem} ({verb} of {task})."
    advice = "Check the service that the webhook calls; then retry, complete or fail the operation."


class WebhookUnanswered(WebhookFailed, PlatformUnanswered):
    """The remote service of a webhook did not answer, or cannot answer now."""

    code = "driver-webhook-unanswered"
    advice = "Check the service that the webhook calls; Forewarn asks again."


@value
class WebhookEndpoint:
    """The options of a driver, and the shared secret."""

    driver: str
    options: WebhookOptions
    secret: bytes


def send(endpoint: WebhookEndpoint, verb: str, task: str, *, body: bytes) -> bytes:
    """Send a request with retries; return the answer.

    Raises:
        WebhookUnanswered: the remote service did not answer any attempt.
        WebhookFailed: the remote service refused the request.
    """
    problem = ""
    kind: type[WebhookFailed] = WebhookUnanswered
    for attempt in range(TRIES):
        if attempt:
            threading.Event().wait(endpoint.options.backoff_s * 2 ** (attempt - 1))
        try:
            status, answer = _exchange(endpoint, f"{verb} {task}", body)
        except (OSError, http.client.HTTPException) as error:
            problem = f"cannot be reached: {error}"
            continue
        if len(answer) > ANSWER_BYTES_MAX:
            kind = WebhookFailed
            problem = f"answered with more than {ANSWER_BYTES_MAX} bytes"
            break
        if 200 <= status < 300:
            return answer
        message = answer[:200].decode("utf-8", "replace").strip()
        problem = f"answered {status}{message and ': '}{message}"
        if status not in LATER:
            kind = WebhookFailed
            break
    raise kind(url=shown_url(endpoint.options.url), problem=problem, verb=verb, task=task)


def _exchange(endpoint: WebhookEndpoint, key: str, body: bytes) -> tuple[int, bytes]:
    headers = {
        "content-type": "application/json",
        "idempotency-key": key,
        **signed(
            endpoint.secret,
            REQUEST,
            endpoint.driver,
            time_s=SystemClock().now_ms() // 1000,
            body=body,
        ),
    }
    options = endpoint.options
    request = ClientRequest("POST", options.url, headers, body)
    response = exchange(request, timeout_s=options.timeout_s, ca_file=options.ca_file)
    return response.status, response.body
