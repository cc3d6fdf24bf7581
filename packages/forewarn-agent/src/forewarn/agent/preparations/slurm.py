"""Slurm: keeps overlapping jobs off a node, drains the node, and waits until it is idle.

A reservation from NotBefore lets only jobs start that end before. The drain follows a while before
the deadline; afterwards no job starts. Only our reservation and our drain are undone. Source: J-2.
"""

from __future__ import annotations

import re
import subprocess

from forewarn.agent.json_fields import inner
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import local_host
from forewarn.agent.preparations.wait_until import Unanswered, persist, seconds_left, until
from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError

COMMAND_S = 30.0  # longest run of one of Slurm's commands
DRAIN_BEFORE_S = 120.0  # time between the drain and the deadline, unless a setting changes it
#: Parts of messages, in lower case, of commands that the controller has not answered.
UNANSWERED = ("unable to contact", "timed out", "standby mode", "connect failure", "not responding")

#: States of jobs that occupy a node: running, completing, configuring, suspended, stopped.
BUSY = "R,CG,CF,S,ST"


class SlurmFailed(PeerError):
    """A Slurm command failed."""

    code = "slurm-failed"
    message = "{command} failed: {reason}."
    advice = "Check the command and `scontrol ping`; the agent's user must be a Slurm operator."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Reserve the node from NotBefore, drain it in time, and wait until it is idle."""
    node = _node(settings)
    event = inner(hook, "event")
    name = f"forewarn_{event['event_id']}_{node}"
    reservation = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    reason = f"forewarn: {event['event_type']} {event['event_id']}"
    step_state.write({**step_state.read(), "node": node, "reservation": reservation})
    persist(lambda: _reserve(settings, reservation, node, event.get("not_before_ms")))
    before_s = float(str(settings.get("drain_before_s", DRAIN_BEFORE_S)))
    until(lambda: seconds_left() <= before_s, "the time to drain has come")
    ours = persist(lambda: _drain(node, reason))
    until(lambda: _is_idle(node), f"no job occupies {node}")
    return f"{node} is idle and drained{'' if ours else ' by another administrator'}"


def recover(_settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Delete our reservation, and resume the node if its drain is ours."""
    notes = step_state.read()
    node, reservation = str(notes.get("node", "")), str(notes.get("reservation", ""))
    if not node:
        return "nothing was prepared"
    persist(lambda: _release(reservation))
    reason = notes.get("reason")
    resumed = bool(reason) and persist(lambda: _resume(node, str(reason)))
    step_state.clear()
    return f"{node} is {'resumed' if resumed else 'as another administrator left it'}"


def _node(settings: dict[str, object]) -> str:
    return str(settings.get("node") or local_host().partition(".")[0])


def _reserve(
    settings: dict[str, object], reservation: str, node: str, not_before_ms: object
) -> None:
    """Create the reservation; one of the same name is from an earlier attempt."""
    left_s = 0
    if isinstance(not_before_ms, int):
        left_s = max(0, (not_before_ms - SystemClock().now_ms()) // 1000)
    words = (
        f"ReservationName={reservation}",
        f"StartTime=now+{left_s}seconds",
        "Duration=infinite",
        f"Users={settings.get('users', 'root')}",
        f"Nodes={node}",
        "Flags=MAINT,IGNORE_JOBS",
    )
    _run("scontrol", "create", "reservation", *words, harmless="duplicate reservation")


def _release(reservation: str) -> None:
    _run("scontrol", "delete", f"ReservationName={reservation}", harmless="reservation is invalid")


def _drain(node: str, reason: str) -> bool:
    """Drain the node unless somebody else has; return whether the drain is ours."""
    if _is_drained(node):
        return _reason(node) == reason
    step_state.write({**step_state.read(), "reason": reason})
    _run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
    return True


def _resume(node: str, reason: str) -> bool:
    """End the drain if its reason is ours; return whether it was."""
    if not _is_drained(node) or _reason(node) != reason:
        return False
    _run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    return True


def _is_drained(node: str) -> bool:
    form = _run("scontrol", "-o", "show", "node", node)
    state = re.search(r"\bState=(\S+)", form)
    if state is None:
        raise SlurmFailed(command="scontrol show node", reason=f"there is no node {node}")
    return "DRAIN" in state[1].split("+")


def _reason(node: str) -> str:
    lines = _run("sinfo", "-h", "-N", "-n", node, "-o", "%E").splitlines()
    return lines[0].strip() if lines else ""


def _is_idle(node: str) -> bool:
    return not _run("squeue", "-h", "-w", node, "-t", BUSY, "-o", "%i").strip()


def _run(*command: str, harmless: str = "") -> str:
    """Run a command and return its output; a failure with a harmless message is none.

    Raises:
        Unanswered: the controller does not answer.
        SlurmFailed: the controller refuses.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unanswered(service="Slurm", reason="the command takes too long") from error
    except FileNotFoundError as error:
        raise SlurmFailed(command=command[0], reason="the program is not installed") from error
    text = done.stderr.strip()
    if done.returncode == 0 or (harmless and harmless in text.lower()):
        return done.stdout
    reason = text or f"status {done.returncode}"
    if any(part in text.lower() for part in UNANSWERED):
        raise Unanswered(service="Slurm", reason=reason)
    raise SlurmFailed(command=" ".join(command[:3]), reason=reason)
