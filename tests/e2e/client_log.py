"""What clients of a service asked and were answered, and whether a sound one answers so.

Nothing but the log is looked at: neither the store nor the service's own history.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

#: Least notice of each kind of event, in milliseconds. Source: N-1.
NOTICE_MS = {"Freeze": 900_000, "Reboot": 900_000, "Redeploy": 600_000, "Preempt": 30_000}


@dataclass(frozen=True, slots=True)
class Shown:
    """One event of a document."""

    status: str
    #: Milliseconds since the epoch UTC; 0 where the document gives none, as of what has started.
    not_before_ms: int = 0
    #: Its least notice.
    notice_ms: int = NOTICE_MS["Freeze"]


@dataclass(frozen=True, slots=True)
class Read:
    """A poll that was answered."""

    vm: str
    asked_ms: int
    answered_ms: int
    incarnation: int
    events: Mapping[str, Shown] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Whose document it is."""
        return self.vm.partition("_")[0]


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval that was sent; status 0: no answer came."""

    vm: str
    event_id: str
    asked_ms: int
    status: int = 0


@dataclass
class ClientLog:
    """Everything that all clients did, in the order in which each of them did it."""

    reads: list[Read] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)

    def violations(self) -> list[str]:
        """Say what no sound service could have answered."""
        short = [each for reads in self._by_vm().values() for each in _short(reads)]
        return [*stale(self.reads), *self.contradictions(), *short, *self._early()]

    def contradictions(self) -> list[str]:
        """Say what no sound service could have answered, by whatever clock it goes."""
        unsteady = [each for reads in self._by_vm().values() for each in _unsteady(reads)]
        return [*unsteady, *self._foreign()]

    def _by_vm(self) -> dict[str, list[Read]]:
        by_vm = defaultdict(list)
        for each in self.reads:
            by_vm[each.vm].append(each)
        return by_vm

    def _early(self) -> Iterator[str]:
        """N-3, L-1: nothing starts before NotBefore unless somebody of its group approved."""
        asked: dict[str, int] = {}
        for each in self.approvals:
            asked[each.event_id] = min(each.asked_ms, asked.get(each.event_id, each.asked_ms))
        due: dict[str, int] = {}
        for read in self.reads:
            for event_id, event in read.events.items():
                if event.status == "Scheduled":
                    due[event_id] = event.not_before_ms
        for read in self.reads:
            for event_id, event in read.events.items():
                early = event.status == "Started" and read.answered_ms < due.get(event_id, 0)
                if early and asked.get(event_id, read.answered_ms + 1) > read.answered_ms:
                    yield f"{read.vm} reads {event_id} started early, and nobody approved it"

    def _foreign(self) -> Iterator[str]:
        """A-3: an approval that is answered 200 is of an event in the VM's own document."""
        shown = {(read.group, event_id) for read in self.reads for event_id in read.events}
        for each in self.approvals:
            if each.status == 200 and (each.vm.partition("_")[0], each.event_id) not in shown:
                yield f"{each.vm} approved {each.event_id}, which its group was never shown"


def stale(
    reads: list[Read], *, within_ms: int = 0, judged: Callable[[Read], bool] = lambda _: True
) -> Iterator[str]:
    """D-1: who asks after another one of its group was answered reads nothing older.

    Args:
        reads: of all VMs.
        within_ms: for how long after that answer an older one is permitted (H-3).
        judged: which reads must not be older; others (M-2) only show how new one can be.
    """
    newest: dict[str, int] = {}
    answered: list[tuple[int, str, int]] = []
    for read in sorted(reads, key=lambda each: each.asked_ms):
        while answered and answered[0][0] < read.asked_ms - within_ms:
            _, group, incarnation = heapq.heappop(answered)
            newest[group] = max(incarnation, newest.get(group, 0))
        if judged(read) and read.incarnation < newest.get(read.group, 0):
            yield f"{read.vm} reads {read.incarnation} after {newest[read.group]} was read"
        heapq.heappush(answered, (read.answered_ms, read.group, read.incarnation))


def _unsteady(reads: list[Read]) -> Iterator[str]:
    """D-1, L-6: what has gone or started stays so; NotBefore is never brought forward."""
    gone: set[str] = set()
    before: Mapping[str, Shown] = {}
    for read in reads:
        gone |= before.keys() - read.events.keys()
        for event_id in gone & read.events.keys():
            yield f"{read.vm} reads {event_id} again, which had gone"
        for event_id, event in read.events.items():
            last = before.get(event_id, event)
            if last.status == "Started" != event.status:
                yield f"{read.vm} reads {event_id} {event.status} after Started"
            if event.status == "Scheduled" and event.not_before_ms < last.not_before_ms:
                yield f"{read.vm} reads {event_id} with an earlier NotBefore"
        before = read.events


def _short(reads: list[Read]) -> Iterator[str]:
    """N-1: notice runs from after the last request whose answer did not have the event."""
    asked_ms: int | None = None
    known: set[str] = set()
    for read in reads:
        for event_id in read.events.keys() - known:
            event = read.events[event_id]
            least_ms = event.notice_ms - 1000
            short = asked_ms is not None and event.not_before_ms < asked_ms + least_ms
            if event.status == "Scheduled" and short:
                yield f"{read.vm} reads {event_id}, which is announced too late"
        known |= read.events.keys()
        asked_ms = read.asked_ms


def event_of(form: Mapping[str, object]) -> Shown:
    """Read an event of a document."""
    due, notice_ms = str(form["NotBefore"]), NOTICE_MS[str(form.get("EventType", "Freeze"))]
    if not due:
        return Shown(str(form["EventStatus"]), notice_ms=notice_ms)
    at = datetime.strptime(f"{due.removesuffix('GMT')}+0000", "%a, %d %b %Y %H:%M:%S %z")
    return Shown(str(form["EventStatus"]), int(at.timestamp() * 1000), notice_ms)
