"""The commands of transcripts: each does one thing on a deployment and says what was answered.

No expectation is compared in here (`transcript.py`), no change is reported (`change_report.py`).
"""

from collections.abc import Callable
from functools import partial

from forewarn_base.errors import ForewarnError
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    Cancel,
    ChangeTopology,
    Complete,
    DriverDone,
    DriverFailed,
    Enable,
    PlaneStimulus,
    Repair,
    RequestMaintenance,
    Retry,
)
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from tests.simulator.transcripts.change_report import ChangeReport
from tests.simulator.transcripts.fault_commands import FaultCommands
from tests.simulator.transcripts.grammar import Options, Words, meant, read
from tests.simulator.transcripts.maintenance_commands import MaintenanceCommands
from tests.simulator.transcripts.scripted_deployment import (
    BY_PROXY,
    ScriptedDeployment,
    ScriptedDriver,
    call_counts,
)
from tests.simulator.transcripts.time_spans import clock_time, seconds
from tests.simulator.transcripts.vm_commands import VmCommands
from tests.simulator.world.event_queue import START_MS

#: What an operator can ask of hosts.
CAUSES = {
    "update": Cause.HOST_UPDATE,
    "reboot": Cause.HOST_REBOOT,
    "migrate": Cause.LIVE_MIGRATION,
    "network": Cause.NETWORK_UPDATE,
    "degrade": Cause.HARDWARE_DEGRADED,
    "fail": Cause.HARDWARE_FAILURE,
    "lose": Cause.HOST_LOST,
}
#: What a user, or the platform, can ask of VMs.
VM_CAUSES = {
    "reboot": Cause.REBOOT,
    "redeploy": Cause.REDEPLOY,
    "delete": Cause.DELETION,
    "reimage": Cause.REIMAGE,
    "evict": Cause.EVICTION,
}


class CommandRunner:
    """Does the commands of one transcript."""

    def __init__(self) -> None:
        """Build the deployment."""
        self._driver = ScriptedDriver()
        self._drivers = (self._driver, self._driver.also(BY_PROXY))
        self.deployment = ScriptedDeployment(*self._drivers)
        for driver in self._drivers:
            driver.begins = self.deployment.checker.begins
            driver.aborts = partial(self.deployment.checker.aborts, heard=True)
            driver.passes = self.deployment.crash_point.passes
        self._report = ChangeReport(self.deployment)
        self._silent: set[str] = set()
        self._maintenances = MaintenanceCommands(self.deployment, self._submit)
        self._inside = VmCommands(self.deployment, self._report)
        self._commands: dict[str, Callable[[Words, Options], list[str]]] = {
            "host": self._host,
            "group": self._group,
            "vm": self._vm,
            "move": self._move,
            "remove": self._remove,
            "operator": self._operator,
            "user": self._user,
            "platform": self._platform,
            "driver": self._drive,
            "agent": self._inside.agent,
            **FaultCommands(self.deployment, self._silent).commands,
        }

    def do(self, command: str) -> list[str]:
        """Do one command; return what was answered.

        Raises:
            ValueError: it is not a command, or cannot be done as things are.
            CallerError: what it describes cannot be.
        """
        order = read(command)
        lines = self._commands[order.words[0]](order.words[1:], order.options)
        self._report.learn()
        return lines

    def changes(self) -> list[str]:
        """Everything that is different since the last time it was asked."""
        while self.deployment.queue.step(self.deployment.queue.now_ms):
            pass
        lines = [*self._inside.heard(), *self.deployment.news]
        self.deployment.news.clear()
        return [*lines, *self._maintenances.changes(), *self._report.changes()]

    # ---- the fleet -----------------------------------------------------------------------------

    def _host(self, words: Words, options: Options) -> list[str]:
        number = len(self.deployment.topology.hosts)
        fault_domain = int(options.get("fd", number))
        update_domain = int(options.get("ud", number))
        zone, driver = options.get("zone", ""), options.get("driver", "")
        host = Host(words[0], fault_domain, update_domain, zone=zone, driver=driver)
        return self._submit(ChangeTopology(hosts=(host,)))

    def _group(self, words: Words, options: Options) -> list[str]:
        name = words[0]
        if words[1:] in (("silent",), ("again",)):
            if name not in self.deployment.topology.groups:
                raise ValueError(f"there is no group {name}{meant(name, self._report.groups)}")
            change = self._silent.add if "silent" in words else self._silent.discard
            change(name)
            return []
        if "together" in options:
            self.deployment.places[name] = options["together"]
        automatic = options.get("automatic", "")
        group = Group(
            name,
            GroupKind(options.get("kind", "availability-set")),
            owner=options.get("owner", ""),
            fault_domain_count=int(options.get("domains", 0)),
            strict_approval="strict" in words,
            automatic_approval=frozenset(Impact(each) for each in automatic.split(",") if each),
            terminate_notice_s=seconds(options.get("terminate", "0s")),
            reimage_notice="reimage" in words,
        )
        answered = self._submit(ChangeTopology(groups=(group,)))
        if name not in self._report.groups:
            self._report.groups.append(name)
            if "disabled" not in words:
                self._submit(Enable(name))
                self._report.skip()
        return answered

    def _vm(self, words: Words, options: Options) -> list[str]:
        if "on" not in options:
            return self._inside.commands[words[1]](words[0], words[2:], options)
        name, group = words[0], options.get("group", words[0])
        if group not in self.deployment.topology.groups:
            self._group((group,), {})
        if options.get("node") == "far":
            self.deployment.far.add(name)
        vm = Vm(
            name,
            options["on"],
            group,
            size=options.get("size", ""),
            gpu="gpu" in words,
            spot="spot" in words,
            addresses=(f"vm-{name}",),
        )
        answered = self._submit(ChangeTopology(vms=(vm,)))
        self._report.skip() if not answered else None
        return answered

    def _move(self, words: Words, options: Options) -> list[str]:
        vm = self.deployment.topology.vms.get(words[0])
        if vm is None:
            raise ValueError(
                f"there is no VM {words[0]}{meant(words[0], self.deployment.topology.vms)}"
            )
        return self._submit(ChangeTopology(vms=(replace(vm, host=options["to"]),)))

    def _remove(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        return self._submit(ChangeTopology(removed=((words[0], words[1]),)))

    # ---- people --------------------------------------------------------------------------------

    def _operator(self, words: Words, options: Options) -> list[str]:
        verb, rest = words[0], words[1:]
        if verb in CAUSES:
            return self._submit(_asked(CAUSES[verb], rest, options))
        if verb == "repair":
            return self._submit(Repair(rest[0]))
        if verb == "acknowledge":
            event_ids = tuple(self._report.id_of(each) for each in rest)
            self.deployment.checker.acknowledged.update(event_ids)
            return self._submit(Acknowledge(event_ids))
        if verb in {"maintenance", "policy"} or (rest and rest[0].startswith("m-")):
            return self._maintenances.operator(verb, rest, options)
        number = int(rest[0].removeprefix("op-"))
        reason = " ".join(rest[1:])
        if verb == "why":
            operation = self._operation(rest[0])
            return [self._report.shorten(each.text) for each in self._report.waiting(operation)]
        if verb == "cancel":
            return self._submit(Cancel(number, reason))
        if verb == "complete":
            return self._submit(Complete(number, reason=reason))
        if verb == "give-up":
            return self._submit(Complete(number, failed=True, reason=reason))
        assert verb == "retry", verb
        retries = self.deployment.checker.retries
        retries[number] = retries.get(number, 0) + 1
        return self._submit(Retry(number))

    def _user(self, words: Words, options: Options) -> list[str]:
        return self._submit(_asked(VM_CAUSES[words[0]], words[1:], options), "user")

    def _platform(self, words: Words, options: Options) -> list[str]:
        return self._submit(_asked(VM_CAUSES[words[0]], words[1:], options), "platform")

    def _submit(self, stimulus: PlaneStimulus, actor: str = "operator") -> list[str]:
        answer = self.deployment.service.submit(stimulus, actor)
        if not answer.done():
            return ["no answer"]
        error = answer.exception()
        if error is None:
            return []
        assert isinstance(error, ForewarnError), error
        return [f"refused {error.status}: {self._report.shorten(str(error))}"]

    # ---- the driver ----------------------------------------------------------------------------

    def _drive(self, words: Words, options: Options) -> list[str]:  # noqa: ARG002
        verb, rest = words[0], words[1:]
        if verb == "begun":
            return [f"begun: {call_counts(self._driver.begun) or 'nothing'}"]
        if verb == "aborted":
            return [f"aborted: {call_counts(self._driver.aborted) or 'nothing'}"]
        if verb == "hangs":
            for driver in self._drivers:
                driver.hangs = True
            return []
        if verb == "refuses":
            self._driver.refuses = " ".join(rest)
            return []
        operation = self._operation(rest[0])
        key = (operation.number, operation.execution.attempt)
        self.deployment.checker.reported[key] = self.deployment.queue.now_ms
        if verb == "finishes":
            return self._submit(DriverDone(operation.number, operation.execution.attempt), "driver")
        assert verb == "breaks", verb
        reason = " ".join(rest[1:])
        return self._submit(
            DriverFailed(operation.number, operation.execution.attempt, reason), "driver"
        )

    def _operation(self, name: str) -> Operation:
        number = int(name.removeprefix("op-"))
        known = self.deployment.checker.operations
        if number not in known:
            raise ValueError(f"there is no {name}{meant(name, (f'op-{each}' for each in known))}")
        return known[number]


def _asked(cause: Cause, targets: Words, options: Options) -> RequestMaintenance:
    """Return what is asked for, with what else is said of it."""
    after = options.get("not-before")
    return RequestMaintenance(
        cause=cause,
        targets=tuple(targets),
        impact=Impact(options["impact"]) if "impact" in options else None,
        description=options.get("description"),
        source=Source(options["source"]) if "source" in options else None,
        duration_s=seconds(options["duration"]) if "duration" in options else None,
        not_before_ms=START_MS + clock_time(after) * 1000 if after else None,
        destination=options.get("to", ""),
    )
