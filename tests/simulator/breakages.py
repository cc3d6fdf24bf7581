"""Deliberate breakages of the product: each proves one checker of the simulator.

`mutate.py` runs one in a process of its own; `make mutants` breaks the product by rule instead.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Edit(NamedTuple):
    """A change of a module: a text that stands in it exactly once, and what takes its place."""

    module: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Breakage:
    """One way to break the product."""

    name: str
    #: What is broken, for the table.
    what: str
    edits: tuple[Edit, ...]
    #: The seed of the world that is tried first.
    seed: int = 1


def broken(name: str, what: str, module: str, old: str, new: str, *, seed: int = 1) -> Breakage:
    """Return a breakage by one edit."""
    return Breakage(name, what, (Edit(module, old, new),), seed)


BREAKAGES = (
    Breakage(
        "early",
        "an operation starts five minutes before NotBefore",
        (
            Edit(
                "forewarn_core.fleet.step",
                "operation.not_before_ms <= draft.now_ms:",
                "operation.not_before_ms - 300_000 <= draft.now_ms:",
            ),
            Edit(
                "forewarn_core.fleet.passing_time",
                "in state.looks.due(draft.now_ms):",
                "in state.looks.due(draft.now_ms + 300_000):",
            ),
        ),
    ),
    broken(
        "incarnation-stands-still",
        "the incarnation does not move when the events change",
        "forewarn_core.fleet.document",
        (
            "    incarnation = view.document.incarnation + 1\n"
            "    assert incarnation > view.document.incarnation >= 0, view\n"
        ),
        "    incarnation = view.document.incarnation\n",
    ),
    Breakage(
        "foreign-event-shown",
        "events are shown to every group",
        (
            Edit(
                "forewarn_core.fleet.state",
                "return tuple(self._by_group.get(group, ()))",
                "return tuple(self.events)",
            ),
            Edit(
                "forewarn_core.fleet.lifecycle",
                "return self.group == group and (",
                "return (True) and (",
            ),
        ),
    ),
    broken(
        "driver-begun-twice",
        "a driver is called to begin twice",
        "forewarn_server.control.driver_calls",
        "        driver.begin(call.task)\n",
        ("        driver.begin(call.task)\n        driver.begin(call.task)\n"),
    ),
    broken(
        "late-notice-kept",
        "a notice that is shown late is not given again",
        "forewarn_core.fleet.notice_reports",
        "        if operation.not_before_ms - draft.now_ms < operation.notice_s * SECOND_MS:\n",
        "        if not operation:\n",
        seed=3,
    ),
    broken(
        "unknown-id-accepted",
        "an approval of an unknown id is answered 200",
        "forewarn_core.fleet.approvals",
        "known_event(each) for each in _distinct(approval.event_ids)]",
        "known_event(e) for e in _distinct(approval.event_ids) if draft.event(e)]",
    ),
    broken(
        "failure-announced",
        "a host failure is first shown as Scheduled",
        "forewarn_core.fleet.transitions",
        '    draft.put("operation.started", f"{running.id} is running", running, *started)\n',
        '    draft.put("operation.started", f"{running.id} is running", running)\n',
    ),
    broken(
        "id-reused",
        "event ids are drawn from sixteen",
        "forewarn_base.ids",
        ("bits = self.stream(kind).getrandbits(128)\n        bits = bits &"),
        ("bits = self.stream(kind).getrandbits(4)\n        bits = bits &"),
    ),
    broken(
        "approval-not-written",
        "an approval is kept in memory only, and lost on a crash",
        "forewarn_store",
        ("            if record is None:\n                gone"),
        (
            '            if kind == "event" and record and record.state.value == "approved":\n'
            "                continue\n"
            "            if record is None:\n"
            "                gone"
        ),
    ),
    broken(
        "abort-forgotten",
        "a driver that a crash kept from being called to abort is not called after the restart",
        "forewarn_core.fleet.step",
        " or state.aborts.get(n)\n",
        "\n",
        seed=3,
    ),
    broken(
        "approved-before-all-are-prepared",
        "an agent approves for others that are not prepared",
        "forewarn.agent.core.coordination",
        "        if missing:\n",
        "        if not others:\n",
    ),
    broken(
        "event-over-domains",
        "an event of work on a host names the VMs of every host",
        "forewarn_core.fleet.transitions",
        ("else draft.topology.vms_on(operation.host)\n    shares"),
        ("else tuple(sorted(draft.topology.vms))\n    shares"),
    ),
    Breakage(
        "moves-gather-groups",
        "VMs move to the fullest host, whatever other VMs of their group are there, unchecked",
        (
            Edit(
                "forewarn_core.planning.placement",
                "                best = rank if best is None else min(best, rank)\n",
                (
                    "                best = rank if best is None or rank[5:] < best[5:] else best\n"
                    "                continue\n"
                ),
            ),
            Edit(
                "forewarn_server.control.planning",
                "    if findings:\n",
                "    if findings and not plan.id:\n",
            ),
        ),
    ),
    broken(
        "silent-groups-pass",
        "a gate that waits for polls lets a maintenance go on without them",
        "forewarn_core.fleet.targets",
        "<= polled_ms < max(ended_ms, since_ms + 1):",
        "<= polled_ms < ended_ms - before_s * SECOND_MS:",
        seed=7,
    ),
    broken(
        "approvals-never-start",
        "approvals never start work early",
        "forewarn_core.fleet.step",
        "    if approvals.events_to_approve(draft, operation):",
        "    if any(draft.enabled(each.group) for each in draft.events_of(operation)):",
    ),
    broken(
        "end-not-shown",
        "a document that becomes empty is not shown",
        "forewarn_metadata.endpoint.snapshot",
        "            self.view(publication.view).publish(publication)\n",
        (
            "            if publication.document.events or whole:\n"
            "                self.view(publication.view).publish(publication)\n"
        ),
    ),
    broken(
        "far-nodes-not-awaited",
        "work begins before the nodes away from the service show it",
        "forewarn_server.service.bridge",
        ("        if self._far is None:\n            shown"),
        ("        if True:\n            shown"),
    ),
    broken(
        "unseen-notice-counts",
        "a notice counts although VMs could not be shown it",
        "forewarn_server.control.run_loop",
        "announced = tuple([number for number in announced if number not in waiting])",
        "announced = effects.announced",
    ),
    broken(
        "unseen-unnamed",
        "history does not name the VMs that were not shown their work",
        "forewarn_core.fleet.notice_reports",
        'f"VM {some_names(vms)}"',
        '"some VMs"',
    ),
    broken(
        "change-acknowledged-unshown",
        "a node acknowledges changes, and shows only wholes",
        "forewarn_metadata.replication.feed_client",
        "        self._apply(change)\n        self.state",
        "        if change.whole:\n            self._apply(change)\n        self.state",
    ),
    broken(
        "answer-overtakes-changes",
        "a node is answered before it is sent what the answer is about",
        "forewarn_metadata.replication.feed_client",
        "        if sequence <= self._tag.sequence:\n",
        "        if sequence <= sequence:\n",
    ),
    broken(
        "nodes-sent-all-vms",
        "a node is sent VMs that are not on its hosts",
        "forewarn_metadata.replication.scopes",
        "{feed: None for host in caller.hosts for feed in self._by_host.get(host, ())}",
        "dict.fromkeys(self._feeds.values())",
    ),
    broken(
        "shown-before-kept",
        "a node shows a change before it is on its disk",
        "forewarn_metadata.replication.feed_client",
        (
            "            if self._store is not None:\n"
            "                self._store.keep(tag, body)\n"
            "            self._show_part(part, tag.sequence, whole=shows.epoch != tag.epoch)\n"
        ),
        (
            "            self._show_part(part, tag.sequence, whole=shows.epoch != tag.epoch)\n"
            "            if self._store is not None:\n"
            "                self._store.keep(tag, body)\n"
        ),
    ),
    broken(
        "changes-not-kept",
        "a node keeps its first part, and none since",
        "forewarn_metadata.replication.feed_client",
        "            if self._store is not None:\n                self._store.keep",
        "            if self._store and not shows.epoch:\n                self._store.keep",
    ),
    broken(
        "left-and-named",
        "work on a host names VMs that have left the host",
        "forewarn_core.fleet.transitions",
        "            drop_absent_vms(draft, other)\n\n\ndef _follow_vm",
        "            pass\n\n\ndef _follow_vm",
    ),
    broken(
        "two-works-on-a-vm",
        "work on a host runs beside work on its VMs",
        "forewarn_core.fleet.waiting",
        "if operation.state is not OperationState.ANNOUNCED:\n            return\n        places",
        "if operation is not None:\n            return\n        places",
    ),
    broken(
        "moved-under-work",
        "a VM is moved to a host with work",
        "forewarn_core.fleet.destinations",
        "if host.health is Health.HEALTHY and name not in at_work",
        "if host.health is Health.HEALTHY and (name in at_work or not at_work)",
    ),
    broken(
        "unrecorded-tenure",
        "VMs that arrive have no record of availability",
        "forewarn_core.fleet.availability_records",
        "        if new is not None:\n            arrived",
        "        if new is not None and old is not None:\n            arrived",
    ),
    broken(
        "recorded-late",
        "an event is recorded as Started a second late",
        "forewarn_core.fleet.availability_records",
        "    assert started_ms is not None, event\n",
        "    assert started_ms is not None, event\n    started_ms += 1000\n",
    ),
)
