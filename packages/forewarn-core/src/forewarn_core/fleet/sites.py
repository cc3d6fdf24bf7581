"""Sites of one host, for the rules: from the state. See `rules/site.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.hand_back import hand_back_of
from forewarn_core.fleet.host_orders import orders_by_host, orders_of, tests_over_ms
from forewarn_core.fleet.indexes import is_disturbing
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.usage import disturbed_owners, owners_of
from forewarn_core.fleet.waiting import waits_since_ms
from forewarn_core.planning.plan import HostOrder, Wave
from forewarn_core.rules.hand_back import DEADLINE
from forewarn_core.rules.site import OwnerDisturbance, Site
from forewarn_core.rules.subjects import Scope


class WaveSites:
    """The sites of a due wave, whose hosts are about to be announced in one draft."""

    def __init__(self, draft: Draft, maintenance: Maintenance) -> None:
        """Look at one maintenance in a draft."""
        self.draft, self.maintenance = draft, maintenance

    @cached_property
    def begun(self) -> bool:
        """Whether hosts of the wave were announced before this step; O(touched hosts)."""
        return self.draft.progress(self.maintenance.number).has_begun(self.maintenance.wave)

    @cached_property
    def orders(self) -> dict[str, list[HostOrder]]:
        """The orders by which each host comes after a test; costs the VMs on the hosts."""
        return orders_by_host(orders_of(self.draft.state, self.maintenance, self.draft.now_ms))

    @cached_property
    def disturbed(self) -> frozenset[str]:
        """The owners disturbed by a failed host or by work announced before this step.

        Costs that work and the VMs on its hosts.
        """
        draft, topology = self.draft, self.draft.topology
        hosts = draft.state.current_usage().hosts
        owners = owners_of(topology, [vm for host in hosts for vm in topology.vms_on(host)])
        states = (OperationState.ANNOUNCED, OperationState.RUNNING)
        work = draft.operations(*(("state", each.value) for each in states))
        return owners.union(*(disturbed_owners(e, topology) for e in work if is_disturbing(e)))


class HostSite(Site):
    """A host of a maintenance, with what people asked for it."""

    def __init__(self, draft: Draft, maintenance: Maintenance, host: str) -> None:
        """Store the facts that cost nothing."""
        self.draft, self.host, self._of = draft, host, maintenance
        self.now_ms = self.since_ms = self.start_ms = draft.now_ms
        self.last_wave, self.last_wave_ends_ms = "", 0
        self.paused_until_ms = maintenance.rests_until_ms or 0
        self.earliest_ms = maintenance.earliest_ms or 0
        self.exemption = maintenance.exemption
        self.postponed_until_ms, self.postponed_by = next(
            ((each.until_ms, each.by) for each in maintenance.postponed if each.host == host),
            (0, ""),
        )
        self.hands_back = hand_back_of(draft.state, maintenance, host, now_ms=draft.now_ms)
        self.hand_back_ms, self.hand_back = self.hands_back.at_ms, self.hands_back.subject

    def tests(self) -> Iterable[int]:
        """Return when the tests that the host comes after are over; costs the VMs on the hosts."""
        orders = orders_by_host(orders_of(self.draft.state, self._of, self.now_ms))
        return tests_over_ms(orders.get(self.host, ()))

    def _ended_ms(self) -> Iterator[tuple[str, int]]:
        """Yield the owners on the host by name, with the end of the last disturbance or 0."""
        ended_ms = self.draft.state.last_disturbed_ms
        topology = self.draft.topology
        for owner in sorted(owners_of(topology, topology.vms_on(self.host))):
            yield owner, ended_ms.get(owner, 0)


class AnnouncingSite(HostSite):
    """A host of a due wave, before it is announced."""

    def __init__(self, sites: WaveSites, host: str, wave: Wave) -> None:
        """Store the plan of the wave."""
        super().__init__(sites.draft, sites.maintenance, host)
        self._sites = sites
        self.start_ms = max(wave.earliest_start_ms, self.now_ms)
        self.wave, self.latest_start_ms = wave.number, wave.latest_start_ms
        is_allowed = self.hands_back.allows(wave.earliest_start_ms, self.latest_start_ms)
        if self.hands_back.otherwise_ms and not is_allowed:
            self.hand_back_ms, self.hand_back = self.hands_back.otherwise_ms, DEADLINE
        policy = sites.draft.policy
        self.impact_notice_s = policy.notice_s[sites.maintenance.shown_impact]
        self.notice_margin_ms = policy.notice_margin_ms

    def tests(self) -> Iterable[int]:
        """Return when the tests that the host comes after are over and observed."""
        return tests_over_ms(self._sites.orders.get(self.host, ()))

    def owners(self) -> Iterable[OwnerDisturbance]:
        """Return the owners on the host, unless its wave disturbs them already."""
        if self._sites.begun:
            return
        for owner, ended_ms in self._ended_ms():
            yield OwnerDisturbance(owner, ended_ms, owner in self._sites.disturbed)


class StartingSite(HostSite):
    """A host with announced work of a maintenance, before the work starts."""

    def __init__(self, draft: Draft, maintenance: Maintenance, operation: Operation) -> None:
        """Store the work."""
        super().__init__(draft, maintenance, operation.host)
        self._maintenance, self._operation = maintenance, operation
        self.since_ms = waits_since_ms(operation)

    def owners(self) -> Iterable[OwnerDisturbance]:
        """Return the owners on the host, with the running work or the failure that disturbs them.

        Failures and manual work may have disturbed an owner since the announcement. A failed host
        disturbs its owners until it is repaired. Costs the running work and the VMs on its hosts.
        """
        draft, there = self.draft, dict(self._ended_ms())
        disturbing = {
            owner: other.number
            for other in draft.operations(("state", OperationState.RUNNING.value))
            if other.maintenance != self._operation.maintenance
            for owner in there.keys() & disturbed_owners(other, draft.topology)
        }
        failed = _owners_on_failed(draft)
        for owner, ended_ms in there.items():
            wakes = disturbing.get(owner) or (Scope.OWNER, owner)  # the repair of a failed host
            yield OwnerDisturbance(owner, ended_ms, owner in disturbing or owner in failed, wakes)

    def owners_of_wave(self) -> frozenset[str]:
        """Return the owners that other hosts of the wave disturb or have disturbed.

        Costs the touched hosts, and the VMs on those of the wave.
        """
        draft, maintenance = self.draft, self._maintenance
        targets = draft.progress(maintenance.number).targets
        moves = draft.plan_of(maintenance).moves
        vms: list[str] = []
        for each in targets.values():
            if each.host == self.host or each.wave != targets[self.host].wave:
                continue
            work = draft.operation(each.operation)
            # Work that follows on an empty host has no requested start: its VMs were disturbed.
            waits = work and work.state is OperationState.ANNOUNCED and work.requested_start_ms
            if not waits:
                vms += draft.topology.vms_on(each.host)
                vms += [vm for vm, _ in moves.get(each.host, ())]
        return owners_of(draft.topology, vms)


def _owners_on_failed(draft: Draft) -> frozenset[str]:
    """Return the owners of VMs on failed hosts; O(disturbed hosts and these VMs)."""
    hosts, vms_on = draft.topology.hosts, draft.topology.vms_on
    disturbed = draft.state.current_usage().hosts
    failed = [name for name in disturbed if name in hosts and hosts[name].health is Health.FAILED]
    return owners_of(draft.topology, [vm for name in failed for vm in vms_on(name)])
