"""Random work as a control plane has it: stimuli of every kind that a store must hold."""

import random
from collections.abc import Iterator
from contextlib import suppress

from forewarn_base.errors import CallerError
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import ApplyPolicy, CreateMaintenance, PlaneStimulus
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.requests import ApprovalRequest

OF_HOSTS: tuple[Cause, ...] = (Cause.HOST_REBOOT, Cause.HOST_UPDATE)
OF_VMS: tuple[Cause, ...] = (Cause.REBOOT, Cause.REDEPLOY, Cause.REIMAGE, Cause.DELETION)
TEXTS = ("", "Ümläut → 7", 'it\'s 100 % \\ "quoted"', "x" * 900)


class RandomWork:
    """Draws stimuli that fit a state; most of them are not refused."""

    def __init__(self, seed: int) -> None:
        """Draw by a seed."""
        self._random = random.Random(seed)
        self._made = 0

    def next(self, state: State) -> PlaneStimulus:
        """Return something that may happen in a state."""
        seldom = (self._fleet, self._approve, self._shown, self._operator, self._time, self._polls)
        often = (self._request, self._driver)
        draw = self._random.choice((*seldom, self._maintenance, *often, *often))
        return draw(state)

    def several(self, state: State) -> Iterator[PlaneStimulus]:
        """Yield what happens at the same instant, each as the state is by then."""
        for _ in range(self._random.choice((1, 1, 2, 5))):
            with suppress(CallerError):  # some do not even make sense
                yield self.next(state)

    def wait_ms(self) -> int:
        """Return how much time passes before it."""
        return self._random.choice((1, 1000, 60_000, 900_000))

    def _fleet(self, state: State) -> PlaneStimulus:
        self._made += 1
        known = sorted(state.topology.vms)
        if known and self._random.random() < 0.3:
            return words.ChangeTopology(removed=(("vm", self._random.choice(known)),))
        name, group = f"v{self._made}", f"g{self._random.randrange(4)}"
        host = Host(f"h{self._random.randrange(5)}", fault_domain=self._random.randrange(3))
        tags = (("note", self._random.choice(TEXTS)),)
        return words.ChangeTopology(
            (host,), (Group(group),), (Vm(name, host.name, group, tags=tags),)
        )

    def _request(self, state: State) -> PlaneStimulus:
        hosts, vms = sorted(state.topology.hosts), sorted(state.topology.vms)
        if not vms or self._random.random() < 0.5:
            cause, target = self._random.choice(OF_HOSTS), self._random.choice(hosts or ["none"])
        else:
            cause, target = self._random.choice(OF_VMS), self._random.choice(vms)
        text = self._random.choice(TEXTS)[:200] or None
        return words.RequestMaintenance(cause=cause, targets=(target,), description=text)

    def _approve(self, state: State) -> PlaneStimulus:
        events = sorted(state.events.values(), key=lambda each: each.id)
        if not events:
            return self._polls(state)
        event = self._random.choice(events)
        if self._random.random() < 0.3 or not event.resources:
            return words.Acknowledge((event.id,))
        return ApprovalRequest(self._random.choice(event.resources), (event.id,), "")

    def _shown(self, state: State) -> PlaneStimulus:
        announced = OperationState.ANNOUNCED
        unseen = [n for n, each in state.operations.items() if each.state is announced]
        return words.NoticeShown(tuple(unseen)) if unseen else words.Tick()

    def _driver(self, state: State) -> PlaneStimulus:
        running = [
            each for each in state.operations.values() if each.state is OperationState.RUNNING
        ]
        if state.aborts and self._random.random() < 0.5:
            return words.DriverAborted(next(iter(state.aborts)))
        if not running:
            return words.Tick()
        one = self._random.choice(running)
        number, attempt = one.number, one.execution.attempt
        reports: tuple[PlaneStimulus, ...] = (
            words.DriverBegun(number, attempt),
            words.DriverProgressed(number, attempt, "migrating", self._random.randrange(101)),
            words.DriverDone(number, attempt),
            words.DriverFailed(number, attempt, self._random.choice(TEXTS) or "it broke"),
        )
        return self._random.choice(reports)

    def _operator(self, state: State) -> PlaneStimulus:
        if not state.operations:
            return words.Tick()
        number = self._random.choice(sorted(state.operations))
        kinds = (words.Cancel(number, "not today"), words.Complete(number), words.Retry(number))
        return self._random.choice(kinds)

    def _time(self, state: State) -> PlaneStimulus:  # noqa: ARG002 - time passes in every state
        return self._random.choice((words.Tick(), words.Recover(0)))

    def _polls(self, state: State) -> PlaneStimulus:
        groups = sorted(state.topology.groups)
        if not groups:
            return words.Tick()
        group = self._random.choice(groups)
        asked: tuple[PlaneStimulus, ...] = (
            words.Enable(group),
            words.GroupsPolled(frozenset({group})),
        )
        return self._random.choice(asked)

    def _maintenance(self, state: State) -> PlaneStimulus:
        hosts = tuple(sorted(state.topology.hosts))
        if not hosts or self._random.random() < 0.5:
            return ApplyPolicy(
                MaintenancePolicy(budgets=(Budget(Scope.FLEET, self._random.randrange(1, 9)),))
            )
        reason = self._random.choice(TEXTS)[:200]
        return CreateMaintenance(Cause.HOST_UPDATE, hosts, 600, reason=reason)
