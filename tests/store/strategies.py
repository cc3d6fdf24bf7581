"""Valid records of every kind, and fleets of them, as hypothesis strategies."""

import json
from typing import TypeVar

from hypothesis import strategies as st

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.values import replace
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal, Role
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.deferrals import Deferral, DeferralState
from forewarn_core.fleet.document import Departure, Enrolment, View
from forewarn_core.fleet.impact import (
    TERMINATE_NOTICE_S_MAX,
    TERMINATE_NOTICE_S_MIN,
    Cause,
    Impact,
    Source,
)
from forewarn_core.fleet.lifecycle import (
    Alert,
    Event,
    EventState,
    Execution,
    FollowedBy,
    MaintenanceWindow,
    Notice,
    Operation,
    OperationState,
)
from forewarn_core.fleet.maintenance import (
    Announcing,
    Checking,
    Declaration,
    Due,
    Halted,
    Maintenance,
    MaintenancePlan,
    MaintenanceState,
    Planning,
    Target,
    TargetState,
    Working,
)
from forewarn_core.fleet.naming import DOMAIN_MAX, MEMORY_MIB_MAX
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy
from forewarn_core.fleet.records import Record, key_of
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.ticket import (
    ENDED_TICKET,
    HardwareCategory,
    Ticket,
    TicketState,
    TicketTarget,
    TicketText,
    TicketType,
)
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Topology, Vm
from forewarn_core.planning.plan_text import PlanBody, read_plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import every_waiver
from forewarn_core.rules.hand_back import Severity

R = TypeVar("R", Host, Group, Vm, Operation, Event)

WORDS = ("a", "web_0", "db-1.local", "_x", "Z" * 128)
names = st.sampled_from(WORDS) | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
#: What a person may write: any script, quotes, marks that mean something to SQL; no NUL.
prose = st.text(
    st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40
) | st.sampled_from(("", "'; DROP TABLE vm; --", "%s ? :name {x}", '"\\', "ä€😀", "\t\r\n"))
labels = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20) | st.just("a 'b'")
times = st.integers(0, 2**53) | st.just(0)
#: A time that a row keeps as 0 while there is none.
later_times = st.none() | st.integers(1, 2**53)
guids = st.uuids().map(lambda guid: str(guid).upper())
name_lists = st.lists(names, max_size=4, unique=True).map(lambda found: tuple(sorted(found)))

hosts = st.builds(
    Host,
    name=names,
    fault_domain=st.integers(0, DOMAIN_MAX),
    update_domain=st.integers(0, DOMAIN_MAX),
    zone=labels,
    driver=labels,
    health=st.sampled_from(Health),
    memory_mib=st.integers(0, MEMORY_MIB_MAX),
)
groups = st.builds(
    Group,
    name=names,
    kind=st.sampled_from(GroupKind),
    owner=labels,
    fault_domain_count=st.integers(0, 5),
    strict_approval=st.booleans(),
    automatic_approval=st.frozensets(st.sampled_from([Impact.REBOOT, Impact.REDEPLOY])),
    terminate_notice_s=st.just(0) | st.integers(TERMINATE_NOTICE_S_MIN, TERMINATE_NOTICE_S_MAX),
    reimage_notice=st.booleans(),
    switched_off=st.sampled_from([(), (("terminate_notice", "PT7M"),)]),
    keep_apart=st.sampled_from([(), ("rack",)]),
    keep_together=st.sampled_from([(), ("row", "power")]),
)
vms = st.builds(
    Vm,
    name=names,
    host=names,
    group=names,
    size=labels,
    memory_mib=st.integers(0, MEMORY_MIB_MAX),
    gpu=st.booleans(),
    spot=st.booleans(),
    addresses=st.lists(st.ip_addresses().map(str), max_size=3, unique=True).map(tuple),
    interface=labels,
    instance_id=labels,
    vm_id=labels,
    os_type=labels,
    location=labels,
    resource_group=labels,
    subscription=labels,
    tags=st.lists(st.tuples(labels, labels), max_size=3).map(tuple),
    instance=st.lists(st.tuples(labels, labels), max_size=3).map(tuple),
)
#: Only announced work has one, and operations of any state are made here.
notices = st.builds(
    Notice,
    announced_ms=st.integers(1, 2**53),
    not_before_ms=st.integers(1, 2**53),
    shown_ms=st.none() | st.integers(1, 2**53),
)
executions = st.builds(
    Execution,
    started_ms=st.integers(1, 2**53),
    begun_ms=st.none() | st.integers(1, 2**53),
    attempt=st.integers(0, 9),
    driver=labels,
    progress=prose,
    progress_percent=st.integers(-1, 100),
    placements=st.lists(st.tuples(names, names), max_size=2).map(tuple),
    interruption_ms=st.integers(-1, 9),
)

windows = st.builds(
    MaintenanceWindow,
    planned_open_ms=later_times,
    planned_close_ms=later_times,
    opened_ms=later_times,
    incident=st.integers(0, 2**31),
)


def as_ended(operation: Operation) -> Operation:
    """Return an operation whose end and owed abort fit its state."""
    if operation.live:
        return replace(operation, ended_ms=None, abort_owed=False)
    return replace(operation, ended_ms=operation.ended_ms or operation.created_ms or 1)


operations = st.builds(
    Operation,
    number=st.integers(1, 2**53),
    request=st.integers(1, 2**53),
    cause=st.sampled_from(Cause),
    impact=st.sampled_from(Impact),
    source=st.sampled_from(Source),
    routine=st.booleans(),
    host=names,
    vms=name_lists,
    of_vm=st.just(False),
    description=prose,
    duration_s=st.integers(-1, 86_400),
    notice_s=st.integers(0, 86_400 * 7),
    silent=st.booleans(),
    state=st.sampled_from(OperationState),
    notice=notices,
    followed_by=st.sampled_from(FollowedBy),
    execution=executions,
    requested_start_ms=later_times,
    created_ms=times,
    ended_ms=later_times,
    reason=prose,
    alert=st.sampled_from(Alert),
    abort_owed=st.booleans(),
    destination=st.just("") | names,
    actor=prose,
    events=st.lists(guids, max_size=2).map(tuple),
    unseen_vms=name_lists,
    unconfirmed_by=prose,
    window=windows,
).map(as_ended)
events = st.builds(
    Event,
    id=guids,
    operation=st.integers(1, 2**53),
    group=names,
    resources=name_lists,
    state=st.sampled_from(EventState),
    approved_by=name_lists,
)
enrolments = st.builds(
    Enrolment,
    group=names,
    enabled_ms=times,
    polled_ms=times,
    departures=st.lists(st.builds(Departure, vm=names, host=names, left_ms=times), max_size=3).map(
        tuple
    ),
)
shown_events = st.builds(
    ScheduledEvent,
    event_id=guids,
    status=st.just("Scheduled"),
    event_type=st.sampled_from([impact.value for impact in Impact]),
    resource_type=st.just("VirtualMachine"),
    resources=name_lists,
    # Whole seconds between 1970 and 9999: what NotBefore can say (D-7).
    not_before_ms=st.integers(0, 253_402_300_799).map(lambda seconds: seconds * 1000),
    description=prose,
    source=st.sampled_from([source.value for source in Source]),
    duration_s=st.integers(-1, 86_400),
)
views = st.builds(
    lambda group, vm, incarnation, found: View(
        key=f"{group}/{vm}" if vm else group,
        group=group,
        document=Document(incarnation=incarnation, events=tuple(found)),
    ),
    names,
    st.just("") | names,
    st.integers(0, 2**53),
    st.lists(shown_events, max_size=2),
)


@st.composite
def worlds(draw: st.DrawFn) -> Changes:
    """A whole fleet, and operations, events, enrolments and documents that fit it."""
    found_hosts = draw(several(hosts, 1))
    found_groups = draw(several(groups, 1))
    found_vms = [
        replace(
            vm,
            host=draw(st.sampled_from(found_hosts)).name,
            group=draw(st.sampled_from(found_groups)).name,
            interface=vm.name,  # so that no two machines are recognised by the same
            instance_id=vm.name,
        )
        for vm in draw(several(vms))
    ]
    if len(found_vms) > 1:
        found_groups = [replace(group, kind=GroupKind.SCALE_SET) for group in found_groups]
    found_operations = draw(several(operations))
    found_events = [
        replace(event, operation=draw(st.sampled_from(found_operations)).number)
        for event in (draw(several(events)) if found_operations else [])
    ]
    enabled = [group.name for group in found_groups if draw(st.booleans())]
    changes = Changes(
        last_number=max((each.number for each in found_operations), default=0),
        hosts={each.name: each for each in found_hosts},
        groups={each.name: each for each in found_groups},
        vms={each.name: each for each in found_vms},
        operations={each.number: each for each in found_operations},
        events={each.id: each for each in found_events},
        enrolments={name: replace(draw(enrolments), group=name) for name in enabled},
        views={name: replace(draw(views), key=name, group=name) for name in enabled},
        mark=draw(st.none() | st.tuples(labels, st.integers(-(2**53), 2**53))),
    )
    changes.topology = Topology(
        {each.name: each for each in found_hosts},
        {each.name: each for each in found_groups},
        {each.name: each for each in found_vms},
    )
    return changes


def several(kind: st.SearchStrategy[R], least: int = 0) -> st.SearchStrategy[list[R]]:
    """A few records of a kind, no two the same."""
    return st.lists(kind, min_size=least, max_size=3, unique_by=key_of)


numbers = st.integers(1, 2**31)
plannings = st.builds(Planning, at_ms=st.none() | times, reason=prose)
budgets = st.lists(
    st.builds(Budget, scope=st.just(Scope.RACK), limit=st.integers(0, 9), name=labels), max_size=2
).map(tuple)
maintenances = st.builds(
    Maintenance,
    number=st.integers(1, 2**31),
    cause=st.sampled_from(Cause),
    impact=st.sampled_from(Impact),
    hosts=name_lists,
    created_ms=times,
    actor=prose,
    duration_s=st.integers(1, 86_400),
    reason=prose,
    budgets=budgets,
    canary_hosts=name_lists,
    state=st.sampled_from(MaintenanceState),
    phase=st.one_of(
        plannings,
        st.builds(Due, wave=numbers, at_ms=times),
        st.builds(Announcing, wave=numbers, at_ms=times),
        st.builds(Working, wave=numbers, plan=st.none() | plannings),
        st.builds(Checking, gate=prose),
        st.builds(Halted, prose, st.none() | numbers, st.none() | prose, st.none() | plannings),
    ),
    failure_domain=labels,
    declaration=st.none()
    | st.builds(
        Declaration,
        declared_ms=times,
        deadline_ms=times,
        severity=st.sampled_from(Severity),
        version=numbers,
        answers=numbers,
        waived=st.lists(st.sampled_from(every_waiver()), unique=True, max_size=3).map(tuple),
    ),
)


PLAN_TEXT = (
    '{"waves":[[1,2,3,4,5,0,["window","nights",0,0],["h0"]]],'
    '"moves":{"h0":[["v","h1"]]},'
    '"blocked":[["h1","host-failed","h1",6,0]],"bound":[1,"why"],"limits":[["rack","",2]]}'
)


def plan_saying(argument: str) -> PlanBody:
    """A plan of one wave, with a bound that has this argument."""
    return read_plan(json.dumps(json.loads(PLAN_TEXT) | {"bound": [1, argument]}))


plans = st.builds(
    MaintenancePlan,
    id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    maintenance=st.integers(1, 2**31),
    parent=st.just(""),
    made_ms=times,
    body=prose.map(plan_saying),
)
targets = st.builds(
    Target,
    key=names,
    maintenance=st.integers(1, 2**31),
    host=names,
    wave=st.integers(1, 99),
    operation=st.integers(1, 2**31),
    state=st.sampled_from(TargetState),
    ended_ms=later_times,
    reason=prose,
)
choices = st.builds(
    OwnerChoice,
    key=names.map("7/{}/shop".format),
    maintenance=st.just(7),
    host=names,
    owner=prose,
    made_ms=times,
    chosen_by=prose,
    decision=st.sampled_from(Decision),
    start_ms=times,
    approves=st.booleans(),
    displaced_ms=later_times,
)

deferrals = st.builds(
    Deferral,
    key=names.map("7/{}/shop".format),
    maintenance=st.just(7),
    host=names,
    owner=prose,
    asked_ms=times,
    asked_by=prose,
    until_ms=times,
    reason=prose,
    state=st.sampled_from(DeferralState),
    granted_ms=later_times,
    decide_by_ms=later_times,
    answered_ms=later_times,
    answered_by=prose,
    answer=prose,
)

principals = st.builds(
    Principal, name=names, bindings=st.lists(st.tuples(names, prose), max_size=3).map(tuple)
)
tokens = st.builds(
    AccessToken,
    id=names,
    principal=names,
    role=st.sampled_from(Role),
    owner=prose,
    digest=names,
    created_ms=times,
    expires_ms=later_times,
    suspended=st.booleans(),
    makers=name_lists,
)
confirmations = st.builds(
    Confirmation,
    number=numbers,
    principal=names,
    actor=prose,
    request=prose,
    body=prose,
    media=prose,
    asked_ms=times,
    expires_ms=times,
    token=names,
    names=name_lists,
    built_in=st.booleans(),
    permission=names,
)
policies = st.builds(
    AppliedPolicy,
    name=st.just(FLEET_POLICY),
    applied_ms=times,
    actor=prose,
    policy=st.builds(MaintenancePolicy, pause_s=st.integers(0, 9), budgets=budgets),
)

tickets = st.builds(
    Ticket,
    number=numbers,
    type=st.sampled_from(TicketType),
    target_kind=st.sampled_from(TicketTarget),
    target=names,
    opened_ms=times,
    updated_ms=times,
    owners=name_lists,
    host=names,
    serial=labels,
    category=st.sampled_from(HardwareCategory),
    description=prose,
    evidence=prose,
    action=prose,
    account=labels,
    external=prose,
    operation=numbers,
    maintenance=numbers,
    actor=prose,
    state=st.sampled_from([each for each in TicketState if each not in ENDED_TICKET]),
    due_ms=later_times,
    texts=st.lists(st.builds(TicketText, at_ms=times, by=prose, text=prose), max_size=2).map(tuple),
)

OF_KIND: dict[str, st.SearchStrategy[Record]] = {
    "host": hosts,
    "maintenance": maintenances,
    "plan": plans,
    "target": targets,
    "choice": choices,
    "deferral": deferrals,
    "policy": policies,
    "principal": principals,
    "confirmation": confirmations,
    "token": tokens,
    "ticket": tickets,
    "group": groups,
    "vm": vms,
    "operation": operations,
    "event": events,
    "enrolment": enrolments,
    "document": views,
}
