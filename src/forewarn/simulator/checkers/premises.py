"""The rules that are checked, by what must have happened for each to be worth anything.

A rule whose premise never held in any world of a run was not checked. Nothing is counted in here.
"""

from __future__ import annotations

PREMISES = (
    "1: everybody approved",
    "1: its time has come",
    "2: a document changes",
    "3: an event has left a document",
    "4: an event of several VMs",
    "5: something else runs",
    "6: notice is given",
    "7: a VM asks for another's event",
    "8: a document is read",
    "8: a driver is told to begin",
    "9: a beginning is repeated",
    "10: history is replayed",
    "11: an approval is answered 200",
    "12, 13, 14: a world heals",
    "13: something runs",
    "15: a pause is over",
    "15: an owner has rested",
    "15: an owner has rested from any work",
    "15: work is announced under a budget",
    "15: work meets a window",
    "17: a maintenance waits",
    "17: approval",
    "17: budget",
    "17: fault-domain",
    "17: gate",
    "17: host-failed",
    "17: operator",
    "17: pause",
    "17: postponed",
    "17: window",
    "19: a plan takes force",
    "A-7: a strict group is asked",
    "A-8: an approved deletion starts",
    "B-2: a group is disabled",
    "C-5: a VM stands in",
    "C-5: nobody approved",
    "C-5: the leader approves",
    "D-1: the same document read again",
    "F-1: a maintenance is done",
    "F-3: a policy changes under maintenances",
    "F-3: work waits for its earliest time",
    "F-5: a gate lets a maintenance go on",
    "F-5: a gate stops a maintenance",
    "F-5: a gate waits for polls",
    "F-6: announced work is withdrawn",
    "F-6: work kept through a pause starts",
    "F-8: a host is postponed",
    "F-8: work comes after it was postponed",
    "L-1: everybody approved",
    "L-7: a driver is owed an end",
    "N-2: a failure is predicted",
    "N-4: a promised time has come",
    "O-1: an owner at the limit",
    "S-1: an older document read",
    "S-3: a VM reads its own document",
)
"""Each rule and its premise, as it is counted."""

SHELL_PREMISES = (
    "8: a node away from the service shows what begins",
    "B-1: a group is enabled after the delay",
    "E-6: a VM asks too often",
    "E-7: a document is not sent again",
    "E-9: a long poll hears of a change",
)
"""Those that only worlds with connections can meet."""
