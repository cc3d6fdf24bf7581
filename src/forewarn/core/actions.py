"""The stable names of what history tells of, and what each means.

Nothing else may go in here: command lines read it before anything is loaded.
"""

from __future__ import annotations

ACTIONS: dict[str, str] = {
    "operation.planned": "Work was asked for.",
    "operation.announced": "It is announced to the groups it disturbs.",
    "operation.shown": "Its notice is published, and counts from here.",
    "operation.not-shown": "Some nodes did not show it to their VMs in time; it goes on.",
    "operation.renewed": "Its notice was shown too late, and is given anew.",
    "operation.put-off": "Its NotBefore is later: the service's clock was put ahead.",
    "operation.blocked": "Its NotBefore has come, and other work or its notice keeps it waiting.",
    "operation.unannounced": "A failure hits VMs without notice.",
    "operation.joined": "VMs have arrived on its host and are hit by it, too.",
    "operation.started": "It is running: VMs are disturbed from here.",
    "operation.begun": "Its driver has begun it.",
    "operation.progressed": "Its driver has told how far it is.",
    "operation.stuck": "Its driver has failed, and people must decide.",
    "operation.overdue": "It runs longer than it should.",
    "operation.retried": "It is begun again, as another attempt.",
    "operation.succeeded": "It is done.",
    "operation.failed": "It was given up.",
    "operation.cancelled": "It will not happen.",
    "operation.aborted": "Its driver was told that it ended without it.",
    "operation.abort-failed": "Its driver could not be told so, and is not told again.",
    "event.counted": "A VM of a strict group has approved, others have not yet.",
    "event.approved": "An event is approved for its group.",
    "document.updated": "A document shows something else, at another incarnation.",
    "document.opened": "A VM, or a group's VMs, read a document of their own from here.",
    "document.dropped": "A document is read by nobody any more.",
    "group.enabled": "Scheduled Events is enabled for a group.",
    "group.disabled": "It is disabled: the group was silent for a day.",
    "group.added": "A group is part of the fleet.",
    "group.changed": "A group has other options.",
    "group.removed": "A group is no longer part of the fleet.",
    "host.added": "A host is part of the fleet.",
    "host.changed": "A host has other facts.",
    "host.removed": "A host is no longer part of the fleet.",
    "host.healthy": "A host was repaired.",
    "host.degraded": "A host is predicted to fail.",
    "host.failed": "A host has failed.",
    "vm.added": "A VM is part of the fleet.",
    "vm.changed": "A VM has moved, or has other facts.",
    "vm.removed": "A VM is no longer part of the fleet.",
}
"""Action -> its meaning. A name is never given to anything else. Source: A-6."""
