"""The gauges of a control plane, read at each scrape.

A query examines at most `WAITS_SAMPLE_MAX` operations, independent of the size of the fleet.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from forewarn.control.service_state import STANDBY, ServiceState
from forewarn.core.impact import Impact
from forewarn.core.lifecycle import LIVE_OPERATION, OperationState
from forewarn.core.maintenance import MaintenanceState
from forewarn.core.topology import Health
from forewarn.core.why import blocker_of, why_maintenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from forewarn.clock import Clock
    from forewarn.control.engine import ControlEngine
    from forewarn.control.plane import StateView
    from forewarn.telemetry.commit_metrics import CommitMetrics

#: Most operations whose blockers a scrape computes; a scrape samples larger numbers.
WAITS_SAMPLE_MAX = 1000
#: Operations per query; the control loop answers approvals between queries.
PORTION = 200
#: Most groups in a scrape, selected by the number of unapproved events.
GROUPS_NAMED_MAX = 20
#: Most live maintenances in a scrape, newest first.
MAINTENANCES_NAMED_MAX = 20
#: Longest wait for a busy control loop, in seconds, before a scrape omits its gauges.
READ_S_MAX = 5.0


class ControlSnapshot:
    """Reads the gauges of one control plane; used on the event loop."""

    def __init__(self, engine: ControlEngine, metrics: CommitMetrics, clock: Clock) -> None:
        self._engine = engine
        self._metrics = metrics
        self._clock = clock

    async def families(self) -> list[Metric]:
        """Return the current gauges; omit the gauges of a control loop that does not answer."""
        metrics: list[Metric] = [service_states(self._engine.state.value), self._refused()]
        try:
            async with asyncio.timeout(READ_S_MAX):
                metrics += await asyncio.wrap_future(self._engine.read(self._commit_metrics))
                metrics += await asyncio.wrap_future(self._engine.replica.read(_of_maintenances))
                metrics.append(await self._waits())
                metrics.append(await self._backup())
        except Exception:  # noqa: BLE001 - busy or ended: forewarn_service_state says so
            return metrics
        return metrics

    async def _backup(self) -> Metric:
        store = await asyncio.wrap_future(self._engine.read(lambda view: view.store))
        at_ms = await asyncio.to_thread(store.backup_ms)
        text = "Start of the last backup of the store; 0: no backup is recorded."
        return GaugeMetricFamily("forewarn_backup_timestamp_seconds", text, value=at_ms / 1000)

    def _refused(self) -> Metric:
        text = (
            "Records, such as VMs, that the topology recently refused, and that may get no notice."
        )
        count = len(self._engine.refused_records.sentences())
        return GaugeMetricFamily("forewarn_topology_refused", text, value=count)

    def _commit_metrics(self, view: StateView) -> list[Metric]:
        """Return the metrics updated by commits; runs on the control loop's thread."""
        return [*self._of_fleet(view), self._of_work(), *self._groups()]

    def _of_fleet(self, view: StateView) -> Iterator[Metric]:
        state, metrics = view.state, self._metrics
        by_health = Tally(metrics.unhealthy.values())
        by_health[Health.HEALTHY.value] = len(state.topology.hosts) - len(metrics.unhealthy)
        hosts = GaugeMetricFamily("forewarn_hosts", "Hosts, by health.", labels=["health"])
        for health in Health:
            hosts.add_metric([health.value], by_health[health.value])
        yield hosts
        for name, text, count in (
            ("vms", "VMs of the fleet.", len(state.topology.vms)),
            ("groups", "Groups of the fleet.", len(state.topology.groups)),
            ("groups_enabled", "Groups that polled in the last day.", len(state.enrolments)),
            ("history_sequence", "Number of the last entry of history.", view.store.history_seq),
        ):
            yield GaugeMetricFamily(f"forewarn_{name}", text, value=count)

    def _of_work(self) -> Metric:
        text = "Operations that have not ended, by state and type."
        live = GaugeMetricFamily("forewarn_operations", text, labels=["state", "event_type"])
        for state in (each for each in OperationState if each in LIVE_OPERATION):
            for impact in Impact:
                count = self._metrics.live[state.value, impact.value]
                live.add_metric([state.value, impact.value], count)
        return live

    def _groups(self) -> Iterator[Metric]:
        known = self._metrics.unapproving
        text = "Groups that poll, and approved none of their recent events before the start."
        yield GaugeMetricFamily("forewarn_groups_never_approving", text, value=len(known))
        text = f"Successive events a group did not approve; the {GROUPS_NAMED_MAX} worst groups."
        named = GaugeMetricFamily("forewarn_group_unapproved_events", text, labels=["group"])
        worst = sorted(known.items(), key=lambda each: -each[1])[:GROUPS_NAMED_MAX]
        for group, count in worst:
            named.add_metric([group], count)
        yield named

    async def _waits(self) -> Metric:
        """Count waiting work by its first blocker; O(sample of live work), in several queries."""
        now_ms = self._clock.now_ms()
        numbers = await asyncio.wrap_future(
            self._engine.replica.read(lambda view: list(view.state.operations))
        )
        step = -(-len(numbers) // WAITS_SAMPLE_MAX) or 1
        tally: Tally[str] = Tally()
        for start in range(0, len(numbers), PORTION * step):
            portion = numbers[start : start + PORTION * step : step]
            query = partial(_codes, numbers=portion, now_ms=now_ms)
            codes = await asyncio.wrap_future(self._engine.replica.read(query))
            tally.update(codes)
        for code in tally:
            tally[code] *= step
        halted = await asyncio.wrap_future(
            self._engine.replica.read(partial(_halted, now_ms=now_ms))
        )
        tally.update(halted)
        text = (
            "Operations and maintenances that wait, by the code of their first blocker;"
            f" estimated from a sample if more than {WAITS_SAMPLE_MAX} operations are live."
        )
        waits = GaugeMetricFamily("forewarn_waits", text, labels=["blocker"])
        for code, count in sorted(tally.items()):
            waits.add_metric([code], count)
        return waits


def _codes(view: StateView, *, numbers: list[int], now_ms: int) -> list[str]:
    draft, codes = view.draft(now_ms), []
    for number in numbers:
        operation = view.state.operations.get(number)
        if operation is not None and operation.state is not OperationState.RUNNING:
            blocker = blocker_of(draft, operation)
            if blocker is not None:
                codes.append(blocker.code.value)
    return codes


def _halted(view: StateView, *, now_ms: int) -> list[str]:
    draft = view.draft(now_ms)
    newest = list(view.state.maintenances.values())[-MAINTENANCES_NAMED_MAX:]
    blockers = [why_maintenance(draft, each) for each in newest]
    return [blocker.code.value for blocker in blockers if blocker is not None]


def _of_maintenances(view: StateView) -> list[Metric]:
    live, operations = view.state.maintenances, view.state.operations
    text = "Maintenances that have not ended, by state."
    states = GaugeMetricFamily("forewarn_maintenances", text, labels=["state"])
    tally = Tally(each.state for each in live.values())
    for state in (
        MaintenanceState.DRAFT,
        MaintenanceState.RUNNING,
        MaintenanceState.PAUSED,
        MaintenanceState.STOPPED,
    ):
        states.add_metric([state.value], tally[state])
    text = (
        "Hosts of a maintenance, by state, for each of the "
        f"{MAINTENANCES_NAMED_MAX} newest live maintenances."
    )
    hosts = GaugeMetricFamily("forewarn_maintenance_hosts", text, labels=["maintenance", "state"])
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
            hosts.add_metric([maintenance.id, word], count)
    return [states, hosts]


def service_states(current: str) -> Metric:
    """Return the metric of a service's state, given its name, or `STANDBY`."""
    text = "1 for the service's state, 0 for all others."
    states = GaugeMetricFamily("forewarn_service_state", text, labels=["state"])
    for state in (*(each.value for each in ServiceState), STANDBY):
        states.add_metric([state], int(state == current))
    return states
