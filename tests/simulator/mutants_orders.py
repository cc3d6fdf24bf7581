"""Breakages of what follows what: who is woken, notified, coupled or kept clear of, in which order.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

WORK, ACTS, FLEET = (
    "forewarn.core.transitions",
    "forewarn.core.handlers",
    "forewarn.core.fleet_changes",
)
APPROVALS, ORDERING = "forewarn.core.approvals", "forewarn.core.ordering"
ADMISSION, STATE, INDEXES = (
    "forewarn.core.admission",
    "forewarn.core.state",
    "forewarn.core.indexes",
)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "end-wakes-nobody",
        "work that waits for other work is not looked at when that ends",
        ((WORK, "    draft.wake(ended)\n", ""),),
        caught_by="exploration routine: F-4",
    ),
    Mutant(
        "cancel-wakes-nobody",
        "work that waits for other work is not looked at when that is cancelled",
        ((WORK, "    draft.wake(cancelled)\n", ""),),
        caught_by="exploration people: F-4",
    ),
    Mutant(
        "cancelled-deletion-couples",
        "deletions go on waiting for one of their request that was cancelled",
        ((WORK, "    wake_coupled(draft, cancelled, deletion_key(cancelled))\n", ""),),
        caught_by="exploration silence: 12",
    ),
    Mutant(
        "gone-vms-approve-never",
        "work waits for the approval of VMs that are gone",
        (
            (
                WORK,
                (
                    '    """Count what only VMs that are gone had not approved as '
                    'approved. Source: L-2, A-7."""\n'
                ),
                "    return\n",
            ),
        ),
        caught_by="transcript L-2-a-vm-is-gone",
    ),
    Mutant(
        "arrivals-on-a-failed-host-without-notice",
        "VMs that arrive on a host that has failed meanwhile get no notice",
        (
            (
                WORK,
                "    if not come:\n        return\n    events",
                "    if come:\n        return\n    events",
            ),
        ),
        caught_by="exploration failures: 1",
    ),
    Mutant(
        "nothing-looked-at-after-a-start",
        "what may go on is not looked at after a restart",
        (
            (
                ACTS,
                (
                    "        draft.look_at(operation.number)\n        if operation.state is "
                    "OperationState.ANNOUNCED and not"
                ),
                "        if operation.state is OperationState.ANNOUNCED and not",
            ),
        ),
        caught_by="exploration routine: 12",
    ),
    Mutant(
        "enabled-not-looked-at",
        "what was approved already does not start once its group is enabled",
        (
            (
                ACTS,
                "        draft.candidates.add(operation.number)\n    return ()\n",
                "        pass\n    return ()\n",
            ),
        ),
        caught_by="transcript N-3-approved-while-disabled",
    ),
    Mutant(
        "repaired-and-still-predicted",
        "a failure that was foreseen is still announced after the repair",
        (
            (
                ACTS,
                (
                    '            transitions.cancel(draft, operation, "the host is '
                    'repaired")\n            about.append'
                ),
                "            about.append",
            ),
        ),
        caught_by="transcript N-2-repaired",
    ),
    Mutant(
        "retry-counts-as-begun",
        "a retry counts as begun by the driver before it is",
        ((ACTS, 'reason="", alerted=False, begun_ms=0)', 'reason="", alerted=False)'),),
        caught_by="transcript L-8-driver-fails",
    ),
    Mutant(
        "opened-document-begins-again",
        "a VM's own document begins again in the middle of its reads",
        (
            (FLEET, "replace(shared, key=key))", "fresh(key, name))"),
            (FLEET, "import ahead_of", "import ahead_of, fresh"),
        ),
        caught_by="transcript S-3-own-document",
    ),
    Mutant(
        "coupled-whatever-their-time",
        "deletions of one request wait for each other whatever their NotBefore",
        (
            (
                INDEXES,
                "return operation.request, operation.not_before_ms",
                "return operation.request, 0",
            ),
        ),
        caught_by="exploration deletions: 12",
    ),
    Mutant(
        "destination-not-kept-clear",
        "VMs are moved to a host in the middle of work there",
        (
            (
                ADMISSION,
                '        places.append(("host", operation.destination))\n',
                "        pass\n",
            ),
        ),
        caught_by="exploration failures: 5",
    ),
    Mutant(
        "failure-aborts-nothing",
        "the driver is not notified that a failure has ended its work",
        (
            (
                WORK,
                "            end(draft, other, failed=True, reason=reason, abort=True)",
                "            end(draft, other, failed=True, reason=reason)",
            ),
        ),
        caught_by="exploration failures: L-7",
    ),
    Mutant(
        "failed-abort-owed-for-ever",
        "a driver that could not be notified is owed the call for ever",
        (
            (
                ACTS,
                "settled = replace(operation, abort_owed=False)",
                "settled = replace(operation, abort_owed=bool(report.failed))",
            ),
        ),
        caught_by="exploration failures: L-7",
    ),
    Mutant(
        "owed-abort-forgotten",
        "the state forgets operations whose driver is still to be notified",
        (
            (
                STATE,
                (
                    "            if operation.abort_owed:\n                "
                    "self.aborts[number] = operation\n"
                ),
                "",
            ),
        ),
        caught_by="exploration failures: L-7",
    ),
    Mutant(
        "moved-under-work",
        "a VM may be moved to a host that work is announced for",
        (
            (
                FLEET,
                'raise FleetBusy(kind="host", name=after.host, operation=operation.id)',
                "continue",
            ),
        ),
        caught_by="exploration fleet: 1",
    ),
    Mutant(
        "start-shown-to-nobody",
        "the start of announced work changes no document",
        ((WORK, "    _touch(draft, running, started)\n    if any(", "    if any("),),
        caught_by="exploration routine: 13",
    ),
    Mutant(
        "enabled-at-one",
        "a document begins at incarnation 1 although nothing was scheduled",
        (
            (
                "forewarn.core.document",
                "Document(incarnation=0, events=()))",
                "Document(incarnation=1, events=()))",
            ),
        ),
        caught_by="exploration silence: 2",
    ),
    Mutant(
        "disabled-not-looked-at",
        "work that waited for a group goes on waiting when that is disabled",
        (
            (
                ACTS,
                (
                    "        draft.candidates.add(operation.number)\n        "
                    "wake_coupled(draft, operation, deletion_key(operation))\n"
                ),
                "        pass\n",
            ),
        ),
        caught_by="exploration silence: 12",
    ),
    Mutant(
        "strict-counts-anybody",
        "a strict group counts the approval of VMs that are not named",
        (
            (
                APPROVALS,
                "    if vm not in event.resources or vm in event.approved_by:",
                "    if vm in event.approved_by:",
            ),
            (
                APPROVALS,
                "if set(unapproving(draft, event)) <= {vm}:",
                "if len(event.approved_by) + 1 >= len(event.resources):",
            ),
        ),
        caught_by="exploration deletions: 1",
    ),
    Mutant(
        "late-notice-not-renewed-for-long",
        "a notice that is shown ten minutes late is not given again",
        (
            (
                ACTS,
                "if operation.not_before_ms - draft.now_ms < operation.notice_s * SECOND_MS:",
                (
                    "if operation.not_before_ms - draft.now_ms < operation.notice_s * "
                    "SECOND_MS - 600_000:"
                ),
            ),
        ),
        caught_by="exploration routine: 6",
    ),
    Mutant(
        "order-forgotten-by-a-crash",
        "an order of many hosts does not go on after a restart",
        (
            (
                ACTS,
                "    draft.due_orders.update(order.number for order in draft.orders.live())\n",
                "",
            ),
        ),
        caught_by="transcript L-7-order-after-a-crash",
    ),
    Mutant(
        "order-plans-a-host-twice",
        "the last host of a portion of an order has its turn again",
        (
            (
                ORDERING,
                "planned=order.planned + len(portion),",
                "planned=order.planned + len(portion) - 1,",
            ),
        ),
        caught_by="transcript L-7-order-left-out",
    ),
    Mutant(
        "cancelled-order-starts",
        "work of an order that is cancelled starts all the same",
        ((ORDERING, "if order is None or not order.cancelled_ms:", "if order is None or order:"),),
        caught_by="transcript L-3-order-cancelled",
    ),
    Mutant(
        "order-never-ends",
        "an order of which nothing is left does not end",
        ((WORK, "        draft.touched_orders.add(ended.request)\n", "        pass\n"),),
        caught_by="transcript L-3-order-cancelled",
    ),
)
