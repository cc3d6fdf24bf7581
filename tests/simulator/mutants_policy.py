"""Breakages of the maintenance policy and its windows, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

CHANGE = "forewarn.core.maintenance.policy_change"
ADMISSION = "forewarn.core.maintenance.admission"
POSTPONING = "forewarn.core.maintenance.postponing"
RESTS, WAVES = "forewarn.core.owner_rest", "forewarn.core.maintenance.waves"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "new-policy-keeps-old-plans",
        "a policy that is applied has nothing planned again",
        (
            (
                POSTPONING,
                "if maintenance.plan_wanted or not maintenance.due_ms or not planned:",
                "if planned:",
            ),
        ),
        caught_by="transcript F-7-window-too-short",
    ),
    Mutant(
        "new-freeze-keeps-announced",
        "announced work goes on though a new policy closes its time",
        ((ADMISSION, "if draft.policy_applied_ms < operation.created_ms and", "if operation and"),),
        caught_by="transcript F-3-policy-changed",
    ),
    Mutant(
        "new-budget-not-for-announced",
        "announced work keeps to the budgets of the policy before",
        ((CHANGE, "        _plan_limits_again(draft, number, text)\n", ""),),
        caught_by="transcript F-3-policy-makes-room",
    ),
    Mutant(
        "tried-again-without-a-pause",
        "a host that has failed is tried again without the pause after it",
        (("forewarn.core.maintenance.commands", "min(ended_ms + pause_ms,", "min(ended_ms,"),),
        caught_by="transcript F-3-pause-before-another-try",
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
                "forewarn.core.maintenance.headroom",
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
                "forewarn.core.usage",
                "            self._draft.look_at(number)\n",
                "            pass\n",
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
        "postponed-work-stays",
        "work that was announced for a host stays so when the host is postponed",
        (
            (
                POSTPONING,
                "is not None and operation.state is OperationState.ANNOUNCED:\n        ",
                "is not None and operation.state is OperationState.FAILED:\n        ",
            ),
        ),
        caught_by="transcript F-8-postponed",
    ),
    Mutant(
        "silent-groups-pass",
        "a gate that waits for polls lets a maintenance go on without them",
        (
            (
                "forewarn.core.maintenance.targets",
                "<= polled_ms < max(ended_ms, since_ms + 1):",
                "<= polled_ms < ended_ms - before_s * SECOND_MS:",
            ),
        ),
        caught_by="world 7: F-5",
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
    Mutant(
        "owners-rest-from-planned-work",
        "owner rest does not count work by hand, failures and other maintenances",
        (
            (
                RESTS,
                "    if operation.source is",
                "    if not operation.maintenance or operation.source is",
            ),
        ),
        caught_by="transcript F-3-owner-rests-from-all-work",
    ),
    Mutant(
        "owner-rest-lost-by-a-restart",
        "after a restart nobody knows which owners were disturbed",
        (("forewarn.store.loading", "within_ms=rest_s * SECOND_MS", "within_ms=0"),),
        caught_by="transcript F-3-owner-rests-from-all-work",
    ),
    Mutant(
        "owner-rest-not-asked-again",
        "owner rest is not looked at again when a wave is announced",
        (
            (
                "forewarn.core.maintenance.admission",
                "return [(owner, ended_ms + rest_ms) for",
                "return [(owner, ended_ms) for",
            ),
        ),
        caught_by="transcript F-3-owner-rest-asked-again",
    ),
    Mutant(
        "canaries-among-all",
        "hosts are planned as if the policy wanted no canary wave, and the checker agrees",
        (
            (
                "forewarn.planning.planner",
                "            if count and (found :=",
                "            if count < 0 and (found :=",
            ),
            (
                "forewarn.planning.checker",
                "else self.policy.canary_count\n",
                "else 0\n",
            ),
        ),
        caught_by="transcript F-3-canary-first",
    ),
    Mutant(
        "gate-not-checked",
        "a wave ends without a look at the gate",
        ((WAVES, "gate_wanted=bool(maintenance.gate),", "gate_wanted=False,"),),
        caught_by="transcript F-5-gate-after-each-wave",
    ),
    Mutant(
        "gate-left-out-at-the-end",
        "the gate is not checked after the last wave",
        ((WAVES, "if over and (left or maintenance.gate):", "if over and left:"),),
        caught_by="transcript F-5-gate-after-each-wave",
    ),
    Mutant(
        "gate-stops-nothing",
        "a gate that fails is taken for one that passes",
        (
            (
                "forewarn.core.maintenance.commands",
                "        stop(draft, maintenance, failed.reason)\n",
                "        gate_passed(draft, stimuli.GatePassed(failed.maintenance))\n",
            ),
        ),
        caught_by="transcript F-5-gate-fails",
    ),
    Mutant(
        "resumed-wave-never-ends",
        "a stopped wave whose hosts are worked on is not ended after it was resumed",
        (
            (
                "forewarn.core.maintenance.commands",
                "draft.maintenances.counts(number)[1] > 0",
                "draft.maintenances.counts(number)[1] < 0",
            ),
        ),
        caught_by="transcript F-5-resumed-while-work-runs",
    ),
    Mutant(
        "dates-left-out-are-open",
        "a window opens on the dates that it leaves out",
        (
            (
                "forewarn.planning.windows",
                "not in window.weekdays or day in left_out:",
                "not in window.weekdays:",
            ),
        ),
        caught_by="transcript F-7-leap-day-left-out",
    ),
)
