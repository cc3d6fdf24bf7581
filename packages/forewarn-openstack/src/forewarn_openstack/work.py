"""The work of each operation on a cloud: moves, reboots and removals of servers.

`servers.py` and `moves.py` contain the actions on one server. `driver.py` calls this module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from forewarn_base.errors import PeerError
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_core.fleet.lifecycle import FollowedBy
from forewarn_drivers import FINISHED, WorkStep
from forewarn_drivers.command.runner import ProgramRun, ProgramRuns
from forewarn_drivers.messages import encoded, task_message
from forewarn_drivers.task_records import TaskSuperseded
from forewarn_openstack.client import Nova, NovaBusy, NovaRefused, NovaUnreachable
from forewarn_openstack.moves import ServerMoves
from forewarn_openstack.servers import ServerFailed, Servers

#: Time limit for the start of a command, in seconds.
START_S = 30
#: Default number of servers handled in parallel, and maximum number of servers handled per call.
AT_ONCE_MAX, LOOKS_MAX = 20, 50


class NovaWorkUnsupported(PeerError):
    """The driver does not support this operation."""

    code = "nova-work-unsupported"
    message = "The nova driver cannot carry out {cause} with impact {impact}: {reason}."
    advice = "Do the work by hand and run `forewarn operation complete`, or fail the operation."


class NovaCommandFailed(PeerError):
    """A configured command failed."""

    code = "nova-command-failed"
    message = "{setting} of host {host} failed: {reason}."
    advice = "Check the host; retry the operation if the command has not done its work."


class NovaHostAway(PeerError):
    """A host's compute service did not return after its reboot or failure."""

    code = "nova-host-away"
    message = "The compute service of host {host} is not up after {seconds} s."
    advice = "Check the host; then retry or fail the operation."


class NovaStillWorking(PeerError):
    """Nova still works on an aborted operation."""

    code = "nova-still-working"
    message = "Nova still works on {vm}."
    advice = "The driver retries until Nova has finished."


#: Maximum length of a disabled service's reason in Nova, in characters.
REASON_MAX = 255
ENABLED, DISABLED, UP = "enabled", "disabled", "up"


class HostUnknown(PeerError):
    """The cloud has no compute service on a host."""

    code = "nova-host-unknown"
    message = "The cloud has no compute service on host {host}."
    advice = "Check `openstack compute service list --service nova-compute`."


class ComputeHosts:
    """The compute services of a cloud, changed for one operation."""

    def __init__(self, nova: Nova, key: str) -> None:
        self._nova = nova
        self._mark = f"forewarn {key}: "

    def disable(self, host: str, why: str) -> None:
        """Disable a host's compute service, unless already disabled by another program."""
        service = self._service(host)
        if service["status"] == ENABLED:
            reason = f"{self._mark}{why}"[:REASON_MAX]
            self._change(service, {"status": DISABLED, "disabled_reason": reason})

    def enable(self, host: str) -> None:
        """Enable a host's compute service that this operation has disabled."""
        service = self._service(host)
        reason = service["disabled_reason"] or ""
        if service["status"] == DISABLED and reason.startswith(self._mark):
            self._change(service, {"status": ENABLED})

    def force_down(self, host: str) -> None:
        """Force a host's compute service down, until an operator clears this state."""
        service = self._service(host)
        if not service["forced_down"]:
            self._change(service, {"forced_down": True})

    def is_up(self, host: str) -> bool:
        """Whether a host's compute service is up."""
        return str(self._service(host)["state"]) == UP

    def _service(self, host: str) -> dict[str, Any]:
        query = {"binary": "nova-compute", "host": host}
        services: list[dict[str, Any]] = self._nova.get("/os-services", **query)["services"]
        if not services:
            raise HostUnknown(host=host)
        return services[0]

    def _change(self, service: dict[str, Any], body: dict[str, Any]) -> None:
        self._nova.put(f"/os-services/{service['id']}", body)


class ServerWork:
    """The work of one task, advanced by a step with each call."""

    def __init__(self, servers: Servers, attempts: list[int], runs: ProgramRuns) -> None:
        """`attempts` contains this attempt, then the earlier attempts of its work."""
        self._servers = servers
        self._operation = servers.task.operation
        self._config = servers.config
        self._moves = ServerMoves(servers)
        # After a move, the following work of the same maintenance enables the service again.
        shared = self._operation.maintenance and not self._operation.of_vm
        owner = f"m-{self._operation.maintenance}" if shared else servers.key
        self._hosts = ComputeHosts(servers.nova, owner)
        self._attempts = attempts
        self._runs = runs

    def advance(self) -> WorkStep:
        """Do the currently possible work; send some requests for each server in progress.

        Raises:
            ForewarnError: the task failed; `NovaUnreachable` permits a retry.
        """
        operation = self._operation
        traits = TRAITS[operation.cause]
        if operation.impact in {Impact.PREEMPT, Impact.TERMINATE}:
            return self._advance_all("remove", self._servers.remove)
        if traits.fault and operation.impact is Impact.REDEPLOY:
            return self._bring_up_elsewhere()
        if traits.fault:
            return self._start_again()
        if operation.impact is Impact.REDEPLOY:
            return self._drain(self._moves.cold)
        if operation.impact is Impact.FREEZE and traits.moves:
            return self._drain(self._moves.alive)
        if operation.impact is Impact.FREEZE:
            return self._update()
        if operation.cause is Cause.REIMAGE:
            return self._advance_all("rebuild", self._servers.rebuild)
        if operation.of_vm or not self._config.reboot_command:
            return self._reboot_servers()
        return self._reboot_host()

    def call_off(self) -> None:
        """End Nova's remaining work; resume servers and enable services of this operation.

        Raises:
            NovaStillWorking: Nova still works; the next call continues.
        """
        for attempt in self._attempts:
            for setting in ("reboot_command", "update_command", "fence_command"):
                self._runs.signal(self._operation.number, attempt, f"{setting}/")
        vms = self._operation.vms
        calm = [vm for vm in vms if self._moves.call_off(vm)]
        if self._operation.impact is Impact.FREEZE and not TRAITS[self._operation.cause].moves:
            calm = [vm for vm in calm if self._servers.unpause(vm).done]
        if not self._operation.of_vm:
            with suppress(HostUnknown):
                self._hosts.enable(self._operation.host)
        for vm in vms:
            if vm not in calm:
                raise NovaStillWorking(vm=vm)

    def _advance_all(
        self, phase: str, act: Callable[[str], WorkStep], at_once: int = AT_ONCE_MAX
    ) -> WorkStep:
        """Advance all servers by a step; raise the first failure at the end."""
        memory, vms = self._servers.memory, self._operation.vms
        left = [vm for vm in vms if (phase, vm) not in {*memory.finished, *memory.failed}]
        going: list[WorkStep] = []
        for vm in left[:LOOKS_MAX]:
            if len(going) < at_once:
                step = self._step((phase, vm), act)
                going += [] if step.done else [step]
        over = [vm for vm in vms if (phase, vm) in {*memory.finished, *memory.failed}]
        if len(over) < len(vms):
            share = (len(over) + sum(each.share for each in going)) / len(vms)
            return WorkStep(text="; ".join(each.text for each in going), share=share)
        for vm in vms:
            if (phase, vm) in memory.failed:
                raise memory.failed[phase, vm]
        return FINISHED

    def _step(self, part: tuple[str, str], act: Callable[[str], WorkStep]) -> WorkStep:
        """Advance one server by a step, and store the result."""
        memory, vm = self._servers.memory, part[1]
        try:
            step = act(vm)
            if step.done:
                memory.finished.add(part)
            return step
        except NovaBusy as busy:  # another client changed the server
            try:
                return self._servers.going(vm, f"waiting for {vm}: {busy.clause}", 0)
            except PeerError as error:
                memory.failed[part] = error
        except (NovaUnreachable, TaskSuperseded):
            raise
        except NovaRefused as refused:  # Nova's path has the server's id, not the VM's name
            memory.failed[part] = ServerFailed(what=part[0], vm=vm, reason=refused.clause)
        except PeerError as error:
            memory.failed[part] = error
        return FINISHED

    def _drain(self, act: Callable[[str], WorkStep]) -> WorkStep:
        """Move servers away; the host remains disabled until the following work has ended."""
        operation, at_once = self._operation, self._config.parallel_moves
        if operation.of_vm:
            return self._advance_all("move", act, at_once)
        self._hosts.disable(operation.host, operation.cause.value)
        step = self._advance_all("move", act, at_once)
        degraded = operation.cause is Cause.HARDWARE_DEGRADED
        followed = operation.followed_by is not FollowedBy.NOTHING
        if step.done and self._config.enable_after_drain and not (degraded or followed):
            self._hosts.enable(operation.host)
        return step

    def _update(self) -> WorkStep:
        """Run the update command; pause the servers unless the announced interruption is 0 s."""
        operation, quiet = self._operation, self._operation.duration_s != 0
        if not self._config.update_command:
            raise self._unsupported("update_command is not set")
        self._hosts.disable(operation.host, operation.cause.value)
        if quiet and not self._begun("update_command"):
            step = self._advance_all("pause", self._servers.pause)
            if not step.done:
                return step
        try:
            step = self._command("update_command", self._config.update_command)
        except NovaCommandFailed:
            if quiet and not (resumed := self._advance_all("unpause", self._servers.unpause)).done:
                return resumed
            raise
        if step.done and quiet:
            step = self._advance_all("unpause", self._servers.unpause)
        if step.done:
            self._hosts.enable(operation.host)
        return step

    def _reboot_servers(self) -> WorkStep:
        step = self._advance_all("reboot", self._servers.reboot)
        if step.done and self._operation.maintenance and not self._operation.of_vm:
            self._hosts.enable(self._operation.host)  # a move may have disabled the host
        return step

    def _reboot_host(self) -> WorkStep:
        operation = self._operation
        self._hosts.disable(operation.host, operation.cause.value)
        if not self._begun("reboot_command"):
            step = self._advance_all("stop", self._servers.stop)
            if not step.done:
                return step
        step = self._command("reboot_command", self._config.reboot_command)
        if step.done:
            step = self._wait_for_host()
        if step.done:
            step = self._advance_all("start", self._servers.start)
        if step.done:
            self._hosts.enable(operation.host)
        return step

    def _start_again(self) -> WorkStep:
        """Start the servers of a failed host once the host has returned."""
        step = self._wait_for_host()
        return self._advance_all("start", self._servers.start_fallen) if step.done else step

    def _bring_up_elsewhere(self) -> WorkStep:
        """Evacuate the servers of a lost host, after a command has ensured that the host is off."""
        if not self._config.fence_command:
            raise self._unsupported("fence_command is not set, so the host may still be running")
        step = self._command("fence_command", self._config.fence_command)
        if not step.done:
            return step
        self._hosts.force_down(self._operation.host)
        return self._advance_all("evacuate", self._moves.evacuate, self._config.parallel_moves)

    def _wait_for_host(self) -> WorkStep:
        host, limit_s = self._operation.host, self._config.host_timeout_s
        if self._hosts.is_up(host):
            return FINISHED
        if self._servers.now_ms - self._servers.since_ms("host") > limit_s * 1000:
            raise NovaHostAway(host=host, seconds=limit_s)
        return WorkStep(text=f"waiting for the compute service of {host}")

    # --- commands -----------------------------------------------------------------------

    def _begun(self, setting: str) -> bool:
        return any(self._run(setting, each).begun for each in self._attempts)

    def _run(self, setting: str, attempt: int) -> ProgramRun:
        return self._runs.look(self._operation.number, attempt, f"{setting}/")

    def _command(self, setting: str, words: tuple[str, ...]) -> WorkStep:
        """Run a command at most once per attempt, and once in total after a success."""
        runs = [self._run(setting, each) for each in self._attempts]
        if any(each.end == "" for each in runs):
            return FINISHED
        if not runs[0].begun:
            self._begin_command(setting, words)
        if runs[0].running or not runs[0].begun:
            return WorkStep(text=f"{setting} runs")
        reason = runs[0].end or "the command was killed, with an unknown result"
        raise NovaCommandFailed(
            setting=setting, host=self._operation.host, reason=reason.removesuffix(".")
        )

    def _begin_command(self, setting: str, words: tuple[str, ...]) -> None:
        host, task = self._operation.host, self._servers.task
        self._runs.start(
            task.key,
            [each.replace("{host}", host) for each in words],
            encoded(task_message("begin", task)),
            limits_s=(self._config.command_timeout_s, START_S),
            part=f"{setting}/",
        )

    def _unsupported(self, reason: str) -> NovaWorkUnsupported:
        operation = self._operation
        return NovaWorkUnsupported(
            cause=operation.cause.value, impact=operation.impact.value, reason=reason
        )
