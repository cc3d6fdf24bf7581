"""The use of each budget, counted on demand; derived, never stored.

`host_admission.py` defines the limits and the effect of reaching one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from forewarn_core.fleet.impact import Source
from forewarn_core.fleet.indexes import Places, is_disturbing
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.naming import RACK
from forewarn_core.fleet.topology import Health, Topology, words_of
from forewarn_core.planning.policy import Scope, Subject

#: A disturbed unit, see `Operation.budget_key`: a host by name, or the place of a VM.
Disturbed: TypeAlias = "str | tuple[str, str]"
#: The budgets that a unit uses, one entry per host or VM: with announced work, and without it.
Share: TypeAlias = "tuple[tuple[Subject, ...], tuple[Subject, ...]]"

FLEET: Subject = (Scope.FLEET, "")
#: Maximum uncounted changes, as a limit on the cost of the next query.
UNCOUNTED_MAX = 100


class Usage:
    """The use of each budget by announced and running work and failed hosts.

    Call `State.current_usage` before reading it.
    """

    def __init__(self) -> None:
        #: First counter: announced and running work and failures; second: without announced work.
        self.taken: Counter[Subject] = Counter()
        self.running: Counter[Subject] = Counter()
        self._shares: dict[Disturbed, Share] = {}
        #: Hosts and VMs whose share may have changed.
        self.uncounted: set[Disturbed] = set()

    def count(
        self, topology: Topology, operations: Mapping[int, Operation], places: Places
    ) -> None:
        """Count pending changes; O(their VMs)."""
        vms = {each for each in self.uncounted if not isinstance(each, str)}
        for host in (each for each in self.uncounted if isinstance(each, str)):
            on = [operations[number] for number in places.of(("host", host))]
            self.put(host, share_of_host(topology, host, on))
            vms.update(("vm", vm) for vm in topology.vms_on(host))
        for place in vms:
            on = [operations[number] for number in places.of(place)]
            self.put(place, share_of_vm(topology, place[1], on, shares=self._shares))
        self.uncounted.clear()

    def put(self, disturbed: Disturbed, share: Share | None) -> None:
        """Replace the counted share of a host or a VM by its current one; O(its VMs)."""
        before = self._shares.pop(disturbed, None)
        if before is not None:
            self._add(before, -1)
            for counts, subjects in zip((self.taken, self.running), before, strict=True):
                for subject in subjects:
                    if not counts[subject]:
                        del counts[subject]
        if share is not None:
            self._add(share, 1)
            self._shares[disturbed] = share

    def _add(self, share: Share, sign: int) -> None:
        for counts, subjects in zip((self.taken, self.running), share, strict=True):
            for subject in subjects:
                counts[subject] += sign

    @property
    def hosts(self) -> list[str]:
        """Hosts that work disturbs, announced routine work included, or that have failed."""
        return [each for each in self._shares if isinstance(each, str)]

    def budgets_of(self, disturbed: Disturbed) -> Iterable[Subject]:
        """Return the budgets that a share uses."""
        share = self._shares.get(disturbed)
        return dict.fromkeys((*share[0], *share[1])) if share else ()

    def share_of(self, disturbed: Disturbed) -> Share:
        """Return the counted share of a host or a VM."""
        return self._shares.get(disturbed, ((), ()))


def share_of_host(topology: Topology, name: str, operations: Iterable[Operation]) -> Share | None:
    """Return the share of a host with its live operations; operations on a host count once."""
    host = topology.hosts.get(name)
    disturbing = [each for each in operations if not each.of_vm and is_disturbing(each)]
    failed = host is not None and host.health is Health.FAILED
    if not disturbing and not failed:
        return None
    running = failed or any(each.state is OperationState.RUNNING for each in disturbing)
    subjects = subjects_of_host(topology, name)
    return subjects, subjects if running else ()


def share_of_vm(
    topology: Topology,
    name: str,
    operations: Iterable[Operation],
    *,
    shares: Mapping[Disturbed, Share],
) -> Share | None:
    """Return what work on a VM takes from the limits of its group and owner.

    Without what the VM's host takes already: a VM counts once. `shares` has the shares of hosts.
    """
    disturbing = [each for each in operations if each.of_vm and is_disturbing(each)]
    if not disturbing:
        return None
    vm = topology.vms.get(name)
    subjects = tuple(_subjects_of_vms(topology, (name,)))
    of_host, of_running_host = shares.get(vm.host if vm else "", ((), ()))
    runs = any(each.state is OperationState.RUNNING for each in disturbing)
    return () if of_host else subjects, subjects if runs and not of_running_host else ()


def subjects_of_host(topology: Topology, name: str) -> tuple[Subject, ...]:
    """Return the limits that work on a host uses: of its places, and its VMs' groups and owners."""
    host = topology.hosts.get(name)
    if host is None:
        return ()
    words = words_of(host)
    rack = dict(host.labels).get(RACK, "")
    places = [FLEET, (Scope.ZONE, host.zone), (Scope.RACK, rack)]
    places += [(Scope.LABEL, word) for word in sorted(words)]
    return (*places, *_subjects_of_vms(topology, topology.vms_on(name)))


def _subjects_of_vms(topology: Topology, names: Iterable[str]) -> Iterator[Subject]:
    for name in names:
        vm = topology.vms.get(name)
        if vm is not None:
            yield Scope.GROUP, vm.group
            yield Scope.OWNER, topology.groups[vm.group].owner


def owners_of(topology: Topology, vms: Iterable[str]) -> frozenset[str]:
    """Return the owners of the given VMs, without missing VMs and empty owners."""
    vms_by_name = topology.vms
    return frozenset(
        owner
        for name in vms
        if name in vms_by_name and (owner := topology.groups[vms_by_name[name].group].owner)
    )


def disturbed_owners(operation: Operation, topology: Topology) -> tuple[str, ...]:
    """Return the owners that running work disturbs, sorted: owners of the work's or its host's VMs.

    A user's own work disturbs nobody else. Costs its VMs.
    """
    if operation.source is Source.USER:
        return ()
    there = () if operation.of_vm else topology.vms_on(operation.host)
    return tuple(sorted(owners_of(topology, (*operation.vms, *there))))
