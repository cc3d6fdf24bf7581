"""systemd: stops or starts units for the duration of an event, and reverses this afterwards.

Afterwards, the step starts only units that were active, or stops only units that the step started.
"""

from __future__ import annotations

import subprocess

from forewarn.agent.json_fields import words
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.wait_until import Unanswered, persist
from forewarn_base.errors import PeerError

INACTIVE_STATUSES = (3, 4)  # `is-active` of a unit that does not run, or that is unknown
#: Parts of systemctl's messages, in lower case, when the service manager does not answer.
NO_BUS = ("failed to connect to", "failed to get d-bus", "connection timed out", "connection reset")


class SystemctlFailed(PeerError):
    """A systemctl command failed."""

    code = "systemctl-failed"
    message = "systemctl {words} failed: {reason}."
    advice = "Check `systemctl status` and the journal of the unit."


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Stop the units, or start the units with `action = "start"`; record the changed units."""
    units = words(settings, "units")
    action = settings.get("action", "stop")
    if action not in (
        "stop",
        "start",
    ):  # unknown words are errors, because a wrong start of units can do harm
        raise SystemctlFailed(words=str(action), reason="the action must be stop or start")
    stops = action == "stop"
    changed = [unit for unit in units if _is_active(unit, settings) == stops]
    noted = step_state.read().get("units", [])
    assert isinstance(noted, list)
    step_state.write({"units": sorted({*noted, *changed}), "stops": stops})
    if changed:
        _systemctl(settings, "stop" if stops else "start", *changed)
    return f"{'stopped' if stops else 'started'}: {', '.join(changed) or 'nothing'}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Start the stopped units again, or stop the started ones."""
    noted = step_state.read()
    units = noted.get("units", [])
    assert isinstance(units, list)
    verb = "start" if noted.get("stops", True) else "stop"
    if units:
        _systemctl(settings, verb, *units)
    step_state.clear()
    return f"{verb}: {', '.join(units) or 'nothing'}"


def _is_active(unit: str, settings: dict[str, object]) -> bool:
    """Return whether a unit runs; a service manager that gives no answer is asked again."""
    words = ("is-active", "--quiet", unit)
    return persist(lambda: _run(settings, words, (0, *INACTIVE_STATUSES))) == 0


def _systemctl(settings: dict[str, object], *words: str) -> None:
    persist(lambda: _run(settings, words, (0,)))


def _run(settings: dict[str, object], words: tuple[str, ...], known: tuple[int, ...]) -> int:
    """Run systemctl and return its exit status.

    Raises:
        Unanswered: the service manager does not answer.
        SystemctlFailed: the exit status is not in `known`.
    """
    user = ("--user",) if settings.get("user") else ()
    command = ("systemctl", *user, "--no-ask-password", words[0], *words[1:])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in known:
        return done.returncode
    reason = done.stderr.strip() or f"status {done.returncode}"
    if any(text in reason.lower() for text in NO_BUS):
        raise Unanswered(service="systemd", reason=reason)
    raise SystemctlFailed(words=" ".join(words), reason=reason)
