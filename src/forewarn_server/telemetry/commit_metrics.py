"""Metrics of commits: counts and durations, observed on the control loop's thread.

The cost of a commit is O(its changes), without queries or waits. Labels are only words defined by
this project, so that the number of time series is bounded.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

from forewarn_core.fleet.impact import SECOND_MS, Impact
from forewarn_core.fleet.lifecycle import Event, EventState, Operation, OperationState
from forewarn_core.fleet.state import Entry
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.topology import Health, Host
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.readable import ALERTS

#: Upper limits of the buckets for durations since an announcement, in seconds, up to the seven days
#: of a predicted failure.
BUCKETS_S = (
    0.5,
    1,
    2,
    5,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1200,
    1800,
    3600,
    14_400,
    86_400,
    604_800,
)
#: Action of an entry that records a group's approval.
APPROVED = "event.approved"
#: Most groups with counted unapproved events; the oldest are dropped first.
UNAPPROVING_MAX = 10_000


class CommitMetrics:
    """Observes the commits of one control plane; only its thread calls `committed` and `reload`."""

    def __init__(self, registry: CollectorRegistry, plane: ControlPlane) -> None:
        """Start with the current live work."""
        self._plane = plane
        self._sequence = 0
        #: Live operations after the last commit, for comparison with the next commit.
        self._operations: dict[int, Operation] = {}
        self._events: dict[str, EventState] = {}
        #: Number of live operations by state and type.
        self.live: Tally[tuple[str, str]] = Tally()
        #: Health of degraded and failed hosts.
        self.unhealthy: dict[str, str] = {}
        #: Operations announced to each group since its last poll.
        self._unseen: dict[str, dict[int, None]] = {}
        #: Number of successive polled events that each group did not approve.
        self.unapproving: dict[str, int] = {}
        self._make_timings(registry)
        self._make_counters(registry)
        self.reload()

    def _make_timings(self, registry: CollectorRegistry) -> None:
        self._commits = Counter("forewarn_commits", "Commits with changes.", registry=registry)
        self._since = Histogram(
            "forewarn_since_announced_seconds",
            "Time from an operation's announcement to the stage: shown by all nodes, seen by a "
            "group's first poll, approved by a group, start, or end.",
            ("stage", "event_type"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._given = Histogram(
            "forewarn_notice_given_seconds",
            "Notice given to operations that require notice, from display to start, by start "
            "after approval or at NotBefore.",
            ("event_type", "release"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._owed = Counter(
            "forewarn_notice_owed_seconds",
            "Notice required by the operations in forewarn_notice_given_seconds.",
            ("event_type", "release"),
            registry=registry,
        )
        self._short = Counter(
            "forewarn_notice_short",
            "Operations that started at their NotBefore with less notice than required.",
            ("event_type",),
            registry=registry,
        )
        for impact in Impact:  # so that Prometheus records the first increase
            self._short.labels(impact.value)

    def _make_counters(self, registry: CollectorRegistry) -> None:
        self._ended = Counter(
            "forewarn_operations_ended",
            "Operations that ended, by result.",
            ("event_type", "outcome"),
            registry=registry,
        )
        self._passed = Counter(
            "forewarn_events_unapproved",
            "Events that started at their NotBefore although their group polls.",
            ("event_type",),
            registry=registry,
        )
        self._alerts = Counter(
            "forewarn_alerts",
            "Entries of history that require an operator's attention, by action.",
            ("action",),
            registry=registry,
        )
        for impact in Impact:
            self._passed.labels(impact.value)
        for action in ALERTS:
            self._alerts.labels(action)

    def reload(self) -> None:
        """Load all live work from the control plane; O(live work and hosts)."""
        state = self._plane.state
        self._operations = dict(state.operations)
        self._events = {each.id: each.state for each in state.events.values()}
        self.live = Tally(map(_kind, state.operations.values()))
        hosts = state.topology.hosts.values()
        self.unhealthy = {each.name: each.health.value for each in hosts if _is_unhealthy(each)}
        self._unseen = {}
        self._sequence = self._plane.sequence

    def committed(self, committed: StepResult) -> None:
        """Observe a commit; O(changed operations and events)."""
        changes = committed.changes
        if not changes:
            return
        missed = committed.sequence != self._sequence + 1  # after an uncertain commit
        if missed or changes.topology is not None:
            self.reload()
            return
        self._sequence = committed.sequence
        self._commits.inc()
        approved: set[str] = set()
        for entry in changes.entries:
            if entry.action in ALERTS:
                self._alerts.labels(entry.action).inc()
            elif entry.action == APPROVED:
                approved.add(entry.event)
                self._observe_approval(entry, changes.operations.get(entry.operation))
        for event in changes.events.values():
            self._event_moved(event, changes.operations, was_approved=event.id in approved)
        for operation in changes.operations.values():
            self._operation_moved(operation)
        for name, host in changes.hosts.items():
            self.unhealthy.pop(name, None)
            if host is not None and _is_unhealthy(host):
                self.unhealthy[name] = host.health.value

    @property
    def awaits_polls(self) -> bool:
        """Return whether any group has not polled since an announcement; callable on any thread."""
        return bool(self._unseen)

    def seen(self, groups: frozenset[str], now_ms: int) -> None:
        """Record polls of groups; O(groups with unseen announcements)."""
        for group in self._unseen.keys() & groups:
            for number in self._unseen.pop(group):
                operation = self._operations.get(number)
                if operation is not None:
                    self._observe("seen", operation, now_ms)

    def _observe_approval(self, entry: Entry, changed: Operation | None) -> None:
        operation = changed or self._operations.get(entry.operation)
        self.unapproving.pop(entry.group, None)
        if operation is not None:
            self._observe("approved", operation, entry.at_ms)

    def _event_moved(
        self, event: Event, changed: Mapping[int, Operation], *, was_approved: bool
    ) -> None:
        before = self._events.get(event.id)
        if event.live:
            self._events[event.id] = event.state
        else:
            self._events.pop(event.id, None)
            self._unseen.get(event.group, {}).pop(event.operation, None)
        passed = event.state is EventState.STARTED and before is EventState.SCHEDULED
        operation = changed.get(event.operation)
        if passed and not was_approved and operation is not None:
            self._let_pass(event.group, operation)

    def _let_pass(self, group: str, operation: Operation) -> None:
        """Count an event that started at its NotBefore, if its group could have approved it."""
        if group not in self._plane.state.enrolments:
            return
        not_before_ms = operation.notice.not_before_ms
        if not_before_ms is None or (operation.execution.started_ms or 0) < not_before_ms:
            return
        self._passed.labels(operation.impact.value).inc()
        self.unapproving[group] = self.unapproving.pop(group, 0) + 1
        if len(self.unapproving) > UNAPPROVING_MAX:
            del self.unapproving[next(iter(self.unapproving))]

    def _operation_moved(self, operation: Operation) -> None:
        before = self._operations.get(operation.number)
        if before is None and not operation.live:
            return  # an earlier commit has counted the end
        if before is not None:
            self.live[_kind(before)] -= 1
        if operation.live:
            self.live[_kind(operation)] += 1
            self._operations[operation.number] = operation
        else:
            self._operations.pop(operation.number, None)
        if operation.notice.shown_ms and not (before and before.notice.shown_ms):
            self._observe("shown", operation, operation.notice.shown_ms)
            self._watch_groups(operation)
        if operation.execution.started_ms and not (before and before.execution.started_ms):
            self._observe_start(operation)
        if operation.ended_ms is not None:
            self._ended.labels(operation.impact.value, operation.state.value).inc()
            self._observe("ended", operation, operation.ended_ms)

    def _watch_groups(self, operation: Operation) -> None:
        for event_id in operation.events:
            event = self._plane.state.events.get(event_id)
            if event is not None and event.group in self._plane.state.enrolments:
                self._unseen.setdefault(event.group, {})[operation.number] = None

    def _observe_start(self, operation: Operation) -> None:
        started_ms = operation.execution.started_ms
        assert started_ms is not None, operation
        self._observe("started", operation, started_ms)
        if not (operation.notice_s and operation.notice.shown_ms):
            return
        release = "due" if started_ms >= operation.not_before_ms else "early"
        given_ms = started_ms - operation.notice.shown_ms
        kind = operation.impact.value
        self._given.labels(kind, release).observe(given_ms / SECOND_MS)
        self._owed.labels(kind, release).inc(operation.notice_s)
        if release == "due" and given_ms < operation.notice_s * SECOND_MS:
            self._short.labels(kind).inc()

    def _observe(self, stage: str, operation: Operation, at_ms: int) -> None:
        if operation.notice.announced_ms:
            since_s = max(at_ms - operation.notice.announced_ms, 0) / SECOND_MS
            self._since.labels(stage, operation.impact.value).observe(since_s)


def _is_unhealthy(host: Host) -> bool:
    return host.health is not Health.HEALTHY


def _kind(operation: Operation) -> tuple[str, str]:
    assert operation.state in OperationState, operation
    return operation.state.value, operation.impact.value
