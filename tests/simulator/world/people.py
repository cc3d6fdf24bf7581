"""Operators, users and the platform: what they ask for, and how they look after what got stuck.

What becomes of a request is decided by the product. Each activity draws from its own stream.
"""

from collections.abc import Callable
from concurrent.futures import Future

from forewarn_base.errors import CallerError
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    Cancel,
    ChangeTopology,
    Complete,
    PlaneStimulus,
    Repair,
    RequestMaintenance,
    Retry,
)
from forewarn_core.fleet.topology import Health
from tests.simulator.world import maintainers, tenants
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS
from tests.simulator.world.random_fleet import RandomFleet

S = OperationState

#: How long the platform waits until it reports a failed host again.
TELL_MS = 30_000
#: How often it is seen whether a failed host can hold its machines again.
BOOT_FAILED_MS = 10 * MINUTE_MS


#: Activities that come at even times, and go on while a world heals.
STEADY = frozenset({"attention"})


class People:
    """Everybody who asks the service for something, but the machines."""

    def __init__(self, world: RandomFleet) -> None:
        """Ask for nothing yet; `begin` does."""
        self.world = world
        self._healing = False
        self._dice = {name: Dice(world.seed, f"people/{name}") for name in ACTIVITIES}
        self._fault_dice = Dice(world.seed, "people/host fails")

    def begin(self, without: frozenset[str]) -> None:
        """Plan the first of each activity that is not left out."""
        for name in ACTIVITIES:
            if name not in without or name in STEADY:
                self._plan(name)

    def heal(self) -> None:
        """Ask for nothing new; look after what is left."""
        self._healing = True

    def submit(self, stimulus: PlaneStimulus, actor: str) -> bool:
        """Ask the service; return whether it agreed. A refusal is a fine answer."""
        answer = self.ask(stimulus, actor)
        return answer.done() and answer.exception() is None

    def ask(self, stimulus: PlaneStimulus, actor: str) -> Future[StepResult]:
        """Ask the service; return its answer, which may not have come yet."""
        world = self.world
        world.checker.operator_asks(stimulus)
        answer = world.service.submit(stimulus, actor)
        error = answer.exception() if answer.done() else None
        if isinstance(stimulus, Acknowledge) and answer.done() and error is None:
            world.checker.clients.acknowledged(stimulus.event_ids)
        if isinstance(error, CallerError):
            world.checker.operator_is_refused(stimulus)
            error.advice_text()
        return answer

    def host_fails(self, host: str, *, lost: bool) -> None:
        """A host fails, and what is on it; the platform reports it until it is heard."""
        world = self.world
        others = [name for name in world.topology.hosts if name != host]
        moves = lost and bool(others)
        cause = Cause.HOST_LOST if moves else Cause.HARDWARE_FAILURE
        destination = self._fault_dice.pick(others) if moves else ""
        machines = world.topology.vms_on(host)
        for name in machines:
            world.machines[name].halt()
        self._boot_failed_later(tuple(machines))
        self._tell_of(RequestMaintenance(cause=cause, targets=(host,), destination=destination))

    def _tell_of(self, failure: RequestMaintenance) -> None:
        """Report a failed host until the service accepts or refuses that."""
        world = self.world
        service, loop = world.service, world.service.loop
        worked_on = self._worked_on(failure.targets[0])
        answer = self.ask(failure, "platform")

        def look() -> None:
            if not answer.done() and world.service is service and service.loop is loop:
                world.queue.after(TELL_MS, look)  # it is paused, and may answer yet
            elif not answer.done() or not _is_answered(answer):
                self._tell_of(failure)

        if answer.done() and _is_answered(answer):
            if answer.exception() is None:
                world.fault_counts["host", "failed"] += 1
                world.fault_counts["host", "failed under work"] += worked_on
            return
        world.queue.after(TELL_MS, look)

    def _worked_on(self, host: str) -> bool:
        operations = self.world.checker.state.operations.values()
        return any(each.host == host and each.state is S.RUNNING for each in operations)

    def _boot_failed_later(self, names: tuple[str, ...]) -> None:
        self.world.queue.after(BOOT_FAILED_MS, lambda: self._boot_failed(names))

    def _boot_failed(self, names: tuple[str, ...]) -> None:
        """Switch on what failed with a host and is disturbed no more; a driver does the others."""
        disturbed = {
            name
            for operation in self.world.checker.state.operations.values()
            if operation.state is S.RUNNING
            for name in operation.vms
        }
        for name in names:
            if name not in disturbed and name in self.world.machines:
                self.world.machines[name].boot()
        left = tuple(name for name in names if name in disturbed)
        if left:
            self._boot_failed_later(left)

    def _plan(self, name: str) -> None:
        every_ms, _ = ACTIVITIES[name]
        dice = self._dice[name]
        steady = name in STEADY
        every_ms //= 1 if steady else self.world.plan.rate
        delay_ms = every_ms if steady else dice.between(every_ms // 20, 2 * every_ms)
        self.world.queue.after(delay_ms, lambda: self._act(name))

    def _act(self, name: str) -> None:
        if not self._healing or name in STEADY:
            ACTIVITIES[name][1](self, self._dice[name])
        self._plan(name)


def _is_answered(answer: Future[StepResult]) -> bool:
    """Whether the service has agreed, or refused for good."""
    error = answer.exception()
    return error is None or isinstance(error, CallerError)


def _routine(people: People, dice: Dice) -> None:
    """The operator asks for routine work on some hosts."""
    world = people.world
    cause = dice.pick(
        (Cause.HOST_UPDATE, Cause.HOST_REBOOT, Cause.NETWORK_UPDATE, Cause.LIVE_MIGRATION)
    )
    hosts = dice.some(list(world.topology.hosts), dice.pick((1, 1, 2, 4)))
    later_ms = world.service.clock.now_ms() + dice.between(1, 8) * HOUR_MS
    ask = RequestMaintenance(
        cause=cause,
        targets=tuple(hosts),
        not_before_ms=later_ms if dice.chance(250) else None,
        impact=Impact.REBOOT if cause is Cause.HOST_UPDATE and dice.chance(300) else None,
        destination=dice.pick(list(world.topology.hosts)) if cause is Cause.LIVE_MIGRATION else "",
        source=Source.USER if dice.chance(30) else None,
        queue=True,
    )
    people.submit(ask, "operator")


def _predict(people: People, dice: Dice) -> None:
    """A host is predicted to fail."""
    world = people.world
    hosts = list(world.topology.hosts)
    later_ms = world.service.clock.now_ms() + dice.between(1, 40) * HOUR_MS
    ask = RequestMaintenance(
        cause=Cause.HARDWARE_DEGRADED,
        targets=(dice.pick(hosts),),
        not_before_ms=None if dice.chance(100) else later_ms,
        destination=dice.pick(hosts) if dice.chance(700) else "",
    )
    people.submit(ask, "platform")


def _users(people: People, dice: Dice) -> None:
    """A user does something to some VMs."""
    world = people.world
    vms = list(world.topology.vms)
    if not vms:
        return
    cause = dice.pick((Cause.REBOOT, Cause.REBOOT, Cause.REDEPLOY, Cause.DELETION, Cause.REIMAGE))
    group = world.topology.vms[dice.pick(vms)].group
    members = world.topology.vms_in(group)
    if cause is Cause.DELETION and dice.chance(300):  # with notices of several lengths
        members = tuple(vms)
    count = dice.pick((1, 1, 2, 3))
    hosts = list(world.topology.hosts)
    move = cause is Cause.REDEPLOY and dice.chance(500)
    later_ms = world.service.clock.now_ms() + dice.between(1, 8) * HOUR_MS
    ask = RequestMaintenance(
        cause=cause,
        targets=tuple(dice.some(members, count)),
        destination=dice.pick(hosts) if move else "",
        source=Source.PLATFORM if dice.chance(100) else None,
        not_before_ms=later_ms if dice.chance(100) else None,
    )
    people.submit(ask, "user")


def _evict(people: People, dice: Dice) -> None:
    """The platform takes a Spot machine back."""
    world = people.world
    spots = [name for name, vm in world.topology.vms.items() if vm.spot]
    if spots:
        people.submit(
            RequestMaintenance(cause=Cause.EVICTION, targets=(dice.pick(spots),)), "platform"
        )


def _change(people: People, dice: Dice) -> None:
    """The fleet changes: lost machines are replaced, others move, groups get other options."""
    world = people.world
    missing = [vm for name, vm in world.wanted.items() if name not in world.topology.vms]
    if missing:
        people.submit(ChangeTopology(vms=tuple(dice.some(missing, 5))), "operator")
    vms = list(world.topology.vms.values())
    if not vms:
        return
    work = [each for o in world.checker.state.operations.values() for each in o.vms]
    under_work = [world.topology.vms[each] for each in work if each in world.topology.vms]
    vm = dice.pick(under_work if under_work and dice.chance(500) else vms)
    if dice.chance(300):
        people.submit(ChangeTopology(removed=(("vm", vm.name),)), "operator")
    elif dice.chance(500):
        people.submit(world.moved(vm, dice.pick(list(world.topology.hosts))), "operator")
    else:
        people.submit(world.regrouped(dice.pick(list(world.topology.groups)), dice), "operator")


def _intervene(people: People, dice: Dice) -> None:
    """The operator cancels, or approves from outside."""
    world = people.world
    state = world.checker.state
    if state.operations and dice.chance(400):
        people.submit(Cancel(dice.pick(list(state.operations)), "not now"), "operator")
    elif state.events:
        event_id = dice.pick(list(state.events))
        people.submit(
            Acknowledge((event_id.lower() if dice.chance(500) else event_id,)), "operator"
        )


def _attend(people: People, dice: Dice) -> None:
    """The operator looks after what is stuck, and repairs hosts."""
    world = people.world
    if not world.service.up:
        return
    healing = world.healing
    if healing:
        maintainers.finish(people)
    for operation in list(world.checker.state.operations.values()):
        if operation.alert in {Alert.OVERDUE, Alert.STUCK}:
            _unstick(people, operation, dice)
    for host in list(world.topology.hosts.values()):
        if host.health is not Health.HEALTHY and (healing or dice.chance(30)):
            people.submit(Repair(host.name), "operator")


def _unstick(people: People, operation: Operation, dice: Dice) -> None:
    if people.world.healing or dice.chance(300):
        failed = dice.chance(300)
        people.submit(Complete(operation.number, failed=failed, reason="seen to"), "operator")
    elif dice.chance(500):
        people.submit(Retry(operation.number), "operator")


#: Every activity, how often it comes on average in ms, and what it is.
ACTIVITIES: dict[str, tuple[int, Callable[[People, Dice], None]]] = {
    "routine": (2 * HOUR_MS, _routine),
    "prediction": (24 * HOUR_MS, _predict),
    "users": (HOUR_MS, _users),
    "evictions": (4 * HOUR_MS, _evict),
    "changes": (3 * HOUR_MS, _change),
    "meddling": (2 * HOUR_MS, _intervene),
    "attention": (20 * MINUTE_MS, _attend),
    "maintenances": (8 * HOUR_MS, maintainers.maintain),
    "policies": (16 * HOUR_MS, maintainers.apply_policy),
    "steering": (2 * HOUR_MS, maintainers.steer),
    "tenants": (HOUR_MS, tenants.answer),
    "deferrals": (4 * HOUR_MS, tenants.decide),
}

#: Activities that may be left out: without the steady ones nothing would ever heal.
OPTIONAL = tuple(name for name in ACTIVITIES if name not in STEADY)
