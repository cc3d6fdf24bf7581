"""Deliberate breakages of the product: each proves one checker of the simulator.

`mutate.py` runs one in a process of its own; `make mutants` breaks the product by rule instead.
"""

from dataclasses import dataclass

Edit = tuple[str, str, str]
"""Module, a text that stands in it exactly once, and what takes its place."""


@dataclass(frozen=True, slots=True)
class Breakage:
    """One way to break the product."""

    name: str
    #: What is broken, for the table.
    what: str
    edits: tuple[Edit, ...]
    #: The seed of the world that is tried first, and the invariant that it finds broken.
    caught_by: tuple[int, str]


BREAKAGES = (
    Breakage(
        "early",
        "an operation starts five minutes before NotBefore",
        (
            (
                "forewarn.core.step",
                "operation.not_before_ms <= draft.now_ms:",
                "operation.not_before_ms - 300_000 <= draft.now_ms:",
            ),
            (
                "forewarn.core.handlers",
                "in state.looks.due(draft.now_ms):",
                "in state.looks.due(draft.now_ms + 300_000):",
            ),
        ),
        (1, "1"),
    ),
    Breakage(
        "incarnation-stands-still",
        "the incarnation does not move when the events change",
        (
            (
                "forewarn.core.document",
                (
                    "    incarnation = view.document.incarnation + 1\n"
                    "    assert incarnation > view.document.incarnation >= 0, view\n"
                ),
                "    incarnation = view.document.incarnation\n",
            ),
        ),
        (1, "2"),
    ),
    Breakage(
        "foreign-event-shown",
        "events are shown to every group",
        (
            (
                "forewarn.core.state",
                "return tuple(self._by_group.get(group, ()))",
                "return tuple(self.events)",
            ),
            ("forewarn.core.lifecycle", "return self.group == group and (", "return (True) and ("),
        ),
        (1, "13"),
    ),
    Breakage(
        "driver-begun-twice",
        "a driver is called to begin twice",
        (
            (
                "forewarn.control.driver_calls",
                "        driver.begin(call.task)\n",
                ("        driver.begin(call.task)\n        driver.begin(call.task)\n"),
            ),
        ),
        (1, "9"),
    ),
    Breakage(
        "late-notice-kept",
        "a notice that is shown late is not given again",
        (
            (
                "forewarn.core.handlers",
                "        if operation.not_before_ms - draft.now_ms < operation.notice_s * SECOND_MS:\n",  # noqa: E501
                "        if not operation:\n",
            ),
        ),
        (3, "6"),
    ),
    Breakage(
        "unknown-id-accepted",
        "an approval of an unknown id is answered 200",
        (
            (
                "forewarn.core.approvals",
                "known_event(each) for each in _distinct(approval.event_ids)]",
                "known_event(e) for e in _distinct(approval.event_ids) if draft.event(e)]",
            ),
        ),
        (1, "7"),
    ),
    Breakage(
        "failure-announced",
        "a host failure is first shown as Scheduled",
        (
            (
                "forewarn.core.transitions",
                '    draft.put("operation.started", f"{running.id} is running", running, *started)\n',  # noqa: E501
                '    draft.put("operation.started", f"{running.id} is running", running)\n',
            ),
        ),
        (1, "8"),
    ),
    Breakage(
        "id-reused",
        "event ids are drawn from sixteen",
        (
            (
                "forewarn.ids",
                ("bits = self.stream(kind).getrandbits(128)\n        bits = bits &"),
                ("bits = self.stream(kind).getrandbits(4)\n        bits = bits &"),
            ),
        ),
        (1, "3"),
    ),
    Breakage(
        "approval-not-written",
        "an approval is kept in memory only, and lost on a crash",
        (
            (
                "forewarn.store",
                ("        if record is None:\n            gone"),
                (
                    '        if kind == "event" and record and record.state.value == "approved":\n'
                    "            continue\n"
                    "        if record is None:\n"
                    "            gone"
                ),
            ),
        ),
        (1, "10"),
    ),
    Breakage(
        "abort-forgotten",
        "a driver that a crash kept from being called to abort is not called after the restart",
        (("forewarn.control.plane", " or state.aborts.get(n)\n", "\n"),),
        (3, "L-7"),
    ),
    Breakage(
        "approved-before-all-are-prepared",
        "an agent approves for others that are not prepared",
        (
            (
                "forewarn.agent.core.coordination",
                "        if missing:\n",
                "        if not others:\n",
            ),
        ),
        (1, "C-5"),
    ),
    Breakage(
        "event-over-domains",
        "an event of work on a host names the VMs of every host",
        (
            (
                "forewarn.core.transitions",
                ("else draft.topology.vms_on(operation.host)\n    shares"),
                ("else tuple(sorted(draft.topology.vms))\n    shares"),
            ),
        ),
        (1, "4"),
    ),
    Breakage(
        "silent-groups-pass",
        "a gate that waits for polls lets a maintenance go on without them",
        (
            (
                "forewarn.core.targets",
                "<= polled_ms < max(ended_ms, since_ms + 1):",
                "<= polled_ms < ended_ms - before_s * SECOND_MS:",
            ),
        ),
        (7, "F-5"),
    ),
    Breakage(
        "approvals-never-start",
        "approvals never start work early",
        (
            (
                "forewarn.core.step",
                "    if approvals.events_to_approve(draft, operation):",
                "    if any(draft.enabled(each.group) for each in draft.events_of(operation)):",
            ),
        ),
        (1, "L-1"),
    ),
    Breakage(
        "end-not-shown",
        "a document that becomes empty is not shown",
        (
            (
                "forewarn.metadata.snapshot",
                "            self.view(publication.view).publish(publication)\n",
                (
                    "            if publication.document.events or whole:\n"
                    "                self.view(publication.view).publish(publication)\n"
                ),
            ),
        ),
        (1, "S-1"),
    ),
    Breakage(
        "far-nodes-not-awaited",
        "work begins before the nodes away from the service show it",
        (
            (
                "forewarn.service.bridge",
                ("        if self._far is None:\n            shown"),
                ("        if True:\n            shown"),
            ),
        ),
        (1, "M-4"),
    ),
    Breakage(
        "unseen-notice-counts",
        "a notice counts although VMs could not be shown it",
        (
            (
                "forewarn.control.engine",
                "announced = tuple([number for number in announced if number not in waiting])",
                "announced = follow_up.announced",
            ),
        ),
        (1, "H-7"),
    ),
    Breakage(
        "unseen-unnamed",
        "history does not name the VMs that were not shown their work",
        (
            (
                "forewarn.core.handlers",
                'f"vm {some_names(vms)}"',
                '"some VMs"',
            ),
        ),
        (1, "M-4"),
    ),
    Breakage(
        "change-acknowledged-unshown",
        "a node acknowledges changes, and shows only wholes",
        (
            (
                "forewarn.replication.feed_client",
                "            self._apply(change)\n",
                ("            if change.whole:\n                self._apply(change)\n"),
            ),
        ),
        (1, "M-1"),
    ),
    Breakage(
        "answer-overtakes-changes",
        "a node is answered before it is sent what the answer is about",
        (
            (
                "forewarn.replication.node_session",
                "        self._answers.append((self.feed.log.next, feed.line_of(message)))\n",
                "        self.writer.write(feed.line_of(message))\n",
            ),
        ),
        (1, "A-6"),
    ),
    Breakage(
        "nodes-sent-all-vms",
        "a node is sent VMs that are not on its hosts",
        (
            (
                "forewarn.replication.scopes",
                "{feed: None for host in caller.hosts for feed in self._by_host.get(host, ())}",
                "dict.fromkeys(self._feeds.values())",
            ),
        ),
        (1, "M-5"),
    ),
    Breakage(
        "shown-before-kept",
        "a node shows a change before it is on its disk",
        (
            (
                "forewarn.replication.feed_client",
                (
                    "            if self._store is not None:\n"
                    "                self._store.keep(change, position)\n"
                    "            self._apply(change)\n"
                ),
                (
                    "            self._apply(change)\n"
                    "            if self._store is not None:\n"
                    "                self._store.keep(change, position)\n"
                ),
            ),
        ),
        (1, "M-2"),
    ),
    Breakage(
        "changes-not-kept",
        "a node keeps the whole, and none of the changes since",
        (
            (
                "forewarn.replication.node_store",
                "self.files.append(FILE, (each.line for each in portions))",
                "1",
            ),
        ),
        (1, "D-1"),
    ),
)
