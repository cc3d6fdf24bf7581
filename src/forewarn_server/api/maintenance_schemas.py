"""Response schemas of maintenances, waves and blockers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import Schema
from forewarn_base.values import value
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.maintenance import (
    Announcing,
    Checking,
    Due,
    Maintenance,
    MaintenancePlan,
    MaintenanceState,
    Postponement,
)
from forewarn_core.fleet.naming import RACK
from forewarn_core.fleet.outlook import GroupOutlook, HostRoom
from forewarn_core.fleet.topology import Host
from forewarn_core.planning.durations import LearnedDuration, duration_text
from forewarn_core.planning.plan import Wave
from forewarn_core.rules.blockers import Blocker, every_code
from forewarn_server.api.schemas import (
    FLAG,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Member,
    ObjectSchema,
    list_of,
    words,
)
from forewarn_store.maintenances import HostState, HostWork


@value
class MaintenanceView:
    """A maintenance with its progress."""

    maintenance: Maintenance
    plan: MaintenancePlan | None = None
    blocker: Blocker | None = None
    counts: Mapping[HostState, int] = field(default_factory=dict)

    def count(self, state: HostState) -> int:
        """Number of hosts in a state."""
        return self.counts.get(state, 0)

    @property
    def shown_plan(self) -> MaintenancePlan | None:
        """The plan in force; None while a new one is computed, and after the end.

        A paused or stopped maintenance shows the plan that it had; once resumed, it is planned
        again.
        """
        maintenance = self.maintenance
        return self.plan if maintenance.live and not maintenance.plan_wanted else None

    @property
    def next_wave_ms(self) -> int:
        """Announcement of the next wave, ms since the epoch UTC; 0: unknown."""
        phase = self.maintenance.phase
        if self.maintenance.running and isinstance(phase, Due | Announcing):
            return phase.at_ms
        return 0

    @property
    def expected_end_ms(self) -> int:
        """Latest end of the plan's last wave, ms since the epoch UTC; 0: unknown."""
        waves = self.shown_plan.waves if self.shown_plan else ()
        return waves[-1].latest_end_ms if waves else 0


@value
class Waits:
    """A host, wave or maintenance with its first blocker."""

    name: str
    blocker: Blocker
    #: Number of the blocked wave; 0 for a host or a maintenance.
    wave: int = 0

    @property
    def sentence(self) -> str:
        """Return the description of the blocker for operators."""
        if self.wave:
            return self.blocker.sentence(str(self.wave), "wave")
        return self.blocker.sentence(self.name)


@value
class WaveView:
    """A past or planned wave with its work."""

    number: int
    state: str
    work: tuple[HostWork, ...]
    #: Hosts that are not announced yet.
    left: tuple[str, ...]
    planned: Wave | None = None
    #: None: nothing is planned, or the maintenance is paused or stopped.
    waits: Blocker | None = None

    def count(self, state: HostState) -> int:
        """Number of hosts in a state."""
        return sum(1 for each in self.work if each.state is state)

    @property
    def announced_ms(self) -> int:
        """Actual or planned announcement of the first host, ms since the epoch UTC; 0: unknown."""
        planned_ms = self.planned.shown_ms if self.planned else 0
        return min(filter(None, (each.announced_ms for each in self.work)), default=planned_ms)

    @property
    def started_ms(self) -> int:
        """Start of the work on the wave's first host, ms since the epoch UTC; 0: not started."""
        return min(filter(None, (each.started_ms for each in self.work)), default=0)

    @property
    def ended_ms(self) -> int:
        """End of the work on the wave's last host, ms since the epoch UTC; 0: not ended."""
        return max(each.ended_ms for each in self.work) if self.state == "over" else 0


_WAVE_STATES: Schema = {"type": "string", "enum": ["over", "running", "announced", "planned"]}
BLOCKER: ObjectSchema[Waits] = ObjectSchema(
    "Blocker",
    "The first blocker of a host, wave or maintenance.",
    Member("name", TEXT, meaning="The waiting host, wave or maintenance."),
    Member(
        "code",
        {"type": "string", "enum": [each.value for each in every_code()]},
        "blocker.code",
        "Stable code of the blocker.",
    ),
    Member(
        "subject", TEXT, "blocker.subject", "Host, operation or budget that causes the blocker."
    ),
    Member("since", TIME, "blocker.since_ms"),
    Member("clears", TIME, "blocker.clears_ms", "Null: unknown."),
    Member("text", TEXT, "sentence", "Description of the blocker for operators."),
)
POSTPONEMENT: ObjectSchema[Postponement] = ObjectSchema(
    "Postponement",
    "A granted later start of one host.",
    Member("host", TEXT),
    Member("until", TIME, "until_ms", "Earliest start."),
    Member("by", TEXT, meaning="The requesting principal."),
    Member("reason", TEXT, meaning="Reason, for operators."),
)
WAVE: ObjectSchema[WaveView] = ObjectSchema(
    "Wave",
    "Hosts with work at the same time. Times in the future are planned times.",
    Member("number", WHOLE),
    Member("state", _WAVE_STATES),
    Member("hosts", TEXTS, lambda w: [*(each.host for each in w.work), *w.left]),
    Member(
        "counts",
        {"type": "object", "additionalProperties": WHOLE},
        lambda w: {each.value: w.count(each) for each in HostState},
        "Number of the wave's hosts by state. The counts exclude hosts that are not announced yet.",
    ),
    Member("canary", FLAG, lambda w: w.planned.canary if w.planned else False),
    Member("announced", TIME, "announced_ms"),
    Member("started", TIME, "started_ms", "Start of the work; null: not started."),
    Member("ended", TIME, "ended_ms", "End of the work; null: not ended."),
    Member(
        "earliest_start", TIME, lambda w: written(w.planned.earliest_start_ms if w.planned else 0)
    ),
    Member("latest_start", TIME, lambda w: written(w.planned.latest_start_ms if w.planned else 0)),
    Member("latest_end", TIME, lambda w: written(w.planned.latest_end_ms if w.planned else 0)),
    Member(
        "waits_for",
        {"anyOf": [BLOCKER.schema(), {"type": "null"}]},
        lambda w: BLOCKER.of(Waits(f"wave {w.number}", w.waits, w.number)) if w.waits else None,
    ),
)
LEARNED: ObjectSchema[LearnedDuration] = ObjectSchema(
    "LearnedDuration",
    "How long earlier work of the same kind took, which counts instead of the requested duration.",
    Member("label", TEXT, meaning="Label of the hosts as `key=value`; empty: all hosts."),
    Member("percent", WHOLE, meaning="Percentage of the operations that took at most this long."),
    Member("samples", WHOLE, meaning="Number of earlier operations."),
    Member("duration_s", WHOLE),
    Member("text", TEXT, duration_text, "Description for operators."),
)
MAINTENANCE: ObjectSchema[MaintenanceView] = ObjectSchema(
    "Maintenance",
    "Work on many hosts. Unknown times are null.",
    Member("id", TEXT, "maintenance.id", "Display name of the maintenance, such as m-12."),
    Member("state", words(MaintenanceState), "maintenance.state"),
    Member("cause", words(Cause), "maintenance.cause"),
    Member("impact", words(Impact), "maintenance.impact"),
    Member("reason", TEXT, "maintenance.reason", "Reason, for operators."),
    Member("hosts", WHOLE, lambda v: len(v.maintenance.hosts), "Number of hosts."),
    *(
        Member(each.value, WHOLE, lambda v, state=each: v.count(state))  # type: ignore[misc]
        for each in HostState
    ),
    Member("duration_s", WHOLE, "maintenance.duration_s", "Duration of the work on each host."),
    Member(
        "durations",
        list_of(LEARNED.schema()),
        lambda v: LEARNED.each(v.shown_plan.body.learned if v.shown_plan else ()),
        "Durations by label of the hosts that count instead of `duration_s`.",
    ),
    Member(
        "move_s",
        WHOLE,
        "maintenance.move_s",
        "Time in which VMs leave a host before its work starts; 0: VMs stay on the host.",
    ),
    Member(
        "return_s",
        WHOLE,
        "maintenance.return_s",
        "Time in which VMs return to a host after its work, including notice; 0: VMs do not "
        "return.",
    ),
    Member("earliest_start", TIME, "maintenance.earliest_ms"),
    Member("deadline", TIME, "maintenance.deadline_ms"),
    Member("priority", WHOLE, "maintenance.priority"),
    Member("max_failures", WHOLE, "maintenance.max_failures"),
    Member("canary_hosts", TEXTS, "maintenance.canary_hosts"),
    Member(
        "failure_domain",
        TEXT,
        "maintenance.failure_domain",
        "Label whose values are worked on one at a time; may be empty.",
    ),
    Member("wave", WHOLE, lambda v: v.maintenance.wave or 0, "0: between waves."),
    Member(
        "gate", TEXT, "maintenance.gate", "Gate that Forewarn checks after each wave; may be empty."
    ),
    Member(
        "checking",
        FLAG,
        lambda v: isinstance(v.maintenance.phase, Checking),
        "Whether a check of the gate is running.",
    ),
    Member("plan", TEXT, "maintenance.plan", "Id of the plan in force."),
    Member("planning", FLAG, "maintenance.plan_wanted", "Whether Forewarn is computing a plan."),
    Member("next_wave", TIME, "next_wave_ms", "Time of the next wave's announcement."),
    Member(
        "expected_end",
        TIME,
        "expected_end_ms",
        "Planned end of the maintenance by its last plan.",
    ),
    Member(
        "postponed",
        list_of(POSTPONEMENT.schema()),
        lambda v: POSTPONEMENT.each(v.maintenance.postponed),
    ),
    Member("halt_reason", TEXT, "maintenance.halt_reason", "Reason for the pause or stop."),
    Member(
        "waits_for",
        {"anyOf": [BLOCKER.schema(), {"type": "null"}]},
        lambda v: BLOCKER.of(Waits(v.maintenance.id, v.blocker)) if v.blocker else None,
    ),
    Member("created", TIME, "maintenance.created_ms"),
    Member("started", TIME, "maintenance.started_ms"),
    Member("ended", TIME, "maintenance.ended_ms"),
    Member("actor", TEXT, "maintenance.actor", "Actor who requested the maintenance."),
)
#: Number of a wave, VM, the VM's old host, the VM's new host.
MOVE: ObjectSchema[tuple[int, str, str, str]] = ObjectSchema(
    "Move",
    "A VM that moves permanently before the work on its host.",
    Member("wave", WHOLE, lambda m: m[0]),
    Member("vm", TEXT, lambda m: m[1]),
    Member("from", TEXT, lambda m: m[2]),
    Member(
        "to", TEXT, lambda m: m[3], "New host of the VM; empty: the driver's scheduler chooses."
    ),
)
ROOM: ObjectSchema[HostRoom] = ObjectSchema(
    "HostRoom",
    "Memory in MiB that VMs use on a host in a wave that moves VMs.",
    Member("wave", WHOLE),
    Member("host", TEXT),
    Member("memory_mib", WHOLE, meaning="0: unknown."),
    Member("before_mib", WHOLE),
    Member("during_mib", WHOLE, meaning="Used memory, including arriving and leaving VMs."),
    Member("after_mib", WHOLE),
)
PLAN: ObjectSchema[MaintenancePlan] = ObjectSchema(
    "Plan",
    "The waves of a plan, and the hosts without a wave.",
    Member("id", TEXT),
    Member("parent", TEXT, meaning="Id of the replaced plan."),
    Member("made", TIME, "made_ms"),
    Member("durations", list_of(LEARNED.schema()), lambda p: LEARNED.each(p.body.learned)),
    Member("least_waves", WHOLE, "body.bound.waves", "Least number of waves of any plan."),
    Member("argument", TEXT, "body.bound.argument", "Why not."),
    Member(
        "waves",
        list_of(WAVE.schema()),
        lambda p: WAVE.each(
            WaveView(wave.number, "planned", (), wave.hosts, wave) for wave in p.waves
        ),
    ),
    Member(
        "moves",
        list_of(MOVE.schema()),
        lambda p: MOVE.each(
            (wave.number, vm, host, to)
            for wave in p.waves
            for host in wave.hosts
            for vm, to in p.body.moves.get(host, ())
        ),
    ),
    Member(
        "blocked",
        list_of(BLOCKER.schema()),
        lambda p: BLOCKER.each(Waits(host, each) for host, each in p.body.blocked),
    ),
)

_LEFT: Schema = {"type": "string", "enum": ["left", *(each.value for each in HostState)]}
HOST_WORK: ObjectSchema[tuple[str, HostWork | None, Host | None]] = ObjectSchema(
    "MaintenanceHost",
    "A host of a maintenance. Times in the future are null.",
    Member("host", TEXT, lambda w: w[0]),
    Member("zone", TEXT, lambda w: w[2].zone if w[2] else ""),
    Member("rack", TEXT, lambda w: dict(w[2].labels).get(RACK, "") if w[2] else "", "Its label."),
    Member(
        "state",
        _LEFT,
        lambda w: w[1].state.value if w[1] else "left",
        "State of the host; `left` means that it is not announced yet.",
    ),
    Member(
        "wave",
        WHOLE,
        lambda w: w[1].wave if w[1] else 0,
        "Number of the host's wave; 0: no wave yet.",
    ),
    Member("operation", TEXT, lambda w: f"op-{w[1].operation}" if w[1] else ""),
    Member("announced", TIME, lambda w: written(w[1].announced_ms if w[1] else 0)),
    Member("started", TIME, lambda w: written(w[1].started_ms if w[1] else 0)),
    Member("ended", TIME, lambda w: written(w[1].ended_ms if w[1] else 0)),
    Member("reason", TEXT, lambda w: w[1].reason if w[1] else "", "Reason of the host's failure."),
)
OUTLOOK: ObjectSchema[GroupOutlook] = ObjectSchema(
    "GroupOutlook",
    "Availability of a group during a plan, without other failures.",
    Member("group", TEXT),
    Member("owner", TEXT, meaning="Owner of the group; may be empty."),
    Member("vms", WHOLE),
    Member("up_before", WHOLE, meaning="Number of undisturbed VMs now."),
    Member("up_least", WHOLE, meaning="Number of undisturbed VMs in the worst wave."),
    Member("waves", WHOLE, meaning="Numbers of the waves that disturb the group."),
    Member(
        "first_notice",
        TIME,
        "first_notice_ms",
        "First and last time at which the group's document shows an event.",
    ),
    Member("last_notice", TIME, "last_notice_ms"),
)
