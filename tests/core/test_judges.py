"""Every rule of maintenances is judged wherever its code says, in one situation for each code."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_admission import Admission, start_blockers
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Declaration, FirstGroup
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import ChangeTopology, Enable
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.fleet.waves import withdrawn_because
from forewarn_core.planning.checker import check
from forewarn_core.planning.plan import Plan
from forewarn_core.planning.planner import plan as make_plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import Code, Judge, code_of, every_code
from forewarn_core.rules.hand_back import Severity
from forewarn_core.rules.local_time import Window
from forewarn_server.control.planning import PlannerTask, fleet_of, plan_request, planner_task
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS

Act = Callable[[MaintenanceRig, int], None]
HOUR_MS = 60 * MINUTE_MS


@dataclass
class Situation:
    """A fleet, a maintenance of it, and what makes a rule hold for the host `h0`."""

    cause: Act
    rig: Callable[[], MaintenanceRig] = fleet
    #: The rule of the checker's finding.
    finding: str = ""
    #: What makes the rule hold once the host is announced; by default the cause.
    once_announced: Act | None = None
    hosts: tuple[str, ...] = ("h0",)
    #: Time for the moves of its VMs, in seconds; 0: they stay.
    move_s: int = 0
    #: A plan that breaks the rule, from a plan made after the cause; None: the plan before it.
    broken: Callable[[Plan], Plan] | None = None


def fails(host: str) -> Act:
    """The hardware of a host fails."""
    return lambda rig, _: void(rig.ask(Cause.HARDWARE_FAILURE, host))


def asks(cause: Cause, target: str, **more: object) -> Act:
    """Somebody asks for work by hand, which is announced."""
    return lambda rig, _: void(rig.ask(cause, target, source=Source.PLATFORM, **more))


def void(_: object) -> None:
    """Drop a value."""


def applies(**more: object) -> Act:
    """An operator applies a policy."""
    policy = MaintenancePolicy(**more)  # type: ignore[arg-type]
    return lambda rig, _: void(rig.tell(words.ApplyPolicy(policy)))


def amended(**more_ms: int) -> Act:
    """The maintenance has another condition, by a time from now."""

    def act(rig: MaintenanceRig, number: int) -> None:
        times = {name: rig.now_ms + ms for name, ms in more_ms.items()}
        known = rig.state.maintenances[number]
        rig.state.maintenances[number] = replace(known, **times)

    return act


def freezes(rig: MaintenanceRig, _: int) -> None:
    """An operator applies a freeze of a day, which begins now."""
    span = (rig.now_ms, rig.now_ms + DAY_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(span,))))


def under(**more: object) -> Callable[[], MaintenanceRig]:
    """A fleet of one fault domain and one owner, under a policy."""

    def rig() -> MaintenanceRig:
        policy = MaintenancePolicy(**more)  # type: ignore[arg-type]
        made = fleet(domains=1, policy=NoticePolicy(maintenance=policy))
        made.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
        return made

    return rig


def roomy() -> MaintenanceRig:
    """Three hosts of memory for two VMs, and a VM on the first."""
    rig = MaintenanceRig()
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=2048) for n in range(3))
    vms = (Vm("v0", "h0", "web", memory_mib=1024),)
    rig.tell(ChangeTopology(hosts=hosts, groups=(Group("web"), Group("db"))), Enable("web"))
    rig.tell(ChangeTopology(vms=vms))
    return rig


def filled(rig: MaintenanceRig, _: int) -> None:
    """The other hosts get VMs that leave no room."""
    vms = tuple(Vm(f"big_{n}", f"h{n}", "db", memory_mib=2048) for n in (1, 2))
    rig.tell(ChangeTopology(vms=vms))


def moves_in(rig: MaintenanceRig, _: int) -> None:
    """The VM of another host is about to move to the host."""
    rig.ask(Cause.LIVE_MIGRATION, "h5", destination="h0")


def moving_in(rig: MaintenanceRig, _: int) -> None:
    """A user moves the VM of another host to the host."""
    move = rig.ask(Cause.REDEPLOY, "web_5", destination="h0")
    rig.show()
    rig.approve("web_5", move)


def far() -> MaintenanceRig:
    """A fleet whose last host has a VM of a group of its own."""
    rig = fleet()
    moved = ChangeTopology(groups=(Group("far"),), vms=(Vm("web_5", "h5", "far"),))
    rig.tell(moved, Enable("far"))
    return rig


def reboots_vm(rig: MaintenanceRig, _: int) -> None:
    """A VM of the host is rebooted by hand, and the work runs."""
    work = rig.ask(Cause.REBOOT, "web_0", source=Source.PLATFORM)
    rig.show()
    rig.approve("web_0", work)


def postpones(rig: MaintenanceRig, number: int) -> None:
    """The host's owner wants it later."""
    rig.tell(words.PostponeHosts(number, ("h0",), rig.now_ms + 5 * HOUR_MS, "alice"))


def declared(rig: MaintenanceRig, number: int) -> None:
    """The maintenance was declared, and its owners may still choose."""
    declaration = Declaration(rig.now_ms, rig.now_ms + DAY_MS, Severity.ROUTINE)
    known = rig.state.maintenances[number]
    rig.state.maintenances[number] = replace(known, declaration=declaration)


def first_tested(rig: MaintenanceRig, number: int) -> None:
    """The work was declared, and the owner wants another host to be done first."""
    first = FirstGroup("", "far", 3600)
    declaration = Declaration(
        rig.now_ms - DAY_MS, rig.now_ms, Severity.ROUTINE, first_groups=(first,)
    )
    known = rig.state.maintenances[number]
    rig.state.maintenances[number] = replace(known, declaration=declaration)


def removes(rig: MaintenanceRig, _: int) -> None:
    """The host leaves the fleet."""
    rig.tell(ChangeTopology(removed=(("vm", "web_0"), ("host", "h0"))))


def three() -> MaintenanceRig:
    """A host for each VM of one group, which may have one VM disturbed."""
    rig = MaintenanceRig()
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=4096) for n in range(3))
    vms = tuple(Vm(f"web_{n}", f"h{n}", "web", memory_mib=1024) for n in range(3))
    rig.tell(ChangeTopology(hosts=hosts, groups=(Group("web"),), vms=vms), Enable("web"))
    rig.tell(words.ApplyPolicy(MaintenancePolicy((Budget(Scope.GROUP, 1),))))
    return rig


def too_late(rig: MaintenanceRig, number: int) -> None:
    """The announced start is over, and the deadline is near."""
    rig.now_ms = rig.working(number)["h0"].not_before_ms + 1
    amended(deadline_ms=MINUTE_MS)(rig, number)


def arrives(rig: MaintenanceRig, _: int) -> None:
    """A VM that the plan does not move away is now on the host."""
    rig.tell(ChangeTopology(vms=(Vm("new", "h0", "web", memory_mib=512),)))


def loses_driver(rig: MaintenanceRig, _: int) -> None:
    """The driver of the host is not there any more."""
    terms = rig.terms()
    rig.terms = lambda *_: replace(terms, missing_driver=lambda _: "gone")  # type: ignore[method-assign]


def overlapping(plan: Plan) -> Plan:
    """A plan whose second wave begins with its first."""
    first, second = plan.waves
    times = {name: getattr(first, name) for name in ("shown_ms", "earliest_start_ms")}
    times |= {name: getattr(first, name) for name in ("latest_start_ms", "latest_end_ms")}
    ends = {"earliest_end_ms": plan.entries[0].earliest_end_ms}
    entries = (plan.entries[0], replace(plan.entries[1], **times, **ends))
    return replace(plan, entries=entries, waves=(first, replace(second, **times)))


def nothing(_: MaintenanceRig, __: int) -> None:
    """Nothing happens: the rule holds already."""


#: Code -> its situation.
SITUATIONS = {
    code_of("unknown-host"): Situation(removes, finding="unknown-host"),
    code_of("host-failed"): Situation(fails("h0"), finding="one-at-a-time"),
    code_of("host-busy"): Situation(
        asks(Cause.HOST_REBOOT, "h0"), finding="one-at-a-time", once_announced=fails("h0")
    ),
    code_of("vm-busy"): Situation(reboots_vm),
    code_of("fault-domain"): Situation(fails("h1"), finding="fault-domain"),
    code_of("arrivals"): Situation(moves_in, far, "arrivals", moving_in),
    code_of("budget"): Situation(fails("h5"), under(budgets=(Budget(Scope.FLEET, 1),)), "budget"),
    code_of("capacity"): Situation(filled, roomy, "capacity", move_s=600),
    code_of("own-moves"): Situation(nothing, three, hosts=("h0", "h1", "h2"), move_s=600),
    code_of("window"): Situation(freezes, finding="window"),
    code_of("window-too-short"): Situation(
        applies(windows=(Window("short", from_min=0, to_min=5),)), finding="window"
    ),
    code_of("deadline"): Situation(
        amended(deadline_ms=MINUTE_MS), finding="deadline", once_announced=too_late
    ),
    code_of("owner-rest"): Situation(fails("h5"), under(owner_rest_s=3600), "owner-rest"),
    code_of("previous-wave"): Situation(
        nothing, finding="waves", hosts=("h0", "h1"), broken=overlapping
    ),
    code_of("pause"): Situation(amended(rests_until_ms=DAY_MS), finding="waves"),
    code_of("notice"): Situation(applies(notice_s=7200), finding="notice"),
    code_of("postponed"): Situation(postpones, under(postpone_max_s=86_400), "earliest"),
    code_of("hand-back"): Situation(declared, finding="hand-back"),
    code_of("test-first"): Situation(first_tested, far, "test-first", hosts=("h0", "h5")),
    code_of("earliest-start"): Situation(amended(earliest_ms=DAY_MS), finding="earliest"),
    code_of("operator"): Situation(loses_driver),
    code_of("planning"): Situation(arrives, roomy, once_announced=applies(pause_s=1), move_s=600),
}


@dataclass
class Planned:
    """A maintenance with its plan in force, before and after the cause."""

    situation: Situation
    rig: MaintenanceRig = field(init=False)
    number: int = field(init=False)
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        """Plan, and hold every new plan back."""
        self.rig = self.situation.rig()
        self.number = self.rig.create(*self.situation.hosts, move_s=self.situation.move_s)
        self.plan = self.planned()
        self.rig.plans_made = False

    def happen(self) -> None:
        """Let the rule hold."""
        self.situation.cause(self.rig, self.number)

    def planned(self) -> Plan:
        """A new plan, from the state."""
        task = self.task()
        fleet, state = fleet_of(task.fleet), task.state
        return make_plan(fleet, state, task.policy, now_ms=task.now_ms, request=task.request)

    def task(self) -> PlannerTask:
        """What the planner and its checker are given, the plan in force apart."""
        rig, maintenance = self.rig, self.rig.state.maintenances[self.number]
        return planner_task(rig.state, maintenance, policy=rig.policy, now_ms=rig.now_ms)

    def findings(self, plan: Plan) -> set[str]:
        """The rules that a plan breaks, by the state as it is."""
        task = self.task()
        plan = replace(
            plan,
            request=plan_request(
                self.rig.state, self.rig.state.maintenances[self.number], self.rig.now_ms
            ),
        )
        found = check(plan, fleet_of(task.fleet), state=task.state, policy=task.policy)
        return {each.rule for each in found}

    def admitted(self) -> set[Code | int | None]:
        """The blocker of the first host, and from when on its work could start."""
        maintenance = self.rig.state.maintenances[self.number]
        draft = Draft(self.rig.state, self.rig.now_ms, self.rig.terms())
        admission, wave = Admission(draft, maintenance), self.plan.waves[0]
        blocker = admission.blocker("h0", wave)
        due = replace(wave, earliest_start_ms=self.rig.now_ms)
        return {blocker.code} if blocker else {admission.earliest_start_ms("h0", due)}


def named_by_planner(case: Planned, code: Code) -> bool:
    """Whether a new plan names a code and is a plan that may come into force."""
    case.happen()
    plan = case.planned()
    named = {blocker.code for _, blocker in plan.blocked} | {e.waits.code for e in plan.waves}
    return code in named and not case.findings(plan)


def found_by_checker(case: Planned, _: Code) -> bool:
    """Whether the checker finds, by the state after the cause, what the plan breaks."""
    rule, broken = case.situation.finding, case.situation.broken
    assert not case.findings(case.plan), "the plan keeps all rules before the cause"
    case.happen()
    plan = broken(case.planned()) if broken else case.plan
    return rule in case.findings(plan)


def refused_by_admission(case: Planned, code: Code) -> bool:
    """Whether the host is not announced, or its work may not start before a time."""
    assert case.admitted() == {None}, "the host could be announced before the cause"
    case.happen()
    [found] = case.admitted()
    later = {code_of("pause"), code_of("earliest-start")}
    return found == case.rig.now_ms + DAY_MS if code in later else found is code


def held_before_start(case: Planned, code: Code) -> bool:
    """Whether announced work waits, with the code, or is withdrawn."""
    rig, number = case.rig, case.number
    rig.plans_made = True
    rig.tell(words.StartMaintenance(number))
    rig.plans_made = False
    work = rig.working(number)["h0"]
    assert held(rig, work.number) == (set(), False), "nothing held the work before the cause"
    (case.situation.once_announced or case.situation.cause)(rig, number)
    codes, withdrawn = held(rig, work.number)
    return withdrawn or code in codes


def held(rig: MaintenanceRig, number: int) -> tuple[set[Code], bool]:
    """What announced work waits for, and whether it is withdrawn."""
    work = rig.now(number)
    if work.state is not OperationState.ANNOUNCED:
        return set(), work.state is OperationState.CANCELLED
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    codes = {each.code for each in start_blockers(draft, work)}
    return codes, bool(withdrawn_because(draft, work))


JUDGED: dict[Judge, Callable[[Planned, Code], bool]] = {
    Judge.PLANNER: named_by_planner,
    Judge.CHECKER: found_by_checker,
    Judge.ADMISSION: refused_by_admission,
    Judge.START: held_before_start,
}


DECLARED = [(code, judge) for code in SITUATIONS for judge in Judge if judge in code.meaning.judges]


@pytest.mark.parametrize(("code", "judge"), DECLARED, ids=lambda each: each.value)
def test_rule_is_judged_wherever_its_code_says(code: Code, judge: Judge) -> None:
    """A rule that one part of the program does not know is named with that part. Source: F-3."""
    judged = JUDGED[judge](Planned(SITUATIONS[code]), code)
    assert judged, f"the {judge.value} does not judge the rule {code.value}"


def test_every_rule_has_a_situation() -> None:
    """A new code says where it is judged, and a situation shows it."""
    rules = {code for code in every_code() if code.meaning.judges}
    assert rules == SITUATIONS.keys()
