"""The shapes of answers about maintenances: what one is, its waves, and what is in its way."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from forewarn.api.schemas import (
    FLAG,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Member,
    ObjectSchema,
    words,
)
from forewarn.core.impact import Cause, Impact
from forewarn.core.maintenance import (
    Maintenance,
    MaintenanceState,
    Postponement,
)
from forewarn.core.phase import Announcing, Checking, Due, Halted
from forewarn.planning.blockers import Code
from forewarn.store.maintenances import HostState
from forewarn.validation.durations import written
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.core.maintenance import MaintenancePlan
    from forewarn.core.outlook import GroupOutlook
    from forewarn.planning.blockers import Blocker
    from forewarn.planning.plan import Wave
    from forewarn.store.maintenances import HostWork
    from forewarn.validation.fields import Schema


@value
class MaintenanceView:
    """A maintenance with how far it has come."""

    maintenance: Maintenance
    plan: MaintenancePlan | None = None
    blocker: Blocker | None = None
    counts: Mapping[HostState, int] = field(default_factory=dict)

    def count(self, state: HostState) -> int:
        """How many hosts stand so."""
        return self.counts.get(state, 0)

    @property
    def plan_in_effect(self) -> MaintenancePlan | None:
        """The plan it goes by; None while it is halted, or another plan is being made."""
        halted = isinstance(self.maintenance.phase, Checking | Halted)
        return None if halted or self.maintenance.plan_wanted else self.plan

    @property
    def next_wave_ms(self) -> int:
        """When the next wave is announced, ms since the epoch UTC; 0: unknown."""
        phase = self.maintenance.phase
        if self.maintenance.running and isinstance(phase, Due | Announcing):
            return phase.at_ms
        return 0

    @property
    def expected_end_ms(self) -> int:
        """When the last wave of the plan ends at the latest, ms since the epoch UTC; 0: unknown."""
        waves = self.plan_in_effect.waves if self.plan_in_effect else ()
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
    """A wave of a plan, or one that is over: the work there was, and what is to come."""

    number: int
    state: str
    work: tuple[HostWork, ...]
    #: Hosts that are not announced yet.
    left: tuple[str, ...]
    planned: Wave | None = None

    def count(self, state: HostState) -> int:
        """How many hosts stand so."""
        return sum(1 for each in self.work if each.state is state)

    @property
    def announced_ms(self) -> int:
        """When its first host was announced, or is to be by the plan; 0: unknown."""
        planned_ms = self.planned.shown_ms if self.planned else 0
        return min(filter(None, (each.announced_ms for each in self.work)), default=planned_ms)

    @property
    def started_ms(self) -> int:
        """When the work on its first host started; 0: not yet."""
        return min(filter(None, (each.started_ms for each in self.work)), default=0)

    @property
    def ended_ms(self) -> int:
        """When the work on its last host ended; 0: not yet."""
        return max(each.ended_ms for each in self.work) if self.state == "over" else 0


_WAVE_STATES: Schema = {"type": "string", "enum": ["over", "running", "announced", "planned"]}
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
    "Hosts that are worked on at the same time. Times to come are those of the plan.",
    (
        Member("number", WHOLE, lambda w: w.number),
        Member("state", _WAVE_STATES, lambda w: w.state),
        Member("hosts", TEXTS, lambda w: [*(each.host for each in w.work), *w.left]),
        Member(
            "counts",
            {"type": "object", "additionalProperties": WHOLE},
            lambda w: {each.value: w.count(each) for each in HostState},
            "Its hosts by state; the others are left to do.",
        ),
        Member("canary", FLAG, lambda w: w.planned.canary if w.planned else False),
        Member("announced", TIME, lambda w: written(w.announced_ms)),
        Member("started", TIME, lambda w: written(w.started_ms), "Null: not yet."),
        Member("ended", TIME, lambda w: written(w.ended_ms), "Null: not yet."),
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
        *(
            Member(each.value, WHOLE, lambda v, state=each: v.count(state))  # type: ignore[misc]
            for each in HostState
        ),
        Member("duration_s", WHOLE, lambda v: v.maintenance.duration_s, "Of each host."),
        Member("earliest_start", TIME, lambda v: written(v.maintenance.earliest_ms)),
        Member("deadline", TIME, lambda v: written(v.maintenance.deadline_ms)),
        Member("priority", WHOLE, lambda v: v.maintenance.priority),
        Member("max_failures", WHOLE, lambda v: v.maintenance.max_failures),
        Member("canary_hosts", TEXTS, lambda v: list(v.maintenance.canary_hosts)),
        Member("wave", WHOLE, lambda v: v.maintenance.wave or 0, "0: between waves."),
        Member("gate", TEXT, lambda v: v.maintenance.gate, "Checked after each wave; else empty."),
        Member(
            "checking",
            FLAG,
            lambda v: isinstance(v.maintenance.phase, Checking),
            "The gate is checked.",
        ),
        Member("plan", TEXT, lambda v: v.maintenance.plan, "Id of the plan in force."),
        Member("planning", FLAG, lambda v: v.maintenance.plan_wanted, "A plan is being made."),
        Member(
            "next_wave",
            TIME,
            lambda v: written(v.next_wave_ms),
            "When the next wave is announced.",
        ),
        Member("expected_end", TIME, lambda v: written(v.expected_end_ms), "By its plan."),
        Member(
            "postponed",
            {"type": "array", "items": POSTPONEMENT.schema()},
            lambda v: POSTPONEMENT.each(v.maintenance.postponed),
        ),
        Member("halt_reason", TEXT, lambda v: v.maintenance.halt_reason, "Why it does not go on."),
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
                WaveView(wave.number, "planned", (), wave.hosts, wave) for wave in p.waves
            ),
        ),
        Member(
            "blocked",
            {"type": "array", "items": BLOCKER.schema()},
            lambda p: BLOCKER.each(Waits(host, each) for host, each in p.body.blocked),
        ),
    ),
)

_LEFT: Schema = {"type": "string", "enum": ["left", *(each.value for each in HostState)]}
HOST_WORK: ObjectSchema[tuple[str, HostWork | None]] = ObjectSchema(
    "MaintenanceHost",
    "What became of a host of a maintenance. A time that has not come is null.",
    (
        Member("host", TEXT, lambda w: w[0]),
        Member("state", _LEFT, lambda w: w[1].state.value if w[1] else "left", "left: to be done."),
        Member("wave", WHOLE, lambda w: w[1].wave if w[1] else 0, "0: none yet."),
        Member("operation", TEXT, lambda w: f"op-{w[1].operation}" if w[1] else ""),
        Member("announced", TIME, lambda w: written(w[1].announced_ms if w[1] else 0)),
        Member("started", TIME, lambda w: written(w[1].started_ms if w[1] else 0)),
        Member("ended", TIME, lambda w: written(w[1].ended_ms if w[1] else 0)),
        Member("reason", TEXT, lambda w: w[1].reason if w[1] else "", "Why it failed."),
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
