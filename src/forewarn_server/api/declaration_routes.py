"""Routes of declared maintenances, for operators and owners. Source: T-1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn_base.validation.durations import read_time_ms, written
from forewarn_base.validation.fields import NAME, Boolean, Choice, Text, Timestamp, ValidationFailed
from forewarn_base.validation.forms import Field, Form, ListOf
from forewarn_core.access.roles import Permission
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.choice_commands import ChoiceResult, results, stands
from forewarn_core.fleet.choice_rules import ChoiceRule, Otherwise
from forewarn_core.fleet.declarations import (
    DeclaredMaintenance,
    DeclaredResource,
    HostPlace,
    ResourceState,
    declared,
    ended_declaration,
    work_at_hand,
)
from forewarn_core.fleet.deferrals import Deferral, DeferralState
from forewarn_core.fleet.hand_back import deadline_of
from forewarn_core.fleet.host_admission import known_maintenance
from forewarn_core.fleet.host_orders import OwnerOrder
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_core.fleet.maintenance import Maintenance, MaintenanceState
from forewarn_core.fleet.openings import Opening, Openings
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.refusals import (
    DeclarationEnded,
    NotDeclared,
    OwnerUnnamed,
    Unknown,
    noun_of,
)
from forewarn_core.fleet.topology import Topology, Vm
from forewarn_core.rules.blockers import every_code
from forewarn_core.rules.hand_back import Severity
from forewarn_server.api import request_forms as forms
from forewarn_server.api import schemas
from forewarn_server.api.maintenance_routes import ONE, find_view, number_of, one_view
from forewarn_server.api.policy_file import RULE_WINDOW, window_of
from forewarn_server.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route
from forewarn_server.control.plane import StateView
from forewarn_store import Store
from forewarn_store.maintenances import HostState

_CHOICE = Form(
    "ChoiceForm",
    "One choice: for the VMs of a host, of a group, of a failure domain or for one VM, and exactly "
    "one of `at`, `now`, `release` and `within`.",
    (
        Field("host", NAME, "Host of the VMs."),
        Field("group", NAME, "Group of the VMs, on all declared hosts."),
        Field("vm", NAME, "One VM; the choice is for its owner's VMs on its host."),
        Field("failure_domain", Text(), forms.IN_FAILURE_DOMAIN),
        Field("owner", forms.OWNER_OR_NONE, forms.OWNER_ON_HOST),
        Field("at", Timestamp(), "Start of the work."),
        Field("now", Boolean(), "Start the work as soon as possible."),
        Field("release", Boolean(), "Hand the VMs back: the work may start at any time."),
        Field("within", RULE_WINDOW, "Start at the earliest opening within this window."),
        Field(
            "otherwise",
            Choice({each.value: each for each in Otherwise}),
            "Without an opening within the window: start at the `last` or the `first` opening, "
            "`release` the VMs, or choose `nothing` (default).",
        ),
        Field(
            "unchosen",
            Boolean(),
            "Choose only where the owner has no choice, or one that cannot be kept.",
        ),
        Field("approve", Boolean(), "Approve the event of the work in advance."),
    ),
)
CHOICES_MAX = 1000
CHOICES = Form(
    "ChoicesForm",
    "When declared work starts: all choices take effect, or none.",
    (
        Field("choices", ListOf(_CHOICE, CHOICES_MAX, 1), "The choices.", required=True),
        Field("dry_run", Boolean(), "Only answer whether each choice is possible."),
    ),
)
DEFERRAL: schemas.ObjectSchema[Deferral] = schemas.ObjectSchema(
    "Deferral",
    "An owner's request for a later hand-back deadline of its VMs on a host.",
    schemas.Member("declaration", schemas.TEXT, lambda d: f"m-{d.maintenance}"),
    schemas.Member("host", schemas.TEXT),
    schemas.Member("owner", schemas.TEXT, meaning="Owner of the VMs; may be empty."),
    schemas.Member("state", schemas.words(DeferralState)),
    schemas.Member("until", schemas.TIME, "until_ms", "The hand-back deadline that was asked for."),
    schemas.Member("reason", schemas.TEXT, meaning="Reason of the request."),
    schemas.Member("asked", schemas.TIME, "asked_ms"),
    schemas.Member("asked_by", schemas.TEXT),
    schemas.Member(
        "decide_by",
        schemas.TIME,
        "decide_by_ms",
        "When the request is refused if no operator decides; null: it has its answer.",
    ),
    schemas.Member("answered", schemas.TIME, "answered_ms", "Null: not yet."),
    schemas.Member(
        "answered_by", schemas.TEXT, meaning="A principal, or `policy`; empty: nobody yet."
    ),
    schemas.Member("answer", schemas.TEXT, meaning="Reason of the answer."),
)
RESOURCE: schemas.ObjectSchema[DeclaredResource] = schemas.ObjectSchema(
    "DeclaredResource",
    "One owner's VMs on a host of a declared maintenance.",
    schemas.Member("host", schemas.TEXT),
    schemas.Member("owner", schemas.TEXT, meaning="Owner of the VMs; may be empty."),
    schemas.Member("vms", schemas.TEXTS),
    schemas.Member("state", schemas.words(ResourceState)),
    schemas.Member(
        "hand_back_deadline",
        schemas.TIME,
        "deadline_ms",
        "Until then, the work starts only if the owner chooses so.",
    ),
    schemas.Member(
        "start",
        schemas.TIME,
        "start_ms",
        "Announced start, or the latest start by the plan; null: not known yet.",
    ),
    schemas.Member(
        "decision",
        {"enum": [*(each.value for each in Decision), None]},
        lambda r: r.choice.decision.value if r.choice else None,
        "What the owner chose; null: nothing yet.",
    ),
    schemas.Member(
        "chosen_start",
        schemas.TIME,
        lambda r: written(
            r.choice.start_ms if r.choice and r.choice.decision is Decision.AT else 0
        ),
        "Start that the owner chose; null: none.",
    ),
    schemas.Member("chosen_by", schemas.TEXT, lambda r: r.choice.chosen_by if r.choice else ""),
    schemas.Member(
        "approves",
        schemas.FLAG,
        lambda r: bool(r.choice and r.choice.approves),
        "Whether the choice approves the event.",
    ),
    schemas.Member(
        "deferral",
        {"anyOf": [DEFERRAL.schema(), {"type": "null"}]},
        lambda r: DEFERRAL.of(r.deferral) if r.deferral else None,
        "The last request for a later hand-back deadline; null: none.",
    ),
    schemas.Member("changed", schemas.TIME, "changed_ms", "Last change of the plan or a choice."),
    schemas.Member("shared", schemas.FLAG, meaning="Whether other owners have VMs on the host."),
    schemas.Member(
        "order",
        schemas.words(HostPlace),
        meaning="Place of the host in the order that its owner asked for.",
    ),
    schemas.Member(
        "failure_domain",
        schemas.TEXT,
        meaning="Failure domain of the host, such as `rack=r7`, where the work is on one at a "
        "time; may be empty.",
    ),
)
OPENING: schemas.ObjectSchema[Opening] = schemas.ObjectSchema(
    "Opening",
    "A span in which declared work on a host can start.",
    schemas.Member("start", schemas.TIME, "start_ms", "Earliest start."),
    schemas.Member("latest", schemas.TIME, "latest_ms", "Latest start."),
    schemas.Member(
        "room",
        schemas.WHOLE_OR_NONE,
        meaning="Number of hosts that may still choose this start; null: no budget limits it.",
    ),
)
CHOICE_RESULT: schemas.ObjectSchema[ChoiceResult] = schemas.ObjectSchema(
    "ChoiceResult",
    "Whether a choice is possible.",
    schemas.Member("host", schemas.TEXT, "choice.host"),
    schemas.Member("owner", schemas.TEXT, "choice.owner"),
    schemas.Member("decision", schemas.words(Decision), "choice.decision"),
    schemas.Member("start", schemas.TIME, "choice.start_ms", "Chosen start; null: none."),
    schemas.Member("possible", schemas.FLAG, lambda r: r.blocker is None),
    schemas.Member(
        "code",
        {"enum": [*(each.value for each in every_code()), None]},
        lambda r: r.blocker.code.value if r.blocker else None,
        "Blocker of a choice that is not possible.",
    ),
    schemas.Member("text", schemas.TEXT, lambda r: r.blocker.text if r.blocker else ""),
    schemas.Member(
        "openings",
        schemas.list_of(OPENING.schema()),
        lambda r: OPENING.each(r.openings),
        "The nearest openings of a choice that is not possible.",
    ),
    schemas.Member(
        "agreed",
        schemas.FLAG,
        meaning="Whether the other owners on the host agree to a start before their hand-back "
        "deadline; otherwise the work starts after it.",
    ),
    schemas.Member(
        "held",
        schemas.FLAG,
        meaning="Whether the owner holds the host after its test: no choice counts until it "
        "resumes.",
    ),
    schemas.Member(
        "earliest",
        schemas.TIME,
        "earliest_ms",
        "Earliest start of work that may start at any time; null: a start is chosen.",
    ),
)
FIRST_GROUP: schemas.ObjectSchema[OwnerOrder] = schemas.ObjectSchema(
    "FirstGroup",
    "The test group of an owner: its hosts are worked on before the owner's other hosts.",
    schemas.Member("owner", schemas.TEXT, "first_group.owner", "Owner of the VMs; may be empty."),
    schemas.Member("group", schemas.TEXT, "first_group.group"),
    schemas.Member(
        "observation_s",
        schemas.WHOLE,
        "first_group.observation_s",
        "Time between the work on the hosts of the group and on the others.",
    ),
    schemas.Member(
        "held",
        schemas.TEXT,
        "first_group.held",
        "Why the owner holds its other hosts until their hand-back deadline; empty: it does not.",
    ),
    schemas.Member("first", schemas.TEXTS, meaning="Hosts with VMs of the group."),
    schemas.Member("after", schemas.TEXTS, meaning="Other hosts of the owner."),
    schemas.Member(
        "problem", schemas.TEXT, meaning="Why the order does not count; empty: it counts."
    ),
)
DECLARATION: schemas.ObjectSchema[DeclaredMaintenance] = schemas.ObjectSchema(
    "Declaration",
    "A maintenance that was declared to the owners of its VMs, with the resources of the caller.",
    schemas.Member("id", schemas.TEXT, "maintenance.id", "Id of the maintenance, such as m-12."),
    schemas.Member("version", schemas.WHOLE, "declaration.version"),
    schemas.Member("severity", schemas.words(Severity), "declaration.severity"),
    schemas.Member(
        "waived",
        schemas.TEXTS,
        lambda d: list(d.declaration.waived),
        "Rules that an emergency does not keep.",
    ),
    schemas.Member("state", schemas.words(MaintenanceState), "maintenance.state"),
    schemas.Member("cause", schemas.words(Cause), "maintenance.cause"),
    schemas.Member(
        "impact",
        schemas.words(Impact),
        "maintenance.shown_impact",
        "Impact that the event of each VM will have.",
    ),
    schemas.Member("reason", schemas.TEXT, "maintenance.reason"),
    schemas.Member("declared", schemas.TIME, "declaration.declared_ms"),
    schemas.Member("hand_back_deadline", schemas.TIME, "declaration.deadline_ms"),
    schemas.Member("earliest_start", schemas.TIME, "maintenance.earliest_ms"),
    schemas.Member("deadline", schemas.TIME, "maintenance.deadline_ms"),
    schemas.Member(
        "interruption_s",
        schemas.WHOLE,
        lambda d: TRAITS[d.maintenance.cause].shown(d.maintenance.impact)[1],
        "Expected interruption of each VM; -1: for as long as the work lasts.",
    ),
    schemas.Member(
        "window_s",
        schemas.WHOLE,
        "maintenance.host_s",
        "Length of the maintenance window of each host, from its start to its planned close.",
    ),
    schemas.Member(
        "resources",
        schemas.list_of(RESOURCE.schema()),
        lambda d: RESOURCE.each(d.resources),
    ),
    schemas.Member(
        "first_groups",
        schemas.list_of(FIRST_GROUP.schema()),
        lambda d: FIRST_GROUP.each(d.orders),
        "Test groups of the owners.",
    ),
)


@Route("POST /v1/maintenances/{id}/declare", Permission.OPERATE, form=forms.DECLARE, answer=ONE)
async def declare_maintenance(call: ApiCall) -> ApiResponse:
    """Declare a draft to the owners of its VMs, and start it.

    The hand-back window begins now, or when a second principal confirms the call.
    """
    number, form = number_of(call), call.form
    severity = form.get("severity", Severity.ROUTINE)
    word = stimuli.DeclareMaintenance(number, severity, form.get("hand_back"))
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


@Route(
    "POST /v1/maintenances/{id}/declare-emergency",
    Permission.DECLARE_EMERGENCY,
    form=forms.EMERGENCY,
    answer=ONE,
)
async def declare_emergency(call: ApiCall) -> ApiResponse:
    """Declare a draft as an emergency, and start it; a review stays open until it is closed.

    It overrides windows, freezes, pauses, rests, choices and postponements.
    """
    number, form = number_of(call), call.form
    waived = tuple(dict.fromkeys(form.get("waive", ())))
    word = stimuli.DeclareMaintenance(
        number, Severity.EMERGENCY, form.get("hand_back"), form["reason"], waived
    )
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


@Route(
    "GET /v1/declarations",
    Permission.READ,
    query=(
        Field("vm", NAME, "Only declarations of this VM's host, with the resources of this host."),
    ),
    answer=schemas.object_schema(declarations=schemas.list_of(DECLARATION.schema())),
)
async def list_declarations(call: ApiCall) -> ApiResponse:
    """List the live declared maintenances that concern VMs of the caller, newest first."""
    now_ms, vm = call.control.clock.now_ms(), call.query.get("vm")

    def find(view: StateView) -> tuple[DeclaredMaintenance, ...]:
        host = None if vm is None else _host_of(view.state.topology, vm)
        whole = view.unscoped or view
        return declared(whole.state, view.state.topology, now_ms, host=host)

    every = await call.control.read(find)
    return await call.encode(lambda: {"declarations": DECLARATION.each(every)})


@Route(
    "GET /v1/declarations/{id}",
    Permission.READ,
    answer=schemas.object_schema(declaration=DECLARATION.schema()),
)
async def get_declaration(call: ApiCall) -> ApiResponse:
    """Read one declared maintenance with the resources of the caller.

    Of an ended one, these are the VMs that are on its hosts now.
    """
    number = number_of(call)
    live = await declared_to(call, only=number)
    named = live[0] if live else await _ended(call, number)
    if named is None:
        raise Unknown(kind="declaration", name=f"m-{number}")
    return await call.encode(lambda: {"declaration": DECLARATION.of(named)})


@Route(
    "GET /v1/declarations/{id}/openings",
    Permission.READ,
    query=(
        Field("host", NAME, "Host of the VMs."),
        Field("vm", NAME, "VM on the host."),
    ),
    answer=schemas.object_schema(
        host=schemas.TEXT, openings=schemas.list_of(OPENING.schema()), text=schemas.TEXT
    ),
)
async def list_openings(call: ApiCall) -> ApiResponse:
    """List the times at which declared work can start on one host, with the room left.

    An emergency has none, and neither has a host whose work is announced; `text` says so, and is
    empty otherwise.
    """
    number, now_ms = number_of(call), call.control.clock.now_ms()
    await named_declaration(call, number)

    def find(view: StateView) -> tuple[str, list[Opening], str]:
        topology = view.state.topology
        host = _host_of_query(call, topology)
        whole = view.unscoped or view
        maintenance = known_maintenance(whole.draft(now_ms), number)
        if host not in maintenance.hosts:
            raise NotDeclared(subject=f"host {host}", maintenance=maintenance.id)
        if maintenance.exemption.emergency:
            text = f"{maintenance.id} is an emergency: only now and release can be chosen."
            return host, [], text
        if work := work_at_hand(whole.state, maintenance, host):
            return host, [], f"Nothing can be chosen for host {host}: {work}."
        owners = {topology.groups[topology.vms[name].group].owner for name in topology.vms_on(host)}
        until_ms = max(
            (deadline_of(whole.state, maintenance, host, owner=each) for each in owners), default=0
        )
        return host, Openings(whole.draft(now_ms), maintenance).of(host, until_ms=until_ms), ""

    host, openings, text = await call.control.read(find)
    return ApiResponse({"host": host, "openings": OPENING.each(openings), "text": text})


def _host_of_query(call: ApiCall, topology: Topology) -> str:
    """Return the host that a query names, or the host of the VM that it names.

    Raises:
        Unknown: there is no such host or VM.
        ValidationFailed: not exactly one of the two is given.
    """
    if len({"host", "vm"} & call.query.keys()) != 1:
        raise ValidationFailed(where="the query", problem="needs exactly one of host and vm")
    host: str = call.query.get("host", "")
    if "vm" in call.query:
        host = _host_of(topology, call.query["vm"])
    if host not in topology.hosts:
        raise Unknown(kind="host", name=host)
    return host


def _host_of(topology: Topology, name: str) -> str:
    """Return the host of a VM.

    Raises:
        Unknown: there is no such VM.
    """
    vm = topology.vms.get(name)
    if vm is None:
        raise Unknown(kind="vm", name=name)
    return vm.host


@Route(
    "POST /v1/declarations/{id}/choices",
    Permission.APPROVE,
    form=CHOICES,
    body_bytes_max=NAMES_BYTES_MAX,
    answer=schemas.object_schema(results=schemas.list_of(CHOICE_RESULT.schema())),
)
async def choose_starts(call: ApiCall) -> ApiResponse:
    """Choose when declared work starts, or hand VMs back; with `dry_run` only check the choices.

    All choices take effect, or none.
    """
    number, now_ms = number_of(call), call.control.clock.now_ms()
    await named_declaration(call, number)

    def read(view: StateView) -> tuple[stimuli.ChooseStarts, list[ChoiceResult]]:
        draft = (view.unscoped or view).draft(now_ms)
        openings = Openings(draft, known_maintenance(draft, number))
        chosen: list[stimuli.HostChoice] = []
        places: dict[tuple[str, str], str] = {}
        for index, each in enumerate(call.form["choices"]):
            where = f"choices[{index}]"
            for one in _choices(view, number, each, openings, where=where):
                other = places.setdefault((one.host, one.owner), where)
                if other != where:
                    problem = f"and {where} both choose for host {one.host}"
                    raise ValidationFailed(where=other, problem=problem + _of_owner(one.owner))
                chosen.append(one)
        if len(chosen) > CHOICES_MAX:
            problem = f"names more than {CHOICES_MAX} hosts"
            raise ValidationFailed(where="choices", problem=problem)
        word = stimuli.ChooseStarts(number, tuple(chosen), call.principal.name)
        return word, results(draft, word)

    word, answers = await call.control.read(read)
    if word.choices and not call.form.get("dry_run", False):
        await call.control.submit(word, call.actor)
    return ApiResponse({"results": CHOICE_RESULT.each(answers)})


#: What a form names, of which all VMs on declared hosts are chosen for.
_KINDS = ("host", "group", "vm", "failure_domain")
_WAYS = ("at", "now", "release", "within")


def _choices(
    view: StateView, number: int, form: Mapping[str, Any], openings: Openings, *, where: str
) -> list[stimuli.HostChoice]:
    """Return the choices of a form for the hosts and owners that the caller may see.

    Raises:
        Unknown: a VM, group or host is unknown, or has no VM on a declared host.
        ValidationFailed: not exactly one of the ways is given.
    """
    places = _places(view, number, form, where=where)
    ways = [each for each in _WAYS if form.get(each)]
    if len(ways) != 1:
        problem = "needs exactly one of at, now, release and within"
        raise ValidationFailed(where=where, problem=problem)
    [way] = ways
    gives_way = form.get("unchosen", False)
    if gives_way:
        state = (view.unscoped or view).state
        places = tuple([p for p in places if not stands(state, number, p[0], owner=p[1])])
    approves = form.get("approve", False)
    if way == "within":
        window = window_of(form["within"], f"{where}.within")
        rule = ChoiceRule(window, form.get("otherwise", Otherwise.NOTHING))
        decided = (
            (each, *_by_rule(view, number, rule, each, openings=openings)) for each in places
        )
        return [
            stimuli.HostChoice(*place, decision, start_ms, approves and start_ms > 0, gives_way)
            for place, decision, start_ms in decided
            if decision is not None
        ]
    start_ms = read_time_ms(form["at"], openings.now_ms) if way == "at" else 0
    return [
        stimuli.HostChoice(*each, Decision(way), start_ms, approves, gives_way) for each in places
    ]


def _by_rule(
    view: StateView, number: int, rule: ChoiceRule, place: tuple[str, str], *, openings: Openings
) -> tuple[Decision | None, int]:
    """Return what a rule decides about an owner's VMs on a host, and the start; None: nothing."""
    host, owner = place
    state = (view.unscoped or view).state
    until_ms = deadline_of(state, state.maintenances[number], host, owner=owner)
    emergency = state.maintenances[number].exemption.emergency  # which has no openings
    start_ms = 0 if emergency else rule.start_ms(openings.of(host, until_ms=until_ms))
    if start_ms:
        openings.take(host, start_ms)
        return Decision.AT, start_ms
    return (Decision.RELEASE if rule.otherwise is Otherwise.RELEASE else None), 0


def _places(
    view: StateView, number: int, form: Mapping[str, Any], *, where: str
) -> tuple[tuple[str, str], ...]:
    """Return the declared hosts and owners that a form names, by one of `_KINDS`.

    Raises:
        Unknown: the named object is unknown, or has no VM on a declared host.
        ValidationFailed: not exactly one of the kinds is given.
    """
    kinds = [each for each in _KINDS if each in form]
    if len(kinds) != 1:
        problem = "needs exactly one of host, group, vm and failure_domain"
        raise ValidationFailed(where=where, problem=problem)
    topology = view.state.topology
    [kind] = kinds
    name = form[kind]
    maintenance = (view.unscoped or view).state.maintenances[number]
    exists, vms = _named_vms(topology, maintenance, kind, name)
    places = {(vm.host, topology.groups[vm.group].owner): None for vm in vms}
    if kind == "failure_domain" and not exists:
        raise NotDeclared(subject=f"failure domain {name}", maintenance=maintenance.id)
    if not places and (not exists or name in maintenance.hosts):
        raise Unknown(kind=kind, name=name)
    hosts = set(maintenance.hosts)
    declared_places = [each for each in places if each[0] in hosts]
    if not declared_places:
        subject = f"{noun_of(kind)} {name}"
        raise NotDeclared(subject=subject, maintenance=maintenance.id)
    return _of_one_owner(declared_places, form, kind=kind)


def _named_vms(
    topology: Topology, maintenance: Maintenance, kind: str, name: str
) -> tuple[bool, list[Vm]]:
    """Return whether a named object is known, and its VMs; O(declared hosts, or the VMs)."""
    exists, names = name in topology.vms, [name]
    if kind == "host":
        exists, names = name in topology.hosts, [*topology.vms_on(name)]
    elif kind == "group":
        exists, names = name in topology.groups, [*topology.vms_in(name)]
    elif kind == "failure_domain":
        label = name.partition("=")[0]
        hosts = [h for h in maintenance.hosts if topology.failure_domain(h, label) == name]
        exists, names = bool(hosts), [each for host in hosts for each in topology.vms_on(host)]
    return exists, [topology.vms[each] for each in names] if exists else []


def _of_one_owner(
    places: list[tuple[str, str]], form: Mapping[str, Any], *, kind: str
) -> tuple[tuple[str, str], ...]:
    """Return the places of the owner that a form names; a host must not have several without.

    Raises:
        OwnerUnnamed: the host has VMs of several owners, or none of the named owner.
    """
    named = form.get("owner")
    own = tuple([each for each in places if named in {None, each[1]}])
    owners = {owner for _, owner in own}
    if not own or (kind in {"host", "failure_domain"} and len(owners) > 1):
        names = ", ".join(sorted({each or "no owner" for _, each in places}))
        raise OwnerUnnamed(host=places[0][0], owners=names)
    return own


def _of_owner(owner: str) -> str:
    return f" and owner {owner}" if owner else " and the VMs without an owner"


LOST_CHOICE: schemas.ObjectSchema[OwnerChoice] = schemas.ObjectSchema(
    "LostChoice",
    "A choice that no longer counts: a later hand-back deadline was granted, or the test of its "
    "owner comes first.",
    schemas.Member("host", schemas.TEXT),
    schemas.Member("owner", schemas.TEXT, meaning="Owner of the VMs; may be empty."),
    schemas.Member("decision", schemas.words(Decision)),
    schemas.Member(
        "start",
        schemas.TIME,
        lambda c: written(c.start_ms if c.decision is Decision.AT else 0),
        "Chosen start; null: none.",
    ),
)
_DEFERRALS = schemas.object_schema(deferrals=schemas.list_of(DEFERRAL.schema()))
_ANSWERED = schemas.object_schema(
    deferrals=schemas.list_of(DEFERRAL.schema()),
    withdrawn=schemas.list_of(LOST_CHOICE.schema()),
)


@Route("GET /v1/deferrals", Permission.READ, answer=_DEFERRALS)
async def list_deferrals(call: ApiCall) -> ApiResponse:
    """List the requests for later hand-back deadlines of live declared maintenances."""
    every = _deferrals(await declared_to(call))
    return await call.encode(lambda: {"deferrals": DEFERRAL.each(every)})


@Route(
    "POST /v1/declarations/{id}/deferrals",
    Permission.APPROVE,
    form=forms.DEFER,
    answer=_ANSWERED,
)
async def ask_deferral(call: ApiCall) -> ApiResponse:
    """Ask for a later hand-back deadline; the answer has what the policy says to it.

    All hosts get the same answer. A granted request withdraws the choice for its VMs.
    """
    number, form = number_of(call), call.form
    before = (await named_declaration(call, number),)
    places = await call.control.read(lambda view: _places(view, number, form, where="the body"))
    until_ms = call.time_ms("until")
    assert until_ms is not None, "the form requires it"
    word = stimuli.AskDeferral(number, places, until_ms, form["reason"], call.principal.name)
    await call.control.submit(word, call.actor)
    return await _deferrals_response(call, before, set(places))


@Route(
    "POST /v1/declarations/{id}/deferrals/withdraw",
    Permission.APPROVE,
    form=forms.WITHDRAW,
    answer=_ANSWERED,
)
async def withdraw_deferral(call: ApiCall) -> ApiResponse:
    """Withdraw requests for a later hand-back deadline that nobody has decided."""
    number, form = number_of(call), call.form
    before = (await named_declaration(call, number),)
    places = await call.control.read(lambda view: _places(view, number, form, where="the body"))
    word = stimuli.WithdrawDeferral(number, places, call.principal.name)
    await call.control.submit(word, call.actor)
    return await _deferrals_response(call, before, set(places))


async def _deferrals_response(
    call: ApiCall, before: tuple[DeclaredMaintenance, ...], places: set[tuple[str, str]]
) -> ApiResponse:
    """Answer with the requests for hosts and owners, and the choices that no longer count."""
    after = await declared_to(call, only=number_of(call))
    requests = [each for each in _deferrals(after) if (each.host, each.owner) in places]
    granted = {(d.host, d.owner) for d in requests if d.state is DeferralState.GRANTED}
    resources = [one for each in before for one in each.resources]
    choices = [each.choice for each in resources if (each.host, each.owner) in granted]
    withdrawn = [each for each in choices if each is not None]
    return ApiResponse(
        {"deferrals": DEFERRAL.each(requests), "withdrawn": LOST_CHOICE.each(withdrawn)}
    )


@Route(
    "POST /v1/declarations/{id}/deferrals/grant",
    Permission.OPERATE,
    form=forms.GRANT_DEFERRAL,
    answer=_ANSWERED,
)
async def grant_deferral(call: ApiCall) -> ApiResponse:
    """Grant the undecided requests of an owner: its hand-back deadlines move."""
    return await _decide_deferral(call, grants=True)


@Route(
    "POST /v1/declarations/{id}/deferrals/refuse",
    Permission.OPERATE,
    form=forms.REFUSE_DEFERRAL,
    answer=_ANSWERED,
)
async def refuse_deferral(call: ApiCall) -> ApiResponse:
    """Refuse the undecided requests of an owner."""
    return await _decide_deferral(call, grants=False)


async def _decide_deferral(call: ApiCall, *, grants: bool) -> ApiResponse:
    number, form = number_of(call), call.form
    owner, host = form["owner"], form.get("host", "")
    word = stimuli.DecideDeferral(
        number, owner, grants, call.principal.name, form.get("reason", ""), host=host
    )
    before = await declared_to(call, only=number)
    places = {
        (each.host, each.owner)
        for each in _deferrals(before)
        if each.state is DeferralState.ASKED and each.owner == owner and host in {"", each.host}
    }
    await call.control.submit(word, call.actor)
    return await _deferrals_response(call, before, places)


def _deferrals(declarations: tuple[DeclaredMaintenance, ...]) -> list[Deferral]:
    """Return the requests of the resources that a caller may see, the newest first."""
    every = [one.deferral for each in declarations for one in each.resources if one.deferral]
    return sorted(every, key=lambda each: (-each.asked_ms, each.key))


async def named_declaration(call: ApiCall, number: int) -> DeclaredMaintenance:
    """Return a live declared maintenance of the caller.

    Raises:
        DeclarationEnded: it has ended.
        Unknown: there is no such declared maintenance, or it does not concern the caller.
    """
    named = await declared_to(call, only=number)
    if named:
        return named[0]
    ended = await _ended(call, number)
    if ended is None:
        raise Unknown(kind="declaration", name=f"m-{number}")
    state = ended.maintenance.state.value
    raise DeclarationEnded(maintenance=ended.maintenance.id, state=state)


#: The state of the work on a host -> its state in a declaration.
_WORKED = {
    HostState.ANNOUNCED: ResourceState.ANNOUNCED,
    HostState.RUNNING: ResourceState.STARTED,
    HostState.DONE: ResourceState.DONE,
    HostState.FAILED: ResourceState.FAILED,
}


async def _ended(call: ApiCall, number: int) -> DeclaredMaintenance | None:
    """Return an ended declared maintenance of the caller; None: there is none."""

    def stored(store: Store) -> tuple[Maintenance | None, dict[str, ResourceState]]:
        work = store.maintenances.work(number)
        return store.maintenances.get(number), {each.host: _WORKED[each.state] for each in work}

    maintenance, work = await call.control.look_up(stored)
    if maintenance is None or maintenance.live:
        return None
    fleet = await call.control.fleet()
    return await call.control.compute(lambda: ended_declaration(maintenance, fleet, work))


async def declared_to(call: ApiCall, only: int | None = None) -> tuple[DeclaredMaintenance, ...]:
    """Return the declared maintenances with resources of the caller; `only`: one number."""
    now_ms = call.control.clock.now_ms()

    def every(view: StateView) -> tuple[DeclaredMaintenance, ...]:
        return declared((view.unscoped or view).state, view.state.topology, now_ms, only=only)

    return await call.control.read(every)
