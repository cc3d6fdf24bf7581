"""Breakages of maintenances: their plans, waves, budgets, gates and what they wait for.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

COMMANDS, WAVES = "forewarn.core.maintenance.commands", "forewarn.core.maintenance.waves"
ADMISSION = "forewarn.core.maintenance.admission"
WHY = "forewarn.core.maintenance.why"
TARGETS, CHANGE = "forewarn.core.maintenance.targets", "forewarn.core.maintenance.policy_change"
USAGE, HEADROOM = "forewarn.core.usage", "forewarn.core.maintenance.headroom"
PLANNING, PLANNER = "forewarn.control.planning", "forewarn.planning.planner"
TIMING, ELIGIBLE = "forewarn.planning.timing", "forewarn.planning.eligible"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "budget-not-asked-again",
        "a budget is not looked at again when a wave is announced",
        ((HEADROOM, "taken(subject) + amount > limit:", "taken(subject) > limit + 10**6:"),),
        caught_by="transcript F-3-failed-host-counts",
    ),
    Mutant(
        "failed-hosts-are-free",
        "hosts that have failed do not count against budgets when a wave is announced",
        ((USAGE, "known.health is Health.FAILED\n", "known.name is None\n"),),
        caught_by="transcript F-3-failed-host-counts",
    ),
    Mutant(
        "pause-keeps-everything",
        "what is announced stays so when a maintenance is paused",
        ((COMMANDS, "    if not word.keep_announced:\n", "    if not word:\n"),),
        caught_by="transcript F-6-paused",
    ),
    Mutant(
        "paused-work-starts",
        "announced work of a maintenance that is paused or cancelled starts",
        (
            (WAVES, "    if maintenance is None or not maintenance.live:\n", "    if not draft:\n"),
            (
                WAVES,
                "if not maintenance.running and not maintenance.keeps_announced:",
                "if not draft:",
            ),
        ),
        caught_by="transcript F-6-cancelled",
    ),
    Mutant(
        "passed-wishes-are-forgotten",
        "a time asked for that has passed holds no longer when the clock is put back",
        (
            (ADMISSION, "        return max([maintenance.earliest_ms, ", "        return max([0, "),
            (ADMISSION, "rests_until_ms, *wished_ms, *rests", "rests_until_ms, *rests"),
        ),
        caught_by="transcript F-8-postponed-before-clock-put-back",
    ),
    Mutant(
        "passed-pause-is-forgotten",
        "a pause that has passed holds no longer when the clock is put back",
        ((ADMISSION, "maintenance.rests_until_ms, *wished_ms", "*wished_ms"),),
        caught_by="transcript F-3-pause-before-clock-put-back",
    ),
    Mutant(
        "passed-rest-is-forgotten",
        "an owner's rest that has passed holds no longer when the clock is put back",
        ((ADMISSION, "*wished_ms, *rests_ms])", "*wished_ms])"),),
        caught_by="transcript F-3-rest-before-clock-put-back",
    ),
    Mutant(
        "failures-have-no-limit",
        "a maintenance goes on however many hosts have failed",
        (
            (
                WAVES,
                "    if failed > maintenance.max_failures",
                "    if failed > 10**6 + maintenance.max_failures",
            ),
        ),
        caught_by="transcript F-5-stopped-by-its-gate",
    ),
    Mutant(
        "withdrawn-host-is-done",
        "a host whose work was withdrawn counts as done",
        (
            (
                TARGETS,
                "    if operation.state is OperationState.CANCELLED:",
                "    if not operation:",
            ),
        ),
        caught_by="transcript F-6-paused",
    ),
    Mutant(
        "freed-by-withdrawal-forgotten",
        "work that waited for announced work that is withdrawn is not looked at again",
        (
            (
                "forewarn.core.step",
                "(*rest, *sorted(draft.planned | draft.candidates))",
                "(*rest,)",
            ),
        ),
        caught_by="transcript F-6-withdrawn-frees-others",
    ),
    Mutant(
        "done-with-hosts-left",
        "a maintenance is done after its first wave",
        (
            (
                WAVES,
                "    if over and (left or maintenance.gate):",
                "    if not over:\n        return\n    if over and maintenance.gate:",
            ),
            (WAVES, "    elif not left:", "    else:"),
        ),
        caught_by="transcript F-1-life-of-a-maintenance",
    ),
    Mutant(
        "early-approval-before-the-wave",
        "approved work starts before its wave may",
        ((ADMISSION, "return wave.earliest_start_ms\n", "return 0\n"),),
        caught_by="transcript F-7-window-across-midnight",
    ),
    Mutant(
        "pause-between-waves-forgotten",
        "the next wave does not wait for the pause after the last one",
        (
            (
                TIMING,
                "if not self._ends_ms and self._terms.state.paused_until_ms:",
                "if self._ends_ms < 0:",
            ),
            (
                "forewarn.planning.checker",
                "if ends else self.state.paused_until_ms",
                "if ends else 0",
            ),
        ),
        caught_by="transcript F-3-pause-of-a-new-policy",
    ),
    Mutant(
        "pause-of-the-old-policy",
        "a pause that has begun is as long as the policy before said",
        ((CHANGE, "if maintenance.rests_until_ms and longer_ms:", "if not draft:"),),
        caught_by="transcript F-3-pause-of-a-new-policy",
    ),
    Mutant(
        "plan-waits-for-the-clock",
        "no plan takes force while the policy is younger than the clock says",
        (
            (
                COMMANDS,
                "    outdated = older or maintenance.gate_wanted",
                "    outdated = plan.made_ms < draft.policy_applied_ms or maintenance.gate_wanted",
            ),
        ),
        caught_by="transcript F-3-policy-before-clock-put-back",
    ),
    Mutant(
        "planner-knows-no-fault-domains",
        "planner and its checker let a wave disturb two fault domains of a group",
        (
            (
                "forewarn.planning.fleet",
                "zones.setdefault(host.fault_zone, len(zones))",
                "zones.setdefault(('', 0), len(zones))",
            ),
            (
                "forewarn.planning.checker",
                "            if len(zones[group]) > 1:",
                "            if len(zones[group]) > 9:",
            ),
        ),
        caught_by="transcript F-1-life-of-a-maintenance",
    ),
    Mutant(
        "planner-gives-less-notice",
        "plans leave no time to announce a wave",
        (
            (
                PLANNING,
                "    return replace(base, notice_s=notice_s)\n",
                "    return replace(base, notice_s=owed_s)\n",
            ),
        ),
        caught_by="transcript F-1-life-of-a-maintenance",
    ),
    Mutant(
        "window-too-short-is-used",
        "planner and its checker have work end after its window",
        (
            (
                TIMING,
                "            if start_ms + duration_ms > closes_ms:",
                "            if start_ms > closes_ms:",
            ),
            (ELIGIBLE, "end - start >= duration_s * 1000", "end >= start"),
            (
                "forewarn.planning.checker",
                "self.hosts[host], start, entry.latest_end_ms)",
                "self.hosts[host], start, start + 1)",
            ),
        ),
        caught_by="transcript F-7-window-too-short",
    ),
    Mutant(
        "planned-every-minute",
        "hosts that cannot be done are planned again every minute for ever",
        ((COMMANDS, "SECOND_MS, PLAN_AGAIN_S_MAX))", "SECOND_MS, 0))"),),
        caught_by="transcript F-4-planned-less-often",
    ),
    Mutant(
        "late-work-has-ended",
        "plans take work that is late for work that has ended",
        (
            (PLANNING, "max(duration_s, LATE_S)", "max(duration_s, 0)"),
            (WHY, "        if refused is not None:", "        if not draft:"),
        ),
        caught_by="transcript F-4-late-work-is-named",
    ),
    Mutant(
        "stopped-waits-for-nobody",
        "a maintenance that is stopped waits for a plan, it says",
        (
            (
                WHY,
                (
                    "    halted = _why_halted(maintenance)\n    if halted is not None:\n"
                    "        return halted\n    if maintenance.gate_wanted:"
                ),
                "    if maintenance.gate_wanted:",
            ),
        ),
        caught_by="transcript F-5-stopped-by-its-gate",
    ),
    Mutant(
        "another-blocker-named",
        "a blocked maintenance names an operator in place of its first blocker",
        (
            (
                WHY,
                "            return _of_host(*blocked[0])",
                "            return Blocker(Code.OPERATOR, maintenance.id, 0)",
            ),
        ),
        caught_by="transcript F-4-plan-impossible",
    ),
    Mutant(
        "failed-hosts-left-out",
        "a maintenance that goes on after it was stopped leaves out the hosts that failed",
        ((COMMANDS, "        if failed:\n", "        if not draft:\n"),),
        caught_by="transcript F-5-stopped-by-its-gate",
    ),
    Mutant(
        "short-window-called-closed",
        "a window that is too short for the work is said to be closed",
        ((ELIGIBLE, "Code.WINDOW_TOO_SHORT if calendar.spans else Code.WINDOW", "Code.WINDOW"),),
        caught_by="transcript F-7-window-too-short",
    ),
)
