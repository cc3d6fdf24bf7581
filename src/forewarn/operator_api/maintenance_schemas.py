"""The shapes of answers about maintenances: what one is, its waves, and what is in its way.

Nothing is looked up in here.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from forewarn.core.impact import Cause, Impact
from forewarn.core.maintenance.records import (
    Maintenance,
    MaintenanceState,
    Postponement,
    Target,
    TargetState,
)
from forewarn.operator_api.schemas import (
    FLAG,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Member,
    ObjectSchema,
    words,
)
from forewarn.planning.blockers import Code
from forewarn.validation.durations import written
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.core.maintenance.outlook import GroupOutlook
    from forewarn.core.maintenance.records import MaintenancePlan
    from forewarn.planning.blockers import Blocker
    from forewarn.planning.plan import Wave
    from forewarn.validation.fields import Schema


@value
class MaintenanceView:
    """A maintenance with how far it has come."""

    maintenance: Maintenance
    targets: Mapping[str, Target] = field(default_factory=dict)
    plan: MaintenancePlan | None = None
    blocker: Blocker | None = None

    def count(self, state: TargetState) -> int:
        """How many hosts stand so."""
        return sum(1 for target in self.targets.values() if target.state is state)

    @property
    def expected_end_ms(self) -> int:
        """When the last wave of the plan ends at the latest, ms since the epoch UTC; 0: unknown."""
        waves = self.plan.waves if self.plan and self.maintenance.live else ()
        return waves[-1].latest_end_ms if waves else 0


@value
class Waits:
    """One host, a wave or a maintenance, with what it waits for first."""

    name: str
    blocker: Blocker
    #: Number of the wave; 0: it is a host or a maintenance.
    wave: int = 0

    @property
    def sentence(self) -> str:
        """Say it for people."""
        if self.wave:
            return self.blocker.sentence(str(self.wave), "wave")
        return self.blocker.sentence(self.name)


@value
class WaveView:
    """A wave of a plan, or one that is over, which has no times any more."""

    number: int
    state: str
    hosts: tuple[str, ...]
    planned: Wave | None = None
    done: int = 0
    failed: int = 0


_WAVE_STATES: Schema = {"type": "string", "enum": ["over", "working", "planned"]}
BLOCKER: ObjectSchema[Waits] = ObjectSchema(
    "Blocker",
    "What a host, a wave or a maintenance waits for first.",
    (
        Member("name", TEXT, lambda w: w.name, "Who waits: a host, a wave or a maintenance."),
        Member("code", words(Code), lambda w: w.blocker.code.value, "Stable name of the kind."),
        Member("subject", TEXT, lambda w: w.blocker.subject, "What it waits for."),
        Member("since", TIME, lambda w: written(w.blocker.since_ms)),
        Member("clears", TIME, lambda w: written(w.blocker.clears_ms), "Null: nobody can say."),
        Member("text", TEXT, lambda w: w.sentence, "The sentence for people."),
    ),
)
POSTPONEMENT: ObjectSchema[Postponement] = ObjectSchema(
    "Postponement",
    "A later start that was granted for one host.",
    (
        Member("host", TEXT, lambda p: p.host),
        Member("until", TIME, lambda p: written(p.until_ms), "It does not start before."),
        Member("by", TEXT, lambda p: p.by, "At whose request."),
        Member("reason", TEXT, lambda p: p.reason, "Why, for people."),
    ),
)
WAVE: ObjectSchema[WaveView] = ObjectSchema(
    "Wave",
    "Hosts that are worked on at the same time. Times are those of the plan.",
    (
        Member("number", WHOLE, lambda w: w.number),
        Member("state", _WAVE_STATES, lambda w: w.state),
        Member("hosts", TEXTS, lambda w: list(w.hosts)),
        Member("done", WHOLE, lambda w: w.done),
        Member("failed", WHOLE, lambda w: w.failed),
        Member("canary", FLAG, lambda w: w.planned.canary if w.planned else False),
        Member("announced", TIME, lambda w: written(w.planned.shown_ms if w.planned else 0)),
        Member(
            "earliest_start",
            TIME,
            lambda w: written(w.planned.earliest_start_ms if w.planned else 0),
        ),
        Member(
            "latest_start", TIME, lambda w: written(w.planned.latest_start_ms if w.planned else 0)
        ),
        Member("latest_end", TIME, lambda w: written(w.planned.latest_end_ms if w.planned else 0)),
        Member(
            "waits_for",
            {"anyOf": [BLOCKER.schema(), {"type": "null"}]},
            lambda w: (
                BLOCKER.of(Waits(f"wave {w.number}", w.planned.waits, w.number))
                if w.planned
                else None
            ),
        ),
    ),
)
MAINTENANCE: ObjectSchema[MaintenanceView] = ObjectSchema(
    "Maintenance",
    "Work on many hosts. A time that has not come yet is null.",
    (
        Member("id", TEXT, lambda v: v.maintenance.id, "Its name for people: m-12."),
        Member("state", words(MaintenanceState), lambda v: v.maintenance.state.value),
        Member("cause", words(Cause), lambda v: v.maintenance.cause.value),
        Member("impact", words(Impact), lambda v: v.maintenance.impact.value),
        Member("reason", TEXT, lambda v: v.maintenance.reason, "Why, for people."),
        Member("hosts", WHOLE, lambda v: len(v.maintenance.hosts), "How many it names."),
        Member("done", WHOLE, lambda v: v.count(TargetState.DONE)),
        Member("working", WHOLE, lambda v: v.count(TargetState.WORKING), "Announced or running."),
        Member("failed", WHOLE, lambda v: v.count(TargetState.FAILED)),
        Member("duration_s", WHOLE, lambda v: v.maintenance.duration_s, "Of each host."),
        Member("earliest_start", TIME, lambda v: written(v.maintenance.earliest_ms)),
        Member("deadline", TIME, lambda v: written(v.maintenance.deadline_ms)),
        Member("priority", WHOLE, lambda v: v.maintenance.priority),
        Member("max_failures", WHOLE, lambda v: v.maintenance.max_failures),
        Member("canary_hosts", TEXTS, lambda v: list(v.maintenance.canary_hosts)),
        Member("wave", WHOLE, lambda v: v.maintenance.wave, "0: between waves."),
        Member("gate", TEXT, lambda v: v.maintenance.gate, "Checked after each wave; else empty."),
        Member("checking", FLAG, lambda v: v.maintenance.gate_wanted, "The gate is checked."),
        Member("plan", TEXT, lambda v: v.maintenance.plan, "Id of the plan in force."),
        Member("planning", FLAG, lambda v: v.maintenance.plan_wanted, "A plan is being made."),
        Member(
            "next_wave",
            TIME,
            lambda v: written(0 if v.maintenance.plan_due else v.maintenance.due_ms),
            "When the next wave is announced.",
        ),
        Member("expected_end", TIME, lambda v: written(v.expected_end_ms), "By its plan."),
        Member(
            "postponed",
            {"type": "array", "items": POSTPONEMENT.schema()},
            lambda v: POSTPONEMENT.each(v.maintenance.postponed),
        ),
        Member("halted_by", TEXT, lambda v: v.maintenance.halted_by, "Why it does not go on."),
        Member("created", TIME, lambda v: written(v.maintenance.created_ms)),
        Member("started", TIME, lambda v: written(v.maintenance.started_ms)),
        Member("ended", TIME, lambda v: written(v.maintenance.ended_ms)),
        Member("actor", TEXT, lambda v: v.maintenance.actor, "Who asked for it."),
    ),
)
PLAN: ObjectSchema[MaintenancePlan] = ObjectSchema(
    "Plan",
    "Who is done when, and who cannot be done.",
    (
        Member("id", TEXT, lambda p: p.id),
        Member("parent", TEXT, lambda p: p.parent, "The plan it takes the place of."),
        Member("made", TIME, lambda p: written(p.made_ms)),
        Member("least_waves", WHOLE, lambda p: p.body.bound.waves, "No plan has fewer."),
        Member("argument", TEXT, lambda p: p.body.bound.argument, "Why not."),
        Member(
            "waves",
            {"type": "array", "items": WAVE.schema()},
            lambda p: WAVE.each(
                WaveView(wave.number, "planned", wave.hosts, wave) for wave in p.waves
            ),
        ),
        Member(
            "blocked",
            {"type": "array", "items": BLOCKER.schema()},
            lambda p: BLOCKER.each(Waits(host, each) for host, each in p.body.blocked),
        ),
    ),
)

OUTLOOK: ObjectSchema[GroupOutlook] = ObjectSchema(
    "GroupOutlook",
    "How a group fares while a plan is carried out, if nothing else fails.",
    (
        Member("group", TEXT, lambda o: o.group),
        Member("owner", TEXT, lambda o: o.owner, "Whose it is; empty: nobody's."),
        Member("vms", WHOLE, lambda o: o.vms),
        Member("up_before", WHOLE, lambda o: o.up_before, "VMs that are undisturbed now."),
        Member("up_least", WHOLE, lambda o: o.up_least, "VMs that are left in the worst wave."),
        Member("waves", WHOLE, lambda o: o.waves, "Waves that disturb it."),
        Member("first_notice", TIME, lambda o: written(o.first_notice_ms), "By its documents."),
        Member("last_notice", TIME, lambda o: written(o.last_notice_ms)),
    ),
)
