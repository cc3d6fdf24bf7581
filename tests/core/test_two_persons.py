"""The guards of two persons belong to effects, and two persons are two. Source: P-8."""

import dataclasses

import pytest

from forewarn_base.values import replace
from forewarn_core.access.confirmations import (
    AskerNotPermitted,
    Confirmation,
    ConfirmationsFull,
    OwnConfirmation,
)
from forewarn_core.access.roles import Authority, Permission, Role
from forewarn_core.access.stimulus import (
    AddToken,
    AskConfirmation,
    Grant,
    ResumeToken,
    Revoke,
    RevokeToken,
)
from forewarn_core.access.tokens import AccessToken, digest_of
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.guards import ConfirmationNeeded
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    ChangeTopology,
    Confirmed,
    Enable,
    PlaneStimulus,
    RequestMaintenance,
    StartMaintenance,
)
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_core.planning.policy import ConfirmedAct, MaintenancePolicy
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS, Rig

ADMIN = Authority("user:root", built_in=True)
BEN, EVE = Authority("oidc:ben", names=("oidc:ben",)), Authority("oidc:eve", names=("group:ops",))


def rig(*acts: ConfirmedAct, above: int = 0, period_s: int = 86_400) -> MaintenanceRig:
    """Six hosts with a VM each, of three groups that listen; ben and the group ops are operators.

    The policy confirms some acts.
    """
    rig = MaintenanceRig()
    numbers = range(6)
    rig.tell(
        ChangeTopology(
            hosts=tuple(Host(f"h{n}", n) for n in numbers),
            groups=(Group("web", owner="shop", strict_approval=True), Group("db"), Group("new")),
            vms=tuple(Vm(f"v{n}", f"h{n}", "web", addresses=(f"10.0.0.{n}",)) for n in numbers),
        ),
        Enable("web"),
        Grant("oidc:ben", Role.OPERATOR),
        Grant("group:ops", Role.OPERATOR),
        ApplyPolicy(
            MaintenancePolicy(confirm=acts, confirm_above=above, confirm_period_s=period_s)
        ),
    )
    rig.caller = BEN
    return rig


def reboot(*hosts: str) -> RequestMaintenance:
    """Work on hosts."""
    return RequestMaintenance(cause=Cause.HOST_REBOOT, targets=hosts)


def started(rig: MaintenanceRig, *hosts: str) -> StartMaintenance:
    """Describe a maintenance; return what starts it."""
    return StartMaintenance(rig.create(*hosts))


def waiting(rig: Rig, asker: Authority, permission: Permission = Permission.OPERATE) -> int:
    """Have a call of somebody wait; return its number."""
    call = Confirmation(
        0,
        asker.principal,
        f"operator {asker.principal}",
        "POST /v1/hosts/h0/fail",
        "{}",
        "application/json",
        rig.now_ms,
        0,
        token=asker.token,
        names=asker.names,
        built_in=asker.built_in,
        permission=permission.value,
    )
    rig.tell(AskConfirmation(call))
    return max(rig.state.access.confirmations)


FAILURE = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0",))


# ---- many hosts --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["maintenance", "request", "vms", "one by one"])
def test_work_of_one_principal_is_counted_whichever_way_it_goes(way: str) -> None:
    """Two maintenances, or one request, or work on the VMs: the hosts are the same. P-8."""
    fleet = rig(ConfirmedAct.START_MAINTENANCE, above=3)
    fleet.tell(started(fleet, "h0", "h1"))
    fleet.tell(reboot("h2"))
    vms = RequestMaintenance(cause=Cause.REBOOT, targets=("v3", "v4"))
    ways = {"maintenance": started(fleet, "h3"), "request": reboot("h3", "h4"), "vms": vms}
    fleet.refuses(ways.get(way, reboot("h5")), ConfirmationNeeded)
    fleet.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("v0",)))  # its host counts already


def test_hosts_count_for_a_time_and_for_each_principal() -> None:
    """Also of work that has ended; eve's are not ben's. Source: P-8."""
    fleet = rig(ConfirmedAct.START_MAINTENANCE, above=1, period_s=3600)
    operation = fleet.ask(Cause.HARDWARE_FAILURE, "h0")
    fleet.wait(DAY_MS)
    fleet.finish(operation)
    fleet.wait(3_599_999)
    fleet.refuses(reboot("h1"), ConfirmationNeeded)
    fleet.caller = EVE
    fleet.tell(reboot("h1"))
    fleet.caller = BEN
    fleet.wait(1)
    fleet.tell(reboot("h2"))


def test_work_of_many_days_for_one_moment_counts_together() -> None:
    """Work that waits for its start counts, however long ago it was requested. Source: P-8."""
    fleet = rig(ConfirmedAct.START_MAINTENANCE, above=1, period_s=3600)
    start_ms = fleet.now_ms + 9 * DAY_MS
    first, second = (
        dataclasses.replace(reboot(host), not_before_ms=start_ms) for host in ("h0", "h1")
    )
    number = fleet.tell(first).numbers[0]
    fleet.wait(2 * DAY_MS)
    fleet.refuses(second, ConfirmationNeeded)
    fleet.tell(stimuli.Cancel(number), second)  # what never started does not count


def test_confirmed_work_does_not_count() -> None:
    """Two persons have seen it. Source: P-8."""
    fleet = rig(ConfirmedAct.START_MAINTENANCE, above=1)
    start, number = started(fleet, "h0", "h1", "h2"), waiting(fleet, BEN)
    fleet.caller = EVE
    fleet.tell(Confirmed(number, start))
    for fleet.caller, host in ((BEN, "h3"), (EVE, "h4")):
        fleet.tell(reboot(host))


def test_hosts_of_a_running_maintenance_count_until_it_ends() -> None:
    """However long it runs; after its end those that it worked on. Source: P-8."""
    fleet = rig(ConfirmedAct.START_MAINTENANCE, above=1)
    number = fleet.create("h0", budgets=())
    fleet.plans_made = False
    fleet.tell(StartMaintenance(number))
    fleet.wait(3 * DAY_MS)
    fleet.refuses(reboot("h1"), ConfirmationNeeded)
    fleet.tell(stimuli.CancelMaintenance(number))
    fleet.tell(reboot("h1"))


# ---- who answers -------------------------------------------------------------------------------

V0 = Vm("v0", "h0", "web", addresses=("10.0.0.0",))


@pytest.mark.parametrize(
    "change",
    [
        {"vms": (replace(V0, addresses=("192.0.2.1",)),)},
        {"vms": (replace(V0, addresses=("10.0.0.0", "192.0.2.1")),)},
        {"vms": (replace(V0, addresses=()),)},
        {"vms": (replace(V0, interface="tap9"),)},
        {"vms": (replace(V0, instance_id="i-9"),)},
        {"vms": (replace(V0, group="new"),)},
        {"vms": (Vm("fake", "h0", "web", addresses=("192.0.2.1",)),)},
        {"removed": (("vm", "v0"),)},
    ],
)
def test_machine_that_answers_is_changed_by_two(change: dict[str, object]) -> None:
    """An operator who takes a VM's address could answer as the VM. Source: P-8."""
    fleet, stimulus = rig(ConfirmedAct.MOVE_ADDRESS), ChangeTopology(**change)  # type: ignore[arg-type]
    fleet.refuses(stimulus, ConfirmationNeeded)
    fleet.caller = None
    fleet.tell(stimulus)


@pytest.mark.parametrize(
    "change",
    [
        {"vms": (replace(V0, size="Standard_D2", host="h1"),)},
        {"vms": (Vm("n0", "h0", "new", addresses=("192.0.2.1",)),)},
        {"groups": (Group("other"),), "vms": (Vm("n0", "h0", "other"),)},
        {"hosts": (Host("h9"),)},
    ],
)
def test_other_changes_of_the_fleet_need_one(change: dict[str, object]) -> None:
    """VMs move, and new groups get VMs, which nobody else answers for. Source: P-8."""
    rig(ConfirmedAct.MOVE_ADDRESS, ConfirmedAct.ANSWER).tell(ChangeTopology(**change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("owner", "mallory"),
        ("strict_approval", False),
        ("automatic_approval", frozenset({Impact.REBOOT})),
        ("terminate_notice_s", 0),
        ("reimage_notice", False),
        ("approves_when_down", True),
        ("kind", GroupKind.SCALE_SET),
        ("fault_domain_count", 1),
    ],
)
def test_owner_is_asked_less_by_two(option: str, value: object) -> None:
    """An option that makes approvals or notices unneeded answers for the owner. Source: P-8."""
    fleet = rig(ConfirmedAct.ANSWER)
    fleet.caller = None
    careful = {"strict_approval": True, "reimage_notice": True, "approves_when_down": False}
    group = Group("web", owner="shop", terminate_notice_s=600, **careful)  # type: ignore[arg-type]
    fleet.tell(ChangeTopology(groups=(group,)))
    fleet.caller = BEN
    less = ChangeTopology(groups=(replace(group, **{option: value}),))
    fleet.refuses(less, ConfirmationNeeded)
    fleet.caller = None
    fleet.tell(less)
    fleet.caller = BEN
    if option not in {"owner", "kind", "fault_domain_count"}:  # who is shown what changes again
        fleet.tell(ChangeTopology(groups=(group,)))  # asked more


@pytest.mark.parametrize(
    "stimulus",
    [
        Grant("oidc:mallory", Role.OPERATOR),
        AddToken(AccessToken("t9", "bot", Role.VIEWER, "", "", 0, None)),
        ResumeToken("t1"),
    ],
)
def test_principals_are_created_by_two(stimulus: PlaneStimulus) -> None:
    """Where the policy says so; taking access away needs nobody. Source: P-8."""
    fleet = rig(ConfirmedAct.CREATE_PRINCIPAL)
    fleet.caller = None
    fleet.tell(AddToken(token("t1", "ci")))
    fleet.caller = ADMIN
    fleet.refuses(stimulus, ConfirmationNeeded)
    fleet.tell(RevokeToken("t1"), Revoke("oidc:ben", Role.OPERATOR))


# ---- two persons -------------------------------------------------------------------------------


def token(token_id: str, principal: str, *, expires_ms: int | None = None) -> AccessToken:
    """An operator's token."""
    return AccessToken(token_id, principal, Role.OPERATOR, "", digest_of("x"), 0, expires_ms)


def bearer(rig: Rig, maker: Authority | None, name: str) -> Authority:
    """Have somebody create a token; return the authority of its holder."""
    rig.caller = maker
    rig.tell(AddToken(token(f"t-{name}", name)))
    return Authority(name, token=f"t-{name}")


def test_token_counts_for_everybody_who_may_know_its_secret() -> None:
    """Who made it, who made the maker's token, and others of the same maker. Source: P-11."""
    fleet = rig(ConfirmedAct.FAIL_HOST)
    anna = bearer(fleet, None, "anna")
    puppet = bearer(fleet, anna, "puppet")
    second = bearer(fleet, anna, "second")
    nested = bearer(fleet, puppet, "nested")
    other = bearer(fleet, ADMIN, "other")
    third = bearer(fleet, other, "third")
    for asker, confirmer in (
        *((anna, anna), (anna, puppet), (puppet, anna), (puppet, second)),
        *((anna, nested), (second, nested), (other, ADMIN), (ADMIN, other)),
        (third, ADMIN),
    ):
        fleet.caller = confirmer
        refused = fleet.refuses(Confirmed(waiting(fleet, asker), FAILURE), OwnConfirmation)
        assert asker.principal in str(refused)
    fleet.caller = nested
    number = next(n for n, c in fleet.state.access.confirmations.items() if c.principal == "other")
    fleet.tell(Confirmed(number, FAILURE))


def test_token_whose_creation_is_confirmed_counts_for_who_received_it() -> None:
    """The answer with the secret is for the second person. Source: P-11."""
    fleet = rig(ConfirmedAct.CREATE_PRINCIPAL, ConfirmedAct.FAIL_HOST)
    fleet.caller = EVE
    fleet.tell(Confirmed(waiting(fleet, BEN), AddToken(token("t-bot", "bot"))))
    assert fleet.state.access.tokens["t-bot"].makers == ("oidc:eve",)
    fleet.caller = Authority("bot", token="t-bot")
    fleet.refuses(Confirmed(waiting(fleet, EVE), FAILURE), OwnConfirmation)
    fleet.tell(Confirmed(waiting(fleet, BEN), FAILURE))


@pytest.mark.parametrize("lost", ["token", "expired", "binding", "group", "earlier release"])
def test_call_is_judged_again_when_it_is_confirmed(lost: str) -> None:
    """Its caller may have been revoked meanwhile. Source: P-11."""
    fleet = rig(ConfirmedAct.FAIL_HOST)
    fleet.caller = None
    fleet.tell(AddToken(token("t1", "ci", expires_ms=fleet.now_ms + 1000)))
    askers = {"binding": BEN, "group": EVE, "earlier release": Authority("oidc:ben")}
    asker = askers.get(lost, Authority("ci", token="t1"))
    number = waiting(fleet, asker)
    losses: dict[str, PlaneStimulus] = {
        "token": RevokeToken("t1"),
        "binding": Revoke("oidc:ben", Role.OPERATOR),
        "group": Revoke("group:ops", Role.OPERATOR),
    }
    if lost in losses:
        fleet.tell(losses[lost])
    fleet.now_ms += 1000 if lost == "expired" else 0
    fleet.caller = ADMIN
    fleet.refuses(Confirmed(number, FAILURE), AskerNotPermitted)
    assert number in fleet.state.access.confirmations


def test_call_needs_its_own_permission_when_it_is_confirmed() -> None:
    """An admin who is an operator now asks for no token any more. Source: P-11."""
    fleet = rig(ConfirmedAct.CREATE_PRINCIPAL)
    number = waiting(fleet, BEN, Permission.ADMINISTER)
    fleet.caller = ADMIN
    act = AddToken(token("t-bot", "bot"))
    fleet.refuses(Confirmed(number, act), AskerNotPermitted)
    fleet.caller = None
    fleet.tell(Grant("oidc:ben", Role.ADMIN))
    fleet.caller = ADMIN
    fleet.tell(Confirmed(number, act))


def test_one_principal_does_not_fill_all_places() -> None:
    """Others' calls still find room. Source: P-8."""
    fleet = rig(ConfirmedAct.FAIL_HOST)
    call = Confirmation(0, "oidc:ben", "", "POST /v1/hosts/h0/fail", "", "", fleet.now_ms, 0)
    for number in range(10):
        fleet.tell(AskConfirmation(replace(call, body=str(number))))
    refused = fleet.refuses(AskConfirmation(replace(call, body="more")), ConfirmationsFull)
    assert "of oidc:ben" in str(refused)
    fleet.tell(AskConfirmation(replace(call, principal="oidc:eve")))


def test_call_that_is_refused_does_not_wait() -> None:
    """What could not be executed is refused at once. Source: P-8."""
    fleet = rig(ConfirmedAct.FAIL_HOST, ConfirmedAct.START_MAINTENANCE)
    fleet.refuses(reboot("none"), Unknown)


def test_role_of_one_owner_is_none_of_the_fleet() -> None:
    """Who has become an owner may not have the former call executed. Source: P-2, P-8."""
    fleet = rig(ConfirmedAct.FAIL_HOST)
    number = waiting(fleet, BEN, Permission.APPROVE)
    fleet.caller = None
    fleet.tell(Revoke("oidc:ben", Role.OPERATOR), Grant("oidc:ben", Role.OWNER, "shop"))
    fleet.caller = ADMIN
    fleet.refuses(Confirmed(number, FAILURE), AskerNotPermitted)
