"""Job: sends the notice to the jobs of an agent's job socket, and waits for their consent.

The step succeeds only once every job has acknowledged a checkpoint. Otherwise it asks to hold the
event at its deadline, so that nobody approves. Source: J-1.
"""

from __future__ import annotations

from forewarn.agent.jobs.wire import LineInvalid, LineReader, connect, is_path, line_of, proof
from forewarn.agent.json_fields import inner, words
from forewarn.agent.preparations.http_call import secret
from forewarn.agent.preparations.wait_until import Unanswered, persist, seconds_left
from forewarn_base.errors import AskedToHold, CallerError, reason_of

ANSWER_S = 5.0  # longest wait for a connection, and for the answer to the end of an event
CHUNK_BYTES = 16 * 1024


class JobsNotReady(AskedToHold):
    """Jobs did not acknowledge in time; the event is held."""

    code = "jobs-not-ready"
    message = "No consent before the deadline: {reason}."
    advice = "See the job's log; a checkpoint may need a longer timeout_s."


class JobNoticeRefused(CallerError):
    """The job socket refused a notice."""

    code = "job-notice-refused"
    message = "The agent at {address} refuses the notice: {reason}."
    advice = "Run this step as the same user as that agent, or with its token_file."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Send the notice, and wait until every job has acknowledged."""
    try:
        answer = persist(lambda: _ask(settings, _notice(settings, hook)))
    except Unanswered as error:
        raise JobsNotReady(reason=error.clause) from error
    if answer.get("say") != "acknowledged":
        raise JobsNotReady(reason=answer.get("reason", "no answer"))
    jobs = inner(answer, "jobs")
    named = ", ".join(f"{job} at {jobs[job]}" for job in sorted(jobs))
    return f"acknowledged: {named or 'no job is registered'}"


def recover(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Report the end of the event to the jobs."""
    persist(lambda: _ask(settings, {"do": "over", **_names(hook)}))
    return "the jobs know that the event is over"


def _notice(settings: dict[str, object], hook: dict[str, object]) -> dict[str, object]:
    left_ms = int(seconds_left() * 1000)
    return {"do": "notice", **_names(hook), "left_ms": left_ms, "jobs": words(settings, "jobs")}


def _names(hook: dict[str, object]) -> dict[str, object]:
    return {"event": inner(hook, "event")["event_id"], "vm": hook["name"]}


def _ask(settings: dict[str, object], message: dict[str, object]) -> dict[str, object]:
    """Send a message and return the answer, which may take until the deadline.

    Raises:
        Unanswered: the agent does not answer, or ended before its answer.
        JobNoticeRefused: the agent refuses the message.
    """
    address = str(settings["address"])
    try:
        with connect(address, timeout_s=ANSWER_S) as connection:
            if is_path(address):
                connection.sendall(line_of(message))
            waits_s = max(ANSWER_S, seconds_left() + ANSWER_S)
            connection.settimeout(waits_s if message["do"] == "notice" else ANSWER_S)
            reader = LineReader()
            while True:
                data = connection.recv(CHUNK_BYTES)
                if not data:
                    raise Unanswered(service=f"The agent at {address}", reason="it has stopped")
                for answer in reader.feed(data):
                    if answer.get("say") == "nonce":
                        shown = proof(secret(settings.get("token_file")), str(answer["nonce"]))
                        lines = line_of({"do": "prove", "proof": shown}) + line_of(message)
                        connection.sendall(lines)
                    elif answer.get("say") == "refused":
                        reason = answer.get("reason", "")
                        raise JobNoticeRefused(address=address, reason=reason)
                    else:
                        return answer
    except (OSError, LineInvalid) as error:
        raise Unanswered(service=f"The agent at {address}", reason=reason_of(error)) from error
