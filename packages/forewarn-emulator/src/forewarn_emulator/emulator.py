"""The emulator: the service with a movable clock, scenarios, faults, and a default VM.

The operator API, documents and approvals work as in the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from forewarn_base.clock import ScaledClock
from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_base.values import value
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import ChangeTopology, Enable
from forewarn_core.fleet.topology import Topology, Vm
from forewarn_drivers.simulated import SimulatedDriver
from forewarn_emulator import default_fleet
from forewarn_emulator.advisories import Advisories
from forewarn_emulator.attested_documents import AttestedDocuments
from forewarn_emulator.clock_control import ClockControl
from forewarn_emulator.faults import FaultPlan, FaultSpec
from forewarn_emulator.gone_vms import GoneVms
from forewarn_emulator.options import Options, margin_ms, settings_of
from forewarn_emulator.scenario import Scenario
from forewarn_emulator.scenario_runner import Run
from forewarn_emulator.vm_restore import VmRestore
from forewarn_metadata.endpoint.responder import EmulatedAnswers
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks

#: Most scenarios that run in parallel.
RUNS_MAX = 20
#: Most runs in memory, including ended runs.
RUNS_KEPT_MAX = 200


class VmUnknown(CallerError):
    """The VM of a scenario run does not exist."""

    code = "scenario-vm-unknown"
    status = 404
    message = "Scenario {name} cannot run on {vm}, because VM {vm} does not exist."
    advice = "Name a VM from `forewarn vm list`."


class VmMissing(CallerError):
    """The topology file does not contain a VM of --vm."""

    code = "vm-missing"
    status = 422
    message = "{place} has no VM {name}."
    advice = "Name a VM of the file, or omit --vm."


class FleetUnreadable(CallerError):
    """The topology file cannot be read."""

    code = "fleet-unreadable"
    status = 422
    message = "The fleet in {place} cannot be read. {problem}"
    advice = "See 'Describe a fleet' in the documentation."


class ScenarioBusy(CallerError):
    """The scenario is already running, or too many scenarios are running."""

    code = "scenario-busy"
    status = 409
    message = "Scenario {name} cannot run now: {problem}."
    advice = (
        "Wait for the end of the scenario, or stop the scenario with `forewarn emulator scenario "
        "stop`; `forewarn "
        "operation` shows the work on the machines."
    )


class ScenarioIdle(CallerError):
    """The scenario to stop is not running."""

    code = "scenario-idle"
    status = 409
    message = "Scenario {name} is not running."
    advice = "Run `forewarn emulator scenario list`."


class PreviewOff(CallerError):
    """A recommendation needs the preview api-version, which is off."""

    code = "preview-off"
    status = 409
    message = "Recommendations need the api-version 2024-07-09, which this emulator does not serve."
    advice = "Start the emulator with --preview."


class Audience(Protocol):
    """People who follow an emulator; called on the event loop."""

    def show(self, committed: StepResult, topology: Topology) -> None:
        """Show a commit, and the fleet after it."""

    def say(self, text: str) -> None:
        """Show a remark of a scenario."""


@value
class EmulatorParts:
    """The parts that an emulator adds to those of the active process."""

    #: Restores VMs that ended work has removed.
    comebacks: VmRestore
    pacing: ClockControl


class Emulator(Daemon):
    """An emulator; not thread-safe, for one event loop."""

    def __init__(
        self, options: Options, routes: Callable[[Emulator], Sequence[object]] = lambda _: ()
    ) -> None:
        """Create an emulator; `start` starts it.

        `routes` returns its own routes of the operator API.

        Raises:
            ClockSpeedInvalid: the speed is invalid.
        """
        clock = ScaledClock(options.speed)
        ids = Ids(options.seed)
        hooks = ServiceHooks(
            new_guid=None if options.seed is None else self._unused_guid,
            prepare=self._lay_out,
            emulated=self._emulated_answers,
            on_serving=self._follow,
            more_routes=lambda: routes(self),
        )
        super().__init__(settings_of(options), clock=clock, ids=ids, hooks=hooks)
        self.policy = replace(self.policy, adds_hosts=True)
        self.options = options
        self.pace: ScaledClock = clock
        #: Last run of each scenario, by name.
        self.runs: dict[str, Run] = {}
        self._audience: Audience | None = None
        self._faults: FaultPlan | None = None
        #: What the emulator adds to its service; None before the start and after the end.
        self._added: EmulatorParts | None = None
        self._gone_vms: GoneVms | None = None
        self.attested = AttestedDocuments(clock, lambda: self.bound)
        self._advisories = Advisories(self._unused_guid)
        self._loop = asyncio.get_running_loop()
        self._layout: Topology | None = None

    # --- life -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop scenarios and undo their changes, then stop all other parts."""
        await asyncio.gather(*(run.stop() for run in self.runs.values()))
        added, self._added = self._added, None
        if added is not None:
            self.clock.unlisten(self._clock_moved)
            added.comebacks.stop()
        await super().stop()

    def _follow(self) -> None:
        """Follow commits and the clock."""
        comebacks = VmRestore(self.control, self.clock)
        pacing = ClockControl(
            self.pace,
            self.control,
            driver=self.simulated,
            sleepers=lambda: (*self.runs.values(), comebacks),
            report_polls=self.metadata.service.last_polls,
        )
        self._added = EmulatorParts(comebacks, pacing)
        self.control.on_committed.add(self._on_commit)
        self.clock.listen(self._clock_moved)

    def _lay_out(self, plane: ControlPlane) -> None:
        """Create and enable the fleet before the first request, of VMs and operators. B-4."""
        self.operators.reserve()
        self._closing.callback(self.operators.release)
        now_ms = self.clock.now_ms()
        known = plane.state.topology
        change = self._missing_records(known)
        if not default_fleet.is_empty(change):
            plane.commit(change, actor=default_fleet.ACTOR, now_ms=now_ms)
        topology = plane.state.topology
        if not self.options.enable_on_first_request:
            for group in topology.groups:
                plane.commit(Enable(group, early=True), actor=default_fleet.ACTOR, now_ms=now_ms)
        names = self._names(topology)
        metadata = replace(self.settings.metadata, default_vm=names[0] if names else "")
        self.settings = replace(self.settings, metadata=metadata)
        self._layout = topology.copy()
        self._plane = plane
        for spec in self._faults.specs() if self._faults is not None else ():
            self._check_fault(spec)

    def _missing_records(self, known: Topology) -> ChangeTopology:
        """Return the change that adds the missing records to the store."""
        options = self.options
        if options.topology:
            described = _read_fleet(options.topology_name, options.topology)
            there = {vm.name for vm in described.vms}
            for name in options.vms:
                if name not in there:
                    raise VmMissing(name=name, place=options.topology_name)
            return default_fleet.completed(described, {})
        names = options.vms or ((default_fleet.DEFAULT_VM,) if not known.vms else ())
        whole = default_fleet.default_fleet(names, addresses=options.addresses)
        missing = tuple(vm for vm in whole.vms if vm.name not in known.vms)
        if not missing:
            return ChangeTopology()
        hosts = {vm.host for vm in missing} - known.hosts.keys()
        return replace(
            whole,
            hosts=tuple(host for host in whole.hosts if host.name in hosts),
            groups=tuple(group for group in whole.groups if group.name not in known.groups),
            vms=missing,
        )

    def _names(self, topology: Topology) -> tuple[str, ...]:
        """Return the names of VMs in the order of the options, the default VM first."""
        named = (self.settings.metadata.default_vm, *self.options.vms)
        return tuple(dict.fromkeys([*filter(topology.vms.__contains__, named), *topology.vms]))

    def _unused_guid(self) -> str:
        """Return a new event id, even after a restart with the same seed. Source: D-3."""
        while True:
            guid = self.ids.guid("event")
            if self.store.event(guid) is None:
                return guid

    # --- actions --------------------------------------------------------------------------

    @property
    def _running(self) -> EmulatorParts:
        assert self._added is not None, "the emulator runs"
        return self._added

    @property
    def pacing(self) -> ClockControl:
        """Moves the clock."""
        return self._running.pacing

    @property
    def simulated(self) -> SimulatedDriver:
        """The driver of all hosts that name none."""
        driver = self.drivers[SimulatedDriver.name]
        assert isinstance(driver, SimulatedDriver), driver
        return driver

    @property
    def default_vm(self) -> str:
        """The VM of callers without another identity."""
        return self.settings.metadata.default_vm

    @property
    def vms(self) -> tuple[str, ...]:
        """Names of the VMs, the default VM first; may be empty."""
        assert self._layout is not None
        names = dict.fromkeys([self.default_vm, *self._names(self._layout)])
        return tuple(name for name in names if name)  # the default VM may be missing

    def _emulated_answers(self) -> EmulatedAnswers:
        give_token = None
        if self.options.gone_vm != "404":
            from forewarn_emulator.gone_vms import GoneVmAnswer, GoneVms  # noqa: PLC0415 - seldom wanted

            answer = GoneVmAnswer(self.options.gone_vm)
            vms = [*self._layout.vms.values()] if self._layout else []
            self._gone_vms = GoneVms(answer, self.settings.metadata, vms)
        if self.options.azure:
            from forewarn_emulator.managed_identity import token_giver  # noqa: PLC0415 - seldom

            give_token = token_giver(self.settings.azure.token_key)
        added = self._advisories if self.settings.metadata.preview else None
        return EmulatedAnswers(self._gone_vms, give_token, self.attested.answer, added)

    def attach(self, audience: Audience) -> None:
        """Show further commits and the remarks of scenarios to people; on the event loop."""
        self._audience = audience

    def say(self, text: str) -> None:
        """Show people a remark of a scenario."""
        if self._audience is not None:
            self._audience.say(text)

    @property
    def faults(self) -> FaultPlan:
        """The fault plan, created on first use."""
        if self._faults is None:
            from forewarn_emulator.faults import FaultPlan  # noqa: PLC0415 - seldom wanted

            self._faults = FaultPlan(self._loop.time, lambda: self.ids.fraction("fault"))
        return self._faults

    def set_fault(self, spec: FaultSpec) -> None:
        """Set a fault.

        Raises:
            Unknown: the VM of the fault does not exist.
        """
        self._check_fault(spec)
        self.faults.set(spec)
        self.faults_changed()

    def _check_fault(self, spec: FaultSpec) -> None:
        if spec.vm and spec.vm not in self.vms:
            raise Unknown(kind="vm", name=spec.vm)

    def faults_changed(self) -> None:
        """Apply the current faults to the metadata service."""
        self.metadata.service.set_fault(self.faults or None)

    def recommend(self, vm: str) -> Callable[[], None]:
        """Show a VM a recommendation to leave; return the function that ends it. Source: Z-9.

        Raises:
            PreviewOff: no client could see it.
        """
        if not self.settings.metadata.preview:
            raise PreviewOff
        service = self.metadata.service
        view = service.view_of(vm)
        event_id, publication = self._advisories.begin(view, vm)
        if publication is not None:
            service.show(publication)

        def end() -> None:
            publication = self._advisories.end(view, event_id)
            if publication is not None:
                service.show(publication)

        return end

    async def set_speed(self, speed: float) -> None:
        """Change the clock's speed without shortening any notice.

        Raises:
            ClockSpeedInvalid: the speed is invalid.
        """
        self.pace.set_speed(speed)

        def keep_notice(plane: ControlPlane) -> None:
            plane.policy = replace(plane.policy, notice_margin_ms=margin_ms(speed))

        await asyncio.wrap_future(self.control.read(keep_notice))

    async def run_scenario(self, scenario: Scenario, vm: str = "") -> Run:
        """Start a scenario on a VM, by default the first VM.

        Raises:
            VmUnknown: the VM does not exist.
            ScenarioBusy: the scenario is running already, or too many scenarios are running.
            PreviewOff: no client could see its recommendation.
        """
        from forewarn_emulator.scenario import Recommendation  # noqa: PLC0415 - seldom wanted at start
        from forewarn_emulator.scenario_machines import stage_for  # noqa: PLC0415
        from forewarn_emulator.scenario_runner import Run, ScenarioControl  # noqa: PLC0415

        name = scenario.name
        live = [run.scenario.name for run in self.runs.values() if not run.over]
        if name in live:
            raise ScenarioBusy(name=name, problem="the scenario is already running")
        if len(live) >= RUNS_MAX:
            raise ScenarioBusy(name=name, problem=f"{RUNS_MAX} scenarios are running")
        if name in self.runs and self.runs[name].left:
            left = ", ".join(self.runs[name].left)
            raise ScenarioBusy(name=name, problem=f"work still uses {left} of the last run")
        recommends = any(isinstance(each.act, Recommendation) for each in scenario.steps)
        if recommends and not self.settings.metadata.preview:
            raise PreviewOff
        vm = vm or self.default_vm
        await self._running.comebacks.restore_now(vm)
        topology = await asyncio.wrap_future(self.control.read(lambda plane: plane.state.topology))
        stage = stage_for(topology, vm)
        if stage is None:
            raise VmUnknown(name=name, vm=vm)
        self._forget_runs(name)
        run = self.runs[name] = Run(
            scenario,
            stage,
            ScenarioControl(
                self.control,
                self.clock,
                self.ids,
                self.say,
                self.simulated.courses,
                self.recommend,
            ),
        )
        self.say(f"scenario {name} begins on {vm}: {scenario.title}")
        run.start()
        return run

    def _forget_runs(self, name: str) -> None:
        """Delete the last run of the same scenario, and the oldest ended runs beyond the limit."""
        self.runs.pop(name, None)
        ended = [each for each, run in self.runs.items() if run.over and not run.left]
        for each in ended[: max(len(self.runs) - RUNS_KEPT_MAX + 1, 0)]:
            del self.runs[each]

    async def stop_scenario(self, name: str) -> Run:
        """Stop a scenario; return after its changes are undone.

        Raises:
            ScenarioIdle: the scenario is not running.
        """
        run = self.runs.get(name)
        if run is None or run.over:
            raise ScenarioIdle(name=name)
        await run.stop()
        return run

    # --- following ------------------------------------------------------------------------

    def _clock_moved(self) -> None:
        """Wake all parts that wait for the clock; called on the thread that changed the clock."""
        self.bridge.call(self._wake)

    def _wake(self) -> None:
        added = self._added
        if added is None:  # the emulator has stopped meanwhile
            return
        self.metadata.service.clock_moved()
        for run in self.runs.values():
            run.wake()
        added.comebacks.wake()

    def _on_commit(self, committed: StepResult) -> None:
        """Process a commit; called on the control loop's thread."""
        assert self._layout is not None
        before = after = self._layout
        if committed.changes.of_fleet:
            self._layout = after = self._plane.state.topology.copy()
        removed_vms = [before.vms[name] for name in _restorable(committed) if name in before.vms]
        if not self.options.enable_on_first_request:
            for entry in committed.entries:
                if entry.action == "group.added":
                    self.control.note(Enable(entry.group, early=True), default_fleet.ACTOR)
        if committed.entries:
            self.bridge.call(lambda: self._report(committed, after, removed_vms))

    def _report(self, committed: StepResult, topology: Topology, removed_vms: list[Vm]) -> None:
        if self._gone_vms is not None:
            self._follow_gone(self._gone_vms, committed, topology)
        for vm in removed_vms:
            if self._added is not None and vm.name not in topology.vms:
                self._added.comebacks.away(vm)
        for run in self.runs.values():
            run.wake()
        if self._audience is not None:
            self._audience.show(committed, topology)

    def _follow_gone(self, gone_vms: GoneVms, committed: StepResult, topology: Topology) -> None:
        """Track new VMs, and forget those that an operator has removed."""
        touched = {entry.vm for entry in committed.entries if entry.action.startswith("vm.")}
        gone_vms.know(topology.vms[name] for name in touched if name in topology.vms)
        ended = set(_ended_vms(committed))
        gone_vms.forget(
            {name for name in touched if name not in topology.vms and name not in ended}
        )


def _read_fleet(name: str, text: str) -> ChangeTopology:
    """Return the fleet of a topology file."""
    from forewarn_base.validation.fields import ValidationFailed  # noqa: PLC0415 - if one is named
    from forewarn_base.validation.json_reader import BodyUnreadable  # noqa: PLC0415 - the same
    from forewarn_server.api.topology_file import ENDINGS, read_topology  # noqa: PLC0415

    media = ENDINGS.get(name[name.rfind(".") :].lower() if "." in name else "")
    if media is None:
        raise FleetUnreadable(place=name, problem="The extension must be .toml, .yaml or .json.")
    try:
        return read_topology(text.encode(), media)
    except (BodyUnreadable, ValidationFailed) as error:
        raise FleetUnreadable(place=name, problem=error) from error


def _restorable(committed: StepResult) -> list[str]:
    """Return the VMs removed by operations that the emulator must restore."""
    gone = {entry.vm for entry in committed.entries if entry.action == "vm.removed"}
    return [
        name
        for name, actor in _ended_vms(committed).items()
        if name in gone and not actor.startswith(default_fleet.KEEPS_AWAY)
    ]


def _ended_vms(committed: StepResult) -> dict[str, str]:
    """Return the evicted or deleted VMs, with the actors who requested the work."""
    reasons: dict[str, str] = {}
    for entry in committed.entries:
        row = entry.images[0].row if entry.images else None
        if row is None or entry.action != "operation.succeeded":
            continue
        if row["cause"] in {"eviction", "deletion"}:
            reasons[entry.vm] = str(row["actor"])
    return reasons
