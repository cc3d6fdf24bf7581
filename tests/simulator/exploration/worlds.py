"""The small fleets that are explored, and all that anybody may do to them."""

from dataclasses import dataclass

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    AskDeferral,
    CancelMaintenance,
    ChangeTopology,
    ChooseStarts,
    CreateMaintenance,
    DecideDeferral,
    DeclareMaintenance,
    HoldHosts,
    HostChoice,
    NameFirstGroup,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.hand_back import Severity

#: How far ahead failures are foreseen: days would only be more of the same time.
PREDICTION_S = 1500
POLICY = NoticePolicy(prediction_s=PREDICTION_S, overdue_after_s=1200)
HOSTS = (Host("a", 0, 0, "1"), Host("b", 1, 1, "2"))
SPARE = Host("c", 0, 2, "2")
WEB, DB = Group("web", owner="ann", terminate_notice_s=300), Group("db", terminate_notice_s=600)
VMS = (Vm("web_0", "a", "web"), Vm("web_1", "b", "web"), Vm("db_0", "a", "db", spot=True))


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """A fleet, what may be asked of it once each, and what may go wrong."""

    name: str
    #: What is asked for; each is asked for once at most, up to `asks_max` of them.
    asks: tuple[RequestMaintenance, ...]
    asks_max: int = 2
    #: Which part of all the states that are visited are its own, in percent.
    share: int = 20
    #: What may become of the layout, once each.
    changes: tuple[ChangeTopology, ...] = ()
    #: What operators and owners say of maintenances, once each.
    words: tuple[PlaneStimulus, ...] = ()
    #: What has happened before.
    before: tuple[PlaneStimulus, ...] = ()
    hosts: tuple[Host, ...] = HOSTS
    groups: tuple[Group, ...] = (WEB, DB)
    vms: tuple[Vm, ...] = VMS
    #: Groups that are enabled from the start.
    enabled: tuple[str, ...] = ("web", "db")
    policy: NoticePolicy = POLICY
    crashes: int = 1
    #: How often another writer takes over.
    failovers: int = 0
    #: Whether operators cancel, acknowledge, complete, retry and repair, and drivers fail.
    operators: bool = False
    #: Whether groups fall silent and come back.
    silence: bool = False

    @property
    def start(self) -> ChangeTopology:
        """The fleet as it is laid out first."""
        return ChangeTopology(hosts=self.hosts, groups=self.groups, vms=self.vms)


def ask(
    cause: Cause, *targets: str, to: str = "", impact: Impact | None = None
) -> RequestMaintenance:
    """Somebody asks for work."""
    return RequestMaintenance(cause=cause, targets=targets, destination=to, impact=impact)


STRICT = Group("web", owner="ann", terminate_notice_s=300, strict_approval=True)
GPUS = Group("web", GroupKind.SCALE_SET, owner="ann", fault_domain_count=1, terminate_notice_s=300)
C = Cause

#: When the worlds begin.
START_MS = 1_790_000_100_000
HAND_BACK_S = 3600
CHOSEN_MS = START_MS + 2400 * 1000
DECLARING = MaintenancePolicy(
    hand_back_s=HAND_BACK_S,
    hand_back_max_s=4 * HAND_BACK_S,
    deferral_limit_s=900,
    deferral_decision_s=600,
)


def choices(*owners: str, host: str = "a", at_ms: int = CHOSEN_MS, **more: bool) -> ChooseStarts:
    """Owners choose the same start on a host; 0: they hand it back."""
    decision = Decision.AT if at_ms else Decision.RELEASE
    every = tuple(HostChoice(host, owner, decision, at_ms, **more) for owner in owners)
    return ChooseStarts(1, every, "owner")


def deferral(owner: str, by_s: int) -> AskDeferral:
    """An owner asks for a later deadline of host a."""
    until_ms = START_MS + (HAND_BACK_S + by_s) * 1000
    return AskDeferral(1, (("a", owner),), until_ms, "a sale", owner)


WORLDS: tuple[SmallWorld, ...] = (
    SmallWorld(
        "routine",
        (ask(C.HOST_REBOOT, "a"), ask(C.HOST_UPDATE, "b"), ask(C.LIVE_MIGRATION, "b", to="a")),
        asks_max=2,
        share=35,
        failovers=1,
    ),
    SmallWorld(
        "people",
        (ask(C.HOST_REBOOT, "a"), ask(C.HOST_UPDATE, "b"), ask(C.REBOOT, "web_1")),
        asks_max=2,
        share=5,
        crashes=0,
        operators=True,
    ),
    SmallWorld(
        "deletions",
        (
            ask(C.DELETION, "web_0", "web_1", "db_0"),
            ask(C.EVICTION, "db_0"),
            ask(C.HOST_REBOOT, "a"),
        ),
        asks_max=2,
        share=15,
        changes=(ChangeTopology(groups=(WEB,)),),
        groups=(STRICT, DB),
    ),
    SmallWorld(
        "failures",
        (
            ask(C.HARDWARE_FAILURE, "a"),
            ask(C.HARDWARE_FAILURE, "a", to="b"),
            ask(C.HARDWARE_DEGRADED, "a", to="b"),
            ask(C.HOST_REBOOT, "b"),
        ),
        asks_max=2,
        share=20,
        operators=True,
    ),
    SmallWorld(
        "fleet",
        (ask(C.HOST_REBOOT, "a"), ask(C.REDEPLOY, "web_0", to="b"), ask(C.DELETION, "web_1")),
        asks_max=2,
        share=10,
        changes=(
            ChangeTopology(vms=(Vm("web_1", "a", "web"),)),
            ChangeTopology(vms=(Vm("web_0", "b", "web", gpu=True),)),
            ChangeTopology(groups=(GPUS,)),
            ChangeTopology(removed=(("vm", "db_0"), ("group", "db"))),
            ChangeTopology(removed=(("vm", "web_1"), ("host", "b"))),
            ChangeTopology(hosts=(SPARE,), vms=(Vm("db_0", "c", "db", spot=True),)),
        ),
    ),
    SmallWorld(
        "silence",
        (ask(C.HOST_REBOOT, "a"), ask(C.REBOOT, "web_1"), ask(C.DELETION, "web_0", "web_1")),
        asks_max=2,
        share=5,
        groups=(STRICT, DB),
        enabled=(),
        policy=NoticePolicy(prediction_s=PREDICTION_S, overdue_after_s=1200, disable_after_s=840),
        silence=True,
        operators=True,
        crashes=1,
    ),
    SmallWorld(
        "declared",
        (ask(C.HOST_REBOOT, "a"),),
        asks_max=1,
        share=5,
        groups=(WEB, Group("db", owner="bob", terminate_notice_s=600)),
        policy=NoticePolicy(prediction_s=PREDICTION_S, overdue_after_s=1200, maintenance=DECLARING),
        before=(
            CreateMaintenance(C.HOST_REBOOT, ("a", "b"), 600),
            DeclareMaintenance(1, Severity.ROUTINE),
        ),
        words=(
            choices("ann", "bob", approves=True),
            choices("ann"),
            choices("bob", at_ms=CHOSEN_MS + 300_000),
            choices("bob", at_ms=0),
            choices("ann", host="b", at_ms=CHOSEN_MS + 1_800_000),
            deferral("ann", 600),
            deferral("bob", 1800),
            DecideDeferral(1, "bob", grants=True, by="operator"),
            ApplyPolicy(replace(DECLARING, freezes=((CHOSEN_MS - 60_000, CHOSEN_MS + 60_000),))),
            CancelMaintenance(1),
        ),
        crashes=1,
    ),
    SmallWorld(
        "test first",
        (),
        asks_max=0,
        share=5,
        groups=(WEB, Group("trial", owner="ann", terminate_notice_s=600)),
        vms=(Vm("web_0", "a", "web"), Vm("web_1", "b", "web"), Vm("trial_0", "b", "trial")),
        enabled=("web", "trial"),
        policy=NoticePolicy(prediction_s=PREDICTION_S, overdue_after_s=1200, maintenance=DECLARING),
        before=(
            CreateMaintenance(C.HOST_REBOOT, ("a", "b"), 600),
            DeclareMaintenance(1, Severity.ROUTINE),
        ),
        words=(
            NameFirstGroup(1, "ann", "trial", 900, "ann"),
            NameFirstGroup(1, "ann", "", 1, "ann"),
            HoldHosts(1, "ann", "errors", "ann"),
            HoldHosts(1, "ann", "", "ann"),
            choices("ann"),
            choices("ann", host="b"),
            choices("ann", host="b", at_ms=0),
            choices("ann", at_ms=0),
        ),
        crashes=0,
        operators=True,
    ),
)
