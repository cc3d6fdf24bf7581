"""Breakages of what is shown, read and carried out, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

WORK, PLANNER = "forewarn.core.transitions", "forewarn.core.admission"
DRIVING, WIRE = "forewarn.control.driver_host", "forewarn.protocol.documents"
STEPS = "forewarn.agent.core.step_table"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "second-group-without-notice",
        "only the first group on a host gets notice of work there",
        (
            (
                WORK,
                "for group, share in shares.items()",
                "for group, share in [*shares.items()][:1]",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "host-work-unannounced",
        "updates of hosts are announced to nobody",
        (
            (
                PLANNER,
                "        return replace(operation, notice_s=notice_s)\n    vm =",
                (
                    "        silent = operation.cause is Cause.HOST_UPDATE\n"
                    "        return replace(operation, notice_s=notice_s, silent=silent)\n    vm ="
                ),
            ),
        ),
        caught_by="world 1: 6",
    ),
    Mutant(
        "event-over-domains",
        "an event of work on a host names the VMs of every host",
        (
            (
                WORK,
                "else draft.topology.vms_on(operation.host)\n    shares",
                "else tuple(sorted(draft.topology.vms))\n    shares",
            ),
        ),
        caught_by="world 1: 4",
    ),
    Mutant(
        "approved-at-birth",
        "events are born approved where the platform asks for the work",
        (
            (
                WORK,
                "        operation.source is Source.USER\n        and operation.cause in",
                "        operation.source is Source.PLATFORM\n        or operation.cause in",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "drivers-word-ignored",
        "a driver's word that it has done its work is not heard",
        ((DRIVING, "        if said.done:\n", "        if False:\n"),),
        caught_by="world 1: 13",
    ),
    Mutant(
        "driver-never-called",
        "a driver is not called to begin what starts because its time has come",
        (
            (
                WORK,
                "    draft.begin.append(running.number)\n    return running\n\n\ndef note_blocked(",
                (
                    "    if running.not_before_ms > draft.now_ms:\n"
                    "        draft.begin.append(running.number)\n    return running\n\n\n"
                    "def note_blocked("
                ),
            ),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "older-version-hides-the-start",
        "api-versions before 2020 show a started event as Scheduled",
        (
            (
                WIRE,
                '"EventStatus":{_quoted(event.status)}',
                '"EventStatus":{_quoted(event.status if version > "2020" else "Scheduled")}',
            ),
        ),
        caught_by="world 1: 7",
    ),
    Mutant(
        "time-in-another-form",
        "NotBefore is shown as an ISO 8601 time",
        ((WIRE, "timestamps.rfc1123(not_before_ms)", "timestamps.iso8601(not_before_ms)"),),
        caught_by="world 1: 7",
    ),
    Mutant(
        "recovery-not-begun",
        "an agent writes down that it recovers and does not run the hook",
        (
            (
                STEPS,
                (
                    "        held.attempt = 0\n"
                    "        self._begin(held, record.event, now_ms=now_ms)\n        return False\n"
                ),
                "        held.status = rec.RUNNING\n        return False\n",
            ),
        ),
        caught_by="world 2: C-5",
    ),
)
