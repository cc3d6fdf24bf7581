"""Whether what clients saw, and what was begun, is what a sound service could have done.

Apart from the product: it knows the logs of clients, the lines that the driver's program wrote,
and the service's lists of operations and of history as its API gives them at the end.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.chaos.clients import Record
from tests.e2e.client_log import Read, stale

TERM_MS = 5000
#: How much shorter than owed a notice may be. Source: H-6.
SLACK_MS = 1000
#: How long after work has ended its end, and who did not see it, may be committed.
NAMED_MS = 5000


@dataclass(frozen=True)
class Begun:
    """One run of the driver's program."""

    operation: str
    at_ms: int
    vms: tuple[str, ...]
    #: When it ended; 0: it was stopped, or still runs.
    ended_ms: int = 0


@dataclass
class Evidence:
    """Everything that is known at the end."""

    record: Record
    begun: Sequence[Begun] = ()
    #: Operations and their events, as `GET /v1/operations/{id}` shows them, by id.
    operations: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    history: Sequence[dict[str, Any]] = ()
    #: Servers that may show old documents for as long as they are cut off (M-2).
    may_be_old: frozenset[str] = frozenset()
    #: Spans whose commits the database has lost, in ms since the epoch UTC. Source: H-10.
    lost_ms: Sequence[tuple[int, int]] = ()

    def lost(self, begin_ms: int, end_ms: int = 0) -> bool:
        """Whether the database may have lost what was done in this time."""
        end_ms = end_ms or begin_ms
        return any(begin_ms <= until and since <= end_ms for since, until in self.lost_ms)


def begun_of(lines: Sequence[str]) -> list[Begun]:
    """Read the lines that the driver's program wrote."""
    begun: list[Begun] = []
    for line in lines:
        verb, at, text = line.split(" ", 2)
        task = json.loads(text)
        if verb == "begin":
            begun.append(Begun(task["operation"], int(at), tuple(task["vms"])))
        else:
            last = max(n for n, each in enumerate(begun) if each.operation == task["operation"])
            begun[last] = Begun(task["operation"], begun[last].at_ms, begun[last].vms, int(at))
    return begun


def violations(evidence: Evidence) -> list[str]:
    """Return what no sound service could have done, a sentence each."""
    record = evidence.record
    return [
        *record.contradictions,
        *record.log.contradictions(),
        *_outdated(evidence),
        *_begun_twice(evidence),
        *_begun_early(evidence),
        *_begun_unseen(evidence),
        *_approvals_lost(evidence),
        *_requests(evidence),
    ]


def _server(read: Read) -> str:
    return read.vm.partition("@")[2]


def _outdated(evidence: Evidence) -> Iterator[str]:
    """H-3: no control plane shows an older document than the newest for more than a term + 1 s."""
    return stale(
        evidence.record.log.reads,
        within_ms=TERM_MS + SLACK_MS,
        judged=lambda read: _server(read) not in evidence.may_be_old,
    )


def _begun_twice(evidence: Evidence) -> Iterator[str]:
    """R-2, invariant 9: nobody retries here, so a program runs once for an operation."""
    for operation, times in Counter(each.operation for each in evidence.begun).items():
        if times > 1:
            yield f"{operation} was begun {times} times"
        if all(evidence.lost(e.at_ms) for e in evidence.begun if e.operation == operation):
            continue
        if operation not in evidence.operations:
            yield f"{operation} was begun, and nobody knows it"
        elif evidence.operations[operation]["operation"]["state"] == "cancelled":
            yield f"{operation} was begun, and is cancelled"


def _begun_early(evidence: Evidence) -> Iterator[str]:
    """L-1, N-1: before its notice is over only what every group has approved is begun.

    Time is the right time here, and notice is how long VMs could know: the clocks of control
    planes are wrong in a campaign, and so is NotBefore.
    """
    log = evidence.record.log
    asked_ms: dict[str, int] = {}
    for each in log.approvals:
        asked_ms[each.event_id] = min(each.asked_ms, asked_ms.get(each.event_id, each.asked_ms))
    due_ms, started_ms = _due(log.reads), _started(log.reads)
    evicted = {
        name
        for each in evidence.operations.values()
        if each["operation"]["cause"] == "eviction" and each["operation"]["state"] == "succeeded"
        for name in each["operation"]["vms"]
    }
    for begun in evidence.begun:
        for event in _events(evidence, begun):
            event_id = event["id"]
            if evicted.issuperset(event["resources"]) and begun.vms != tuple(event["resources"]):
                continue  # L-2: nobody is left to be waited for
            at_ms = min(begun.at_ms, started_ms.get(event_id, begun.at_ms))
            approved = asked_ms.get(event_id, at_ms + 1) <= at_ms
            early_ms = due_ms.get(event_id, 0) - at_ms
            if not approved and early_ms > SLACK_MS:
                yield f"{begun.operation} began {early_ms} ms before the notice of {event_id} ended"


def _due(reads: Sequence[Read]) -> dict[str, int]:
    """Return when the notice of each event is over at the earliest.

    It begins after the last request whose answer, of the server that showed it first, had no
    event. Where that server had not answered before, the beginning is unknown (0).
    """
    last_ms: dict[str, int] = {}
    due: dict[str, int] = {}
    for read in reads:
        for event_id in read.events.keys() - due.keys():
            event = read.events[event_id]
            known = event.status == "Scheduled" and read.vm in last_ms
            due[event_id] = last_ms[read.vm] + event.notice_ms if known else 0
        last_ms[read.vm] = read.asked_ms
    return due


def _started(reads: Sequence[Read]) -> dict[str, int]:
    """Return when each event was first read as started."""
    started: dict[str, int] = {}
    for read in reads:
        for event_id, event in read.events.items():
            if event.status == "Started":
                started.setdefault(event_id, read.answered_ms)
    return started


def _begun_unseen(evidence: Evidence) -> Iterator[str]:
    """H-7, M-4: a VM whose document lacked the event when it began is named in history."""
    by_vm: dict[str, list[Read]] = defaultdict(list)
    for read in evidence.record.log.reads:
        by_vm[read.vm.partition("@")[0]].append(read)
    named: dict[str, str] = defaultdict(str)
    for entry in evidence.history:
        if entry["action"] in {"operation.not-shown", "operation.started"}:
            named[entry["operation"]] += f" {entry['text']}"
    for begun in evidence.begun:
        if _was_restored(evidence, begun):
            continue  # the entry that names the VM is lost, or its events have new ids (U-3)
        for event in _events(evidence, begun):
            for vm in event["resources"]:
                if vm not in named[begun.operation] and _was_unseen(by_vm[vm], event["id"], begun):
                    yield f"{begun.operation} was begun unseen by {vm}, which no entry names"


def _was_restored(evidence: Evidence, begun: Begun) -> bool:
    """Whether the operation of a program was live while the database lost commits."""
    form = evidence.operations.get(begun.operation, {}).get("operation", {})
    ended_ms = begun.ended_ms or begun.at_ms
    if evidence.lost(begun.at_ms - SLACK_MS, ended_ms + NAMED_MS):
        return True
    # These times are of control planes, whose clocks may be wrong.
    since, until = (form.get(name) for name in ("announced", "ended"))
    since_ms = _ms(since) if since else begun.at_ms
    return evidence.lost(since_ms, _ms(until) if until else begun.at_ms)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _was_unseen(reads: Sequence[Read], event_id: str, begun: Begun) -> bool:
    """Whether a VM that asked while the work ran read a document that never had its event."""
    unseen = False
    for read in reads:
        if event_id in read.events and read.answered_ms <= begun.ended_ms:
            return False
        if begun.at_ms < read.asked_ms and read.answered_ms < begun.ended_ms:
            unseen = True
    return unseen


def _approvals_lost(evidence: Evidence) -> Iterator[str]:
    """A-6, invariant 11: who was answered 200 is among those who approved, or came too late."""
    events = {
        event["id"]: event for each in evidence.operations.values() for event in each["events"]
    }
    started_ms = _started(evidence.record.log.reads)
    for each in evidence.record.log.approvals:
        if each.status != 200 or evidence.lost(each.asked_ms):
            continue
        event = events.get(each.event_id)
        if event is None:
            yield f"{each.vm} approved {each.event_id}, which nobody knows"
        elif not event["approved_by"] and started_ms.get(each.event_id, 2**63) > each.asked_ms:
            yield f"{each.vm} approved {each.event_id} of {event['operation']}; that is lost"


def _requests(evidence: Evidence) -> Iterator[str]:
    """P-10: each request that was answered is done once, each other one at most once."""
    by_key: dict[str, list[str]] = defaultdict(list)
    for name, each in evidence.operations.items():
        by_key[each["operation"]["description"]].append(name)
    for request in evidence.record.requests:
        if request.path == "/v1/operations":
            kept = sorted(by_key.pop(request.key, []))
            if len(kept) > 1:
                yield f"{request.key} was done {len(kept)} times: {kept}"
            lost = evidence.lost(request.sent_ms, request.answered_ms)
            answered = 200 <= request.status < 300 and not lost
            if answered and kept != sorted(request.operations):
                yield f"{request.key} was answered {request.operations}, and there is {kept}"
    yield from _cancelled(evidence)
    for key, names in by_key.items():
        yield f"{names} were never asked for ({key})"


def _cancelled(evidence: Evidence) -> Iterator[str]:
    for request in evidence.record.requests:
        if not request.path.endswith("/cancel") or request.status != 200:
            continue
        name = request.path.split("/")[3]
        if evidence.lost(request.answered_ms):
            continue
        if evidence.operations[name]["operation"]["state"] != "cancelled":
            yield f"{name} was cancelled, and goes on"


def _events(evidence: Evidence, begun: Begun) -> Sequence[dict[str, Any]]:
    events: Sequence[dict[str, Any]] = evidence.operations.get(begun.operation, {}).get(
        "events", ()
    )
    return events
