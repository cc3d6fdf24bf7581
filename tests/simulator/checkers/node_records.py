"""Where each VM may be, as is durable: on its host, and on those it is being moved to.

Nothing is checked in here (`node_checker.py`).
"""

from collections.abc import Collection, Iterator

from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.state import Changes, State
from tests.simulator.checkers.contract import view_owed

Hosts = frozenset[str]


class NodeRecords:
    """Who is where, and since when."""

    def __init__(self, state: State) -> None:
        """Begin with nobody; `state` is what is durable now."""
        self._state = state
        #: VM -> host it may be on -> since when, true time in ms.
        self._since: dict[str, dict[str, int]] = {}
        #: VM -> every host it ever may have been on.
        self._ever: dict[str, set[str]] = {}
        #: VM -> running operation -> where that moves it.
        self._moves: dict[str, dict[int, str]] = {}
        #: VM -> host it may have been on -> when that was over.
        self._left: dict[str, dict[str, int]] = {}
        #: VM -> when it was removed from the fleet last.
        self.removed_ms: dict[str, int] = {}
        #: Group -> when its VMs, its options, or whether it is enabled, changed last.
        self.changed_ms: dict[str, int] = {}

    def durable(self, changes: Changes, now_ms: int) -> set[str]:
        """Take a change that the state has; return the VMs that may be elsewhere now."""
        names = set(changes.vms)
        for operation in changes.operations.values():
            moves = operation.state is OperationState.RUNNING
            for vm in operation.vms:
                to = (
                    dict(operation.execution.placements).get(vm, operation.destination)
                    if moves
                    else ""
                )
                if to:
                    self._moves.setdefault(vm, {})[operation.number] = to
                elif self._moves.get(vm, {}).pop(operation.number, ""):
                    pass
                else:
                    continue
                names.add(vm)
        for vm in sorted(names):
            self._place(vm, now_ms)
        for known in changes.vms.values():
            if known is not None:
                self.changed_ms[known.group] = now_ms
        self.changed_ms.update(dict.fromkeys((*changes.groups, *changes.enrolments), now_ms))
        return names

    def hosts(self, vm: str) -> dict[str, int]:
        """Return where a VM may be, and since when."""
        return self._since.get(vm, {})

    def since_ms(self, vm: str, hosts: Hosts | None) -> int | None:
        """Since when a VM may be on one of these hosts; None: it may not."""
        on = [since for host, since in self.hosts(vm).items() if hosts is None or host in hosts]
        return min(on, default=None)

    def left_ms(self, vm: str, hosts: Hosts | None) -> int:
        """Return when a VM left the last of these hosts, None: of all; 0: it never was there."""
        left = self._left.get(vm, {})
        return max((at for host, at in left.items() if hosts is None or host in hosts), default=0)

    def left_since(self, vm: str, since_ms: int) -> set[str]:
        """Return the hosts that a VM left at this time or later."""
        return {host for host, at in self._left.get(vm, {}).items() if at >= since_ms}

    def ever(self, vm: str, hosts: Hosts) -> bool:
        """Whether a VM ever may have been on one of these hosts."""
        return not hosts.isdisjoint(self._ever.get(vm, ()))

    def vms_on(self, hosts: Hosts | None) -> Iterator[str]:
        """Yield the VMs that may be on one of these hosts; None: on any."""
        for vm, since in self._since.items():
            if hosts is None or not hosts.isdisjoint(since):
                yield vm

    def views_of(self, vms: Collection[str]) -> dict[str, str]:
        """Return the document that each of these VMs is owed."""
        topology = self._state.topology
        found = {vm: topology.vms[vm] for vm in vms}
        return {name: view_owed(vm, topology.groups[vm.group]) for name, vm in found.items()}

    def readers(self, view: str, hosts: Hosts | None) -> Iterator[tuple[str, int]]:
        """Yield the VMs on these hosts that read a document, and since when they may be there."""
        for vm in self._state.topology.vms_in(view.partition("/")[0]):
            since_ms = self.since_ms(vm, hosts)
            if since_ms is not None and self.views_of((vm,))[vm] == view:
                yield vm, since_ms

    def _place(self, vm: str, now_ms: int) -> None:
        known = self._state.topology.vms.get(vm)
        hosts = {known.host, *self._moves.get(vm, {}).values()} if known is not None else set()
        before = self._since.get(vm, {})
        for host in before.keys() - hosts:
            self._left.setdefault(vm, {})[host] = now_ms
        if hosts:
            self._since[vm] = {host: before.get(host, now_ms) for host in sorted(hosts)}
            self._ever.setdefault(vm, set()).update(hosts)
        else:
            self._since.pop(vm, None)
            self.removed_ms[vm] = now_ms
