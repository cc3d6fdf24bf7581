"""The gauges of a control plane, read at each scrape.

A query examines at most `WAITS_SAMPLE_MAX` operations, independent of the size of the fleet.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator
from functools import partial

from prometheus_client.core import Metric

from forewarn_base.clock import Clock
from forewarn_core.fleet.deferrals import DeferralState
from forewarn_core.fleet.impact import SECOND_MS, Impact
from forewarn_core.fleet.lifecycle import LIVE_OPERATION, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.ticket import ENDED_TICKET, TicketState, TicketType
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.why import blocker_of, why_maintenance
from forewarn_server.control.plane import StateView
from forewarn_server.control.run_loop import ControlLoop
from forewarn_server.control.service_state import STANDBY, ServiceState
from forewarn_server.telemetry.commit_metrics import CommitMetrics
from forewarn_server.telemetry.families import gauge

#: Most operations whose blockers a scrape computes; a scrape samples larger numbers.
WAITS_SAMPLE_MAX = 1000
#: Operations per query; the control loop answers approvals between queries.
PORTION = 200
#: Most groups in a scrape, selected by the number of unapproved events.
GROUPS_NAMED_MAX = 20
#: Most live maintenances in a scrape, newest first.
MAINTENANCES_NAMED_MAX = 20
_LIVE_MAINTENANCE = (
    *(MaintenanceState.DRAFT, MaintenanceState.RUNNING),
    *(MaintenanceState.PAUSED, MaintenanceState.STOPPED),
)
#: Longest wait for a busy control loop, in seconds, before a scrape omits its gauges.
READ_S_MAX = 5.0


class ControlSnapshot:
    """Reads the gauges of one control plane; used on the event loop."""

    def __init__(self, loop: ControlLoop, metrics: CommitMetrics, clock: Clock) -> None:
        self._loop = loop
        self._metrics = metrics
        self._clock = clock

    async def families(self) -> list[Metric]:
        """Return the current gauges; omit the gauges of a control loop that does not answer."""
        metrics: list[Metric] = [service_states(self._loop.state.value), self._refused_gauge()]
        try:
            async with asyncio.timeout(READ_S_MAX):
                metrics += await asyncio.wrap_future(self._loop.read(self._commit_metrics))
                metrics += await asyncio.wrap_future(self._loop.replica.read(_of_maintenances))
                of_tenants = partial(_of_tenants, now_ms=self._clock.now_ms())
                metrics += await asyncio.wrap_future(self._loop.replica.read(of_tenants))
                metrics.append(await self._waits())
                metrics.append(await self._backup())
        except Exception:  # noqa: BLE001 - busy or ended: forewarn_service_state says so
            return metrics
        return metrics

    async def _backup(self) -> Metric:
        store = await asyncio.wrap_future(self._loop.read(lambda view: view.store))
        at_ms = await asyncio.to_thread(store.backup_ms)
        text = "Start of the last backup of the store; 0: no backup is recorded."
        return gauge("backup_timestamp_seconds", text, at_ms / 1000)

    def _refused_gauge(self) -> Metric:
        text = (
            "Records, such as VMs, that the topology recently refused, and that may get no notice."
        )
        return gauge("topology_refused", text, len(self._loop.refused_records.sentences()))

    def _commit_metrics(self, view: StateView) -> list[Metric]:
        """Return the metrics updated by commits; runs on the control loop's thread."""
        return [*self._of_fleet(view), self._of_work(), *self._groups()]

    def _of_fleet(self, view: StateView) -> Iterator[Metric]:
        state, metrics = view.state, self._metrics
        by_health = Tally(metrics.unhealthy.values())
        by_health[Health.HEALTHY.value] = len(state.topology.hosts) - len(metrics.unhealthy)
        hosts = {each.value: by_health[each.value] for each in Health}
        yield gauge("hosts", "Hosts, by health.", hosts, "health")
        yield gauge("vms", "VMs of the fleet.", len(state.topology.vms))
        yield gauge("groups", "Groups of the fleet.", len(state.topology.groups))
        yield gauge("groups_enabled", "Groups that polled in the last day.", len(state.enrolments))
        text = "Number of the last entry of history."
        yield gauge("history_sequence", text, view.store.history_seq)

    def _of_work(self) -> Metric:
        text = "Operations that have not ended, by state and type."
        states = [each.value for each in OperationState if each in LIVE_OPERATION]
        pairs = [(state, impact.value) for state in states for impact in Impact]
        live = {pair: self._metrics.live[pair] for pair in pairs}
        return gauge("operations", text, live, "state", "event_type")

    def _groups(self) -> Iterator[Metric]:
        known = self._metrics.unapproving
        text = "Groups that poll, and approved none of their recent events before the start."
        yield gauge("groups_never_approving", text, len(known))
        text = f"Successive events a group did not approve; the {GROUPS_NAMED_MAX} worst groups."
        worst = sorted(known.items(), key=lambda each: -each[1])[:GROUPS_NAMED_MAX]
        yield gauge("group_unapproved_events", text, dict(worst), "group")

    async def _waits(self) -> Metric:
        """Count waiting work by its first blocker; O(sample of live work), in several queries."""
        now_ms = self._clock.now_ms()
        numbers = await asyncio.wrap_future(
            self._loop.replica.read(lambda view: list(view.state.operations))
        )
        step = -(-len(numbers) // WAITS_SAMPLE_MAX) or 1
        tally: Tally[str] = Tally()
        for start in range(0, len(numbers), PORTION * step):
            portion = numbers[start : start + PORTION * step : step]
            query = partial(_codes, numbers=portion, now_ms=now_ms)
            codes = await asyncio.wrap_future(self._loop.replica.read(query))
            tally.update(codes)
        for code in tally:
            tally[code] *= step
        halted = await asyncio.wrap_future(
            self._loop.replica.read(partial(_blocker_codes, now_ms=now_ms))
        )
        tally.update(halted)
        text = (
            "Operations and maintenances that wait, by the code of their first blocker;"
            f" estimated from a sample if more than {WAITS_SAMPLE_MAX} operations are live."
        )
        return gauge("waits", text, dict(sorted(tally.items())), "blocker")


def _codes(view: StateView, *, numbers: list[int], now_ms: int) -> list[str]:
    draft, codes = view.draft(now_ms), []
    for number in numbers:
        operation = view.state.operations.get(number)
        if operation is not None and operation.state is not OperationState.RUNNING:
            blocker = blocker_of(draft, operation)
            if blocker is not None:
                codes.append(blocker.code.value)
    return codes


def _blocker_codes(view: StateView, *, now_ms: int) -> list[str]:
    draft = view.draft(now_ms)
    newest = list(view.state.maintenances.values())[-MAINTENANCES_NAMED_MAX:]
    blockers = [why_maintenance(draft, each) for each in newest]
    return [blocker.code.value for blocker in blockers if blocker is not None]


def _of_maintenances(view: StateView) -> list[Metric]:
    live, operations = view.state.maintenances, view.state.operations
    tally = Tally(each.state for each in live.values())
    states = {each.value: tally[each] for each in _LIVE_MAINTENANCE}
    hosts: dict[tuple[str, str], float] = {}
    for maintenance in list(live.values())[-MAINTENANCES_NAMED_MAX:]:
        progress = view.state.progress(maintenance.number)
        working, failed = len(progress.working), len(progress.failed.keys() - progress.working)
        numbers = (progress.targets[host].operation for host in progress.working)
        running = sum(operations[each].state is OperationState.RUNNING for each in numbers)
        touched = len(progress.targets)
        for word, count in (
            ("left", len(maintenance.hosts) - touched),
            ("announced", working - running),
            ("running", running),
            ("failed", failed),
            ("done", touched - working - failed),
        ):
            hosts[maintenance.id, word] = count
    text = (
        "Hosts of a maintenance, by state, for each of the "
        f"{MAINTENANCES_NAMED_MAX} newest live maintenances."
    )
    return [
        gauge("maintenances", "Maintenances that have not ended, by state.", states, "state"),
        gauge("maintenance_hosts", text, hosts, "maintenance", "state"),
    ]


def _of_tenants(view: StateView, *, now_ms: int) -> list[Metric]:
    """Return what owners and operators owe each other; O(live tickets, choices and requests)."""
    state = view.state
    live = [each for each in state.tickets.values() if each.live]
    counts = Tally((each.type.value, each.state.value) for each in live)
    states = [each.value for each in TicketState if each not in ENDED_TICKET]
    pairs = [(kind.value, word) for kind in TicketType for word in states]
    tickets = {pair: counts[pair] for pair in pairs}
    ages_s = {each.value: 0.0 for each in TicketType}
    for each in live:
        if each.state is TicketState.OPEN:
            age_s = max(now_ms - each.opened_ms, 0) / SECOND_MS
            ages_s[each.type.value] = max(age_s, ages_s[each.type.value])
    chosen = [each for each in state.choices.values() if each.decision is Decision.AT]
    displaced = sum(each.displaced_ms is not None for each in chosen)
    choices = {"kept": len(chosen) - displaced, "displaced": displaced}
    unanswered = sum(each.state is DeferralState.ASKED for each in state.deferrals.values())
    of_tickets = "Tickets that have not ended, by type and state."
    of_ages = "Age of the oldest ticket that nobody has answered, by type; 0: none."
    of_choices = "Chosen starts of declared work, by whether a plan keeps them."
    of_deferrals = "Requests for later hand-back deadlines without an answer."
    return [
        gauge("tickets", of_tickets, tickets, "type", "state"),
        gauge("ticket_unanswered_seconds", of_ages, ages_s, "type"),
        gauge("choices", of_choices, choices, "state"),
        gauge("deferrals_asked", of_deferrals, unanswered),
    ]


def service_states(current: str) -> Metric:
    """Return the metric of a service's state, given its name, or `STANDBY`."""
    text = "1 for the service's state, 0 for all others."
    states = (*(each.value for each in ServiceState), STANDBY)
    return gauge("service_state", text, {each: each == current for each in states}, "state")
