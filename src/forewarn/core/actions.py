"""The stable action names of history entries, with the meaning of each."""

from __future__ import annotations

ACTIONS: dict[str, str] = {
    "operation.planned": "An operation was requested.",
    "operation.announced": "An operation is announced to the groups it disturbs.",
    "operation.shown": "An operation's notice is published, and its notice period starts.",
    "operation.not-shown": "Some VMs could not see an operation in time; by policy the operation "
    "may wait.",
    "operation.renewed": "An operation's notice was published too late, so its full notice "
    "starts again.",
    "operation.put-off": "An operation's NotBefore moves later because the service's clock was "
    "set forward.",
    "operation.blocked": "Other work or a late notice delays an operation beyond its NotBefore.",
    "operation.unannounced": "A failure hits VMs without notice.",
    "operation.joined": "VMs arrived on an operation's host; the operation disturbs them, too.",
    "operation.started": "An operation starts and disturbs its VMs.",
    "operation.begun": "An operation's driver has begun the work.",
    "operation.progressed": "An operation's driver has reported progress.",
    "operation.stuck": "An operation's driver has failed; an operator must decide.",
    "operation.overdue": "An operation runs longer than it should.",
    "operation.unknown": "After a restore from a backup, a driver is asked for the result of "
    "its operation.",
    "operation.retried": "An operation begins again as another attempt.",
    "operation.succeeded": "An operation is done.",
    "operation.failed": "An operation was ended as failed.",
    "operation.cancelled": "An operation was cancelled before it started.",
    "operation.aborted": "A driver was notified of its operation's end.",
    "operation.abort-failed": "A driver could not be notified of an operation's end, and is not "
    "called again.",
    "maintenance.created": "A maintenance of many hosts was created as a draft.",
    "maintenance.started": "A maintenance is running.",
    "maintenance.planned": "A maintenance has a new plan in force.",
    "maintenance.replanning": "A maintenance is planned again because its plan no longer holds.",
    "maintenance.unplanned": "No plan could be made for a maintenance; planning is tried again "
    "later.",
    "maintenance.wave-begun": "A wave begins to announce its hosts.",
    "maintenance.wave-announced": "A wave has announced each of its hosts that may be announced "
    "now.",
    "maintenance.wave-blocked": "A wave is blocked: none of its hosts may be announced now.",
    "maintenance.wave-over": "Every host of a wave has been worked on.",
    "maintenance.pause-changed": "The pause of a maintenance changes with a new policy.",
    "maintenance.gate-passed": "The check after a wave passed.",
    "maintenance.host-refilling": "The work on a host is done; its VMs return.",
    "maintenance.host-done": "The work on a host is done.",
    "maintenance.host-failed": "A host counts as a failure of its maintenance.",
    "maintenance.host-withdrawn": "The work on a host was withdrawn and must be planned again.",
    "maintenance.retried": "Failed hosts are tried again.",
    "maintenance.postponed": "A host's start was postponed at the request of its owner or an "
    "operator.",
    "maintenance.paused": "A maintenance is paused and announces no more hosts.",
    "maintenance.resumed": "A maintenance is resumed.",
    "maintenance.stopped": "A maintenance was stopped by its gate.",
    "maintenance.done": "A maintenance is done: every host has been worked on.",
    "maintenance.cancelled": "A maintenance is cancelled; running work finishes first.",
    "policy.applied": "A new maintenance policy is in force.",
    "access.granted": "A role was granted.",
    "access.revoked": "A role was removed.",
    "confirmation.asked": "A call waits for a second person to confirm it.",
    "confirmation.given": "A second person confirmed a call, and it was executed.",
    "confirmation.withdrawn": "The caller withdrew a call that waited for confirmation; it is "
    "not executed.",
    "confirmation.refused": "A second person refused a call; it is not executed.",
    "confirmation.expired": "A call expired without confirmation; it is not executed.",
    "confirmation.dropped": "A restore dropped a call that waited for confirmation; it is not "
    "executed.",
    "token.created": "A token was created.",
    "token.revoked": "A token was revoked.",
    "token.suspended": "A restore suspended a token; the token is refused.",
    "token.resumed": "An administrator resumed a suspended token.",
    "event.counted": "A VM of a strict group has approved an event; other VMs must approve, too.",
    "event.approved": "An event is approved for its group.",
    "document.updated": "A document changed; its incarnation grew.",
    "document.opened": "A new document was opened for a VM or for a group.",
    "document.dropped": "A document was closed because no VM reads it.",
    "group.enabled": "Scheduled Events is enabled for a group.",
    "group.disabled": "Scheduled Events is disabled for a group that did not poll for a day.",
    "group.restored": "After a restore from a backup, a group's incarnations exceed all "
    "earlier ones.",
    "group.added": "A group was added to the fleet.",
    "group.changed": "A group's options changed.",
    "group.removed": "A group was removed from the fleet.",
    "host.added": "A host was added to the fleet.",
    "host.changed": "A host's record changed.",
    "host.removed": "A host was removed from the fleet.",
    "host.healthy": "A host was repaired.",
    "host.degraded": "A host is predicted to fail.",
    "host.failed": "A host has failed.",
    "vm.added": "A VM was added to the fleet.",
    "vm.changed": "A VM moved, or its record changed.",
    "vm.removed": "A VM was removed from the fleet.",
}
"""Action -> its meaning. An action name is never reused for another meaning. Source: A-6."""
