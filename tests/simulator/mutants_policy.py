"""Breakages of the maintenance policy and its windows, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

CHANGE = "forewarn.core.maintenance.policy_change"
ADMISSION = "forewarn.core.maintenance.admission"
POSTPONING = "forewarn.core.maintenance.postponing"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "new-policy-keeps-old-plans",
        "a policy that is applied has nothing planned again",
        ((POSTPONING, "if called or maintenance.plan_wanted or not planned:", "if planned:"),),
        caught_by="transcript F-7-window-too-short",
    ),
    Mutant(
        "new-freeze-keeps-announced",
        "announced work goes on though a new policy closes its time",
        ((ADMISSION, "if draft.policy_applied_ms < operation.created_ms:", "if operation:"),),
        caught_by="transcript F-3-policy-changed",
    ),
    Mutant(
        "same-policy-written-again",
        "a policy that changes nothing is written into history",
        ((CHANGE, "if word.policy == draft.maintenance_policy:", "if not draft:"),),
        caught_by="transcript F-3-policy-changed",
    ),
    Mutant(
        "windows-in-utc",
        "windows are read in UTC, whatever their time zone",
        (
            (
                "forewarn.planning.windows",
                "    offset = dt.datetime.fromtimestamp(at_s, zone).utcoffset()\n",
                "    offset = dt.timedelta(0)\n",
            ),
        ),
        caught_by="transcript F-7-window-across-midnight",
    ),
    Mutant(
        "freezes-forgotten",
        "the store and history forget the freezes of a policy",
        (
            (
                "forewarn.planning.policy_text",
                "        freezes=tuple(",
                "        freezes=() and tuple(",
            ),
        ),
        caught_by="transcript F-3-policy-changed",
    ),
    Mutant(
        "start-not-judged-again",
        "announced work starts though a failure has taken its room in a budget",
        (
            (
                "forewarn.core.maintenance.room",
                "if draft.usage.running(subject) + amount > limit:",
                "if not draft:",
            ),
        ),
        caught_by="transcript F-3-failure-before-the-start",
    ),
    Mutant(
        "room-wakes-nobody",
        "work that waits for room in a budget is not looked at when there is some",
        (
            (
                "forewarn.core.drafted_usage",
                "                self._draft.look_at(number)\n",
                "                pass\n",
            ),
        ),
        caught_by="transcript F-3-failure-before-the-start",
    ),
    Mutant(
        "postponing-without-limit",
        "a host may be postponed for longer than the policy allows",
        ((POSTPONING, "    if until_ms > latest_ms:\n", "    if not latest_ms:\n"),),
        caught_by="transcript F-8-refused",
    ),
    Mutant(
        "postponement-not-planned",
        "a postponed host is announced again at once",
        (
            (
                "forewarn.core.maintenance.records",
                "for each in maintenance.postponed)",
                "for each in maintenance.postponed[:0])",
            ),
        ),
        caught_by="transcript F-8-postponed",
    ),
)
