"""Operators who maintain the fleet: maintenances of many hosts, policies, and words in the middle.

What becomes of a word is decided by the product. Each activity draws from its own stream.
"""

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Maintenance, MaintenanceState
from forewarn_core.fleet.policy import maintenance_policy
from forewarn_core.fleet.stimulus import ChangeTopology, PlaneStimulus
from forewarn_core.fleet.topology import select
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window
from tests.simulator.world import tenants
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import DAY_MS, HOUR_MS, MINUTE_MS
from tests.simulator.world.operators import Operators

M = MaintenanceState

#: Maintenances that operators have going at a time.
LIVE_MAX = 3
#: The gates there are: what the first finds is drawn, the other waits for polls.
GATE, POLLS = "smoke-test", "polls"
#: Time zones of windows: with and without daylight saving, and half an hour off.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland")
#: What counts VMs: a host with more of them than may be disturbed at once can never be done.
OF_VMS = frozenset({Scope.GROUP, Scope.OWNER})
#: Shortest window in minutes: a wave takes its notice and half an hour.
WINDOW_MIN = 240
#: Memory of a host that any VMs fit on.
ROOMY_MIB = 1 << 20
#: The shortest hand-back windows, and the longest: worlds are short.
HAND_BACK_S, URGENT_S, HAND_BACK_MAX_S = 900, 600, 2 * 24 * 3600
#: What is in force until an operator applies another policy.
DECLARING = MaintenancePolicy(
    hand_back_s=HAND_BACK_S,
    urgent_hand_back_s=URGENT_S,
    hand_back_max_s=HAND_BACK_MAX_S,
    deferral_limit_s=1800,
    deferral_decision_s=3 * 3600,
)
#: How long the work on a host may take.
DURATIONS_S = (60, 600, 1800)


def maintain(people: Operators, dice: Dice) -> None:
    """An operator describes a maintenance, and most often has it begin."""
    world = people.world
    live = world.checker.state.maintenances
    if len(live) >= LIVE_MAX:
        return
    now_ms = world.service.clock.now_ms()
    hosts = _hosts(people, dice)
    cause = dice.pick((Cause.HOST_REBOOT, Cause.HOST_UPDATE, Cause.NETWORK_UPDATE))
    updates = cause is Cause.HOST_UPDATE and dice.chance(300)
    earliest_ms = now_ms + dice.between(1, 12) * HOUR_MS if dice.chance(200) else None
    move_s = dice.pick(DURATIONS_S) if dice.chance(300) else 0
    ask = stimuli.CreateMaintenance(
        cause,
        hosts,
        dice.pick(DURATIONS_S),
        impact=Impact.REBOOT if updates else None,
        earliest_ms=earliest_ms,
        deadline_ms=now_ms + dice.between(8, 72) * HOUR_MS if dice.chance(250) else None,
        priority=dice.below(3),
        budgets=_own_budgets(dice, world.topology.hosts["h0"].zone),
        canary_hosts=hosts[:1] if dice.chance(200) else (),
        max_failures=dice.pick((0, 1, 5)),
        gate=dice.pick((GATE, POLLS)) if dice.chance(500) else "",
        move_s=move_s,
        return_vms=bool(move_s) and dice.chance(500),
    )
    answer = people.ask(ask, "operator")
    if answer.done() and answer.exception() is None:
        created = answer.result().maintenance
        assert created is not None
        if dice.chance(850):
            tenants.begin(people, created.number, dice)


def apply_policy(people: Operators, dice: Dice) -> None:
    """An operator applies another policy, also in the middle of maintenances."""
    zone = people.world.topology.hosts["h0"].zone
    now_ms = people.world.service.clock.now_ms()
    frozen_ms = now_ms + dice.between(-4, 24) * HOUR_MS // 2
    freeze_ms = dice.pick((MINUTE_MS, 10 * MINUTE_MS, dice.between(1, 12) * HOUR_MS))
    policy = MaintenancePolicy(
        budgets=_budgets(dice, zone),
        windows=_windows(dice),
        freezes=((frozen_ms, frozen_ms + freeze_ms),) if dice.chance(500) else (),
        pause_s=dice.pick((0, 300, 1800)),
        owner_rest_s=dice.pick((0, 0, 1800, 7200)),
        canary_count=dice.pick((0, 0, 1, 2)),
        postpone_max_s=dice.pick((0, 4, 24)) * HOUR_MS // 1000,
        wait_until_shown=dice.pick(
            (("Reboot", "Redeploy"), (), ("Freeze", "Preempt", "Terminate"))
        ),
        duration_percentile=dice.pick((0, 50, 90, 100)),
        duration_label=dice.pick(("", "zone", "rack")),
        duration_samples=dice.pick((1, 2, 5)),
        hand_back_s=HAND_BACK_S,
        urgent_hand_back_s=URGENT_S,
        hand_back_max_s=HAND_BACK_MAX_S,
        deferral_limit_s=dice.pick((0, 1800, 4 * 3600)),
        deferral_decision_s=dice.pick((0, 600, 3 * 3600)),
        require_declaration=dice.chance(100),
    )
    people.submit(stimuli.ApplyPolicy(policy), "operator")


def steer(people: Operators, dice: Dice) -> None:
    """An operator has a say in a maintenance: often in one whose work is approved and held."""
    state = people.world.checker.state
    live = list(state.maintenances.values())
    approved = {each.operation for each in state.events.values() if each.approved_by and each.live}
    held = [
        state.maintenances[each.maintenance]
        for each in state.operations.values()
        if each.number in approved
        and each.state is OperationState.ANNOUNCED
        and each.maintenance in state.maintenances
    ]
    live = held if held and dice.chance(500) else live
    if live:
        word = _word(dice.pick(live), dice, now_ms=people.world.service.clock.now_ms())
        if word is not None:
            people.submit(word, "operator")


def _word(maintenance: Maintenance, dice: Dice, *, now_ms: int) -> PlaneStimulus | None:
    number = maintenance.number
    if dice.chance(400 if maintenance.keeps_announced else 100):
        return stimuli.CancelMaintenance(number, "not needed any more")
    if maintenance.state is M.DRAFT:
        return stimuli.StartMaintenance(number)
    if maintenance.state is not M.RUNNING:
        return stimuli.ResumeMaintenance(number)
    if dice.chance(300):
        hosts = tuple(dice.some(list(maintenance.hosts), dice.between(1, 2)))
        until_ms = now_ms + dice.between(1, 8) * HOUR_MS
        return stimuli.PostponeHosts(number, hosts, until_ms, "an owner", "not now")
    if dice.chance(300):
        return stimuli.PauseMaintenance(number, "let us see", dice.chance(400))
    return None


def heal(people: Operators) -> None:
    """Apply a policy under which every host can be done, and buy memory, so that VMs can leave."""
    world = people.world
    hosts = world.checker.state.topology.hosts.values()
    roomy = tuple(replace(each, memory_mib=ROOMY_MIB) for each in hosts)
    people.submit(ChangeTopology(hosts=roomy), "operator")
    before = maintenance_policy(world.checker.state.policies.get("fleet"), world.policy)
    budgets = tuple(each for each in before.budgets if each.scope not in OF_VMS)
    people.submit(stimuli.ApplyPolicy(replace(before, budgets=budgets)), "operator")


def finish(people: Operators) -> None:
    """While a world heals: what halts goes on, what can never be done any more is cancelled."""
    heal(people)
    world = people.world
    now_ms = people.world.service.clock.now_ms()
    for maintenance in list(people.world.checker.state.maintenances.values()):
        number = maintenance.number
        late = maintenance.deadline_ms and maintenance.deadline_ms < now_ms
        plan = world.checker.state.plans.get(maintenance.plan)
        alone = plan and any(each.subject == "no other host" for _, each in plan.body.blocked)
        if maintenance.state is M.DRAFT or late or alone:
            people.submit(stimuli.CancelMaintenance(number, "comes too late"), "operator")
        elif maintenance.state is not M.RUNNING:
            people.submit(stimuli.ResumeMaintenance(number), "operator")


def _hosts(people: Operators, dice: Dice) -> tuple[str, ...]:
    """Hosts by name, or by a selector."""
    hosts = people.world.topology.hosts
    if dice.chance(500):
        return tuple(dice.some(list(hosts), dice.pick((1, 3, 5, 8))))
    of = hosts[dice.pick(list(hosts))]
    rack = dict(of.labels)["rack"]
    return select(hosts.values(), dice.pick((f"zone={of.zone}", f"rack={rack}")))


def _budgets(dice: Dice, zone: str) -> tuple[Budget, ...]:
    """A few budgets, each with room for one host or half a group."""
    drawn = (
        Budget(Scope.FLEET, dice.between(1, 4)),
        Budget(Scope.FLEET, dice.pick((20, 40)), percent=True),
        Budget(Scope.ZONE, dice.between(1, 3)),
        Budget(Scope.ZONE, 1, name=zone),
        Budget(Scope.RACK, dice.between(1, 2)),
        Budget(Scope.LABEL, dice.between(1, 3), name="row=odd"),
        Budget(Scope.LABEL, 1, name="rack=r0"),
        Budget(Scope.GROUP, dice.pick((60, 100)), percent=True),
        Budget(Scope.OWNER, dice.pick((50, 100)), percent=True),
    )
    return tuple(dice.some(drawn, dice.pick((0, 1, 2, 3))))


def _own_budgets(dice: Dice, zone: str) -> tuple[Budget, ...]:
    """What a maintenance adds, which nobody can take back."""
    drawn = _budgets(dice, zone) if dice.chance(300) else ()
    return tuple(each for each in drawn if each.scope not in OF_VMS)


def _windows(dice: Dice) -> tuple[Window, ...]:
    """No window, one for everybody, or one for everybody and another one for some."""
    if dice.chance(400):
        return ()
    every = _window(dice, "nightly", ())
    return (every, _window(dice, "odd rows", ("row=odd",))) if dice.chance(300) else (every,)


def _window(dice: Dice, name: str, hosts: tuple[str, ...]) -> Window:
    from_min = dice.below(48) * 30
    to_min = (from_min + dice.between(WINDOW_MIN, 16 * 60)) % (DAY_MS // 60_000)
    days = tuple(range(7)) if dice.chance(700) else (0, 2, 4, 5)
    return Window(name, dice.pick(ZONES), days, from_min, to_min or 1, hosts=hosts)
