"""Tasks and answers as JSON, for drivers that call other programs.

The transport, such as a pipe or a request, depends on the driver. docs/reference/drivers.md
describes the messages.
"""

from __future__ import annotations

import json

from forewarn_base.errors import PeerError
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.validation.fields import NAME, Boolean, Integer, Number, Text, ValidationFailed
from forewarn_base.validation.forms import Field, Form, Named
from forewarn_base.validation.json_reader import BodyUnreadable, read_json
from forewarn_drivers import INTERRUPTION_MS_MAX, PLACEMENTS_MAX, Progress, Task

#: Version of the messages; grows with each incompatible change.
PROTOCOL = 1
#: Maximum length of an answer, in bytes.
ANSWER_BYTES_MAX = 64 * 1024
#: Maximum wait that an answer may request, in seconds.
AGAIN_S_MAX = 24 * 3600

#: Format of a reason or a text; the output shortens long texts.
_CLAUSE = Text(ANSWER_BYTES_MAX, lines=True)
_ANSWER = Form(
    "DriverAnswer",
    "The progress of a task, reported by a driver's program or service.",
    (
        Field("task", Text(64), "The task; optional, and equal to the task of the request."),
        Field("done", Boolean(), "Whether the task has succeeded."),
        Field("failed", _CLAUSE, "Reason why the task failed."),
        Field("text", _CLAUSE, "The current activity."),
        Field("share", Number(0, 1), "Completed share of the work."),
        Field("waits", _CLAUSE, "The person or thing that delays the task."),
        Field(
            "placements",
            Named(NAME, PLACEMENTS_MAX, NAME),
            "Destinations of VMs by VM name, if the driver chooses.",
        ),
        Field(
            "interruption_ms",
            Integer(0, INTERRUPTION_MS_MAX),
            "Longest interruption of any VM in milliseconds, once the task is done.",
        ),
        Field("again_s", Number(0, AGAIN_S_MAX), "Seconds until the next request for progress."),
        Field("protocol", Integer(PROTOCOL, PROTOCOL), "The version of these messages."),
    ),
)


class AnswerUnusable(PeerError):
    """A driver's program or service sent an invalid answer."""

    code = "driver-answer-unusable"
    message = "The answer to {verb} of {task} cannot be used: {reason}."
    advice = "See 'Drivers' in the documentation for the format of an answer."


def task_message(verb: str, task: Task) -> dict[str, object]:
    """Return the message for a call about a task."""
    operation = task.operation
    return {
        "protocol": PROTOCOL,
        "verb": verb,
        "task": task.id,
        "operation": operation.id,
        "attempt": operation.execution.attempt,
        "generation": task.generation,
        "cause": operation.cause.value,
        "impact": operation.impact.value,
        "source": operation.source.value,
        "target_kind": "vm" if operation.of_vm else "host",
        "target": operation.target,
        "host": operation.host,
        "vms": list(operation.vms),
        "destination": operation.destination,
        "placements": dict(operation.execution.placements),
        "description": operation.description,
        "duration_s": operation.duration_s,
        "followed_by": operation.followed_by.value,
        "started": iso8601(operation.execution.started_ms or 0),
    }


def encoded(message: object) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def read_answer(line: bytes, verb: str, task: str, *, now_ms: int) -> Progress:
    """Parse an answer.

    Raises:
        AnswerUnusable: the answer is too long, malformed, contradictory, or about another task.
    """
    if len(line) > ANSWER_BYTES_MAX:
        raise AnswerUnusable(verb=verb, task=task, reason=f"longer than {ANSWER_BYTES_MAX} bytes")
    try:
        answer = _ANSWER.read(read_json(line), "the answer")
    except (BodyUnreadable, ValidationFailed) as error:
        reason = error.clause
        raise AnswerUnusable(verb=verb, task=task, reason=reason) from error
    about = answer.get("task", task)
    if about != task:
        raise AnswerUnusable(verb=verb, task=task, reason=f"the answer is about {about}")
    done, failed = answer.get("done", False), answer.get("failed", "")
    if done and failed:
        raise AnswerUnusable(
            verb=verb, task=task, reason="the answer reports both success and failure"
        )
    again_s = answer.get("again_s")
    return Progress(
        done=done,
        failed=failed,
        again_ms=0 if again_s is None else now_ms + max(int(again_s * 1000), 1),
        waits=answer.get("waits", ""),
        text=answer.get("text", ""),
        share=answer.get("share"),
        placements=answer.get("placements", {}),
        interruption_ms=answer.get("interruption_ms", -1),
    )
