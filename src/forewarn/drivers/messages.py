"""Tasks and answers as JSON: what drivers that talk to other programs send and take.

How it gets there (a pipe, a request) is each driver's own. docs/reference/drivers.md describes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from forewarn.drivers import INTERRUPTION_MS_MAX, PLACEMENTS_MAX, Progress
from forewarn.errors import PeerError
from forewarn.protocol.timestamps import iso8601
from forewarn.validation.fields import NAME, Boolean, Integer, Number, Text, ValidationFailed
from forewarn.validation.forms import Field, Form, Named
from forewarn.validation.json_reader import BodyUnreadable, read_json

if TYPE_CHECKING:
    from forewarn.drivers import Task

#: Version of these messages; it grows when a reader of an older one would be misled.
PROTOCOL = 1
#: Longest answer, in bytes.
ANSWER_BYTES_MAX = 64 * 1024
#: Longest wait that an answer may ask for, in seconds.
AGAIN_S_MAX = 24 * 3600

#: What a reason or a text may be: one that is too long is cut off where it is shown.
_CLAUSE = Text(ANSWER_BYTES_MAX, lines=True)
_ANSWER = Form(
    "DriverAnswer",
    "How far a driver's other side is with a task.",
    (
        Field("task", Text(64), "Which task; where it is given it must be the one asked after."),
        Field("done", Boolean(), "It has ended well."),
        Field("failed", _CLAUSE, "Why it failed."),
        Field("text", _CLAUSE, "What is being done."),
        Field("share", Number(0, 1), "How much of it is done."),
        Field("waits", _CLAUSE, "Whom or what it waits for."),
        Field(
            "placements",
            Named(NAME, PLACEMENTS_MAX, NAME),
            "The hosts that VMs are taken to, by the VMs' names, where it chooses.",
        ),
        Field(
            "interruption_ms",
            Integer(0, INTERRUPTION_MS_MAX),
            "Longest interruption of a VM in milliseconds, once it is done.",
        ),
        Field("again_s", Number(0, AGAIN_S_MAX), "When to ask again, in seconds from now."),
        Field("protocol", Integer(PROTOCOL, PROTOCOL), "The version of these messages."),
    ),
)


class AnswerUnusable(PeerError):
    """A driver's other side has said something that is not an answer."""

    code = "driver-answer-unusable"
    message = "The answer to {verb} of {task} cannot be used: {reason}."
    advice = "See 'Drivers' in the documentation for the form of an answer."


def task_message(verb: str, task: Task) -> dict[str, object]:
    """Return a task in the form sent to the other side."""
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
        "started": iso8601(operation.execution.started_ms or 0),
    }


def encoded(message: object) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def read_answer(line: bytes, verb: str, task: str, *, now_ms: int) -> Progress:
    """Return what an answer says.

    Raises:
        AnswerUnusable: it is too long, no JSON, not of the form, contradicts itself, or speaks of
            another task.
    """
    if len(line) > ANSWER_BYTES_MAX:
        raise AnswerUnusable(verb=verb, task=task, reason=f"more than {ANSWER_BYTES_MAX} bytes")
    try:
        answer = _ANSWER.read(read_json(line), "the answer")
    except (BodyUnreadable, ValidationFailed) as error:
        reason = str(error).removesuffix(".")
        raise AnswerUnusable(verb=verb, task=task, reason=reason) from error
    about = answer.get("task", task)
    if about != task:
        raise AnswerUnusable(verb=verb, task=task, reason=f"it speaks of {about}")
    done, failed = answer.get("done", False), answer.get("failed", "")
    if done and failed:
        raise AnswerUnusable(verb=verb, task=task, reason="it is done and has failed")
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
