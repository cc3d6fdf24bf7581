"""Finds the groups that listen for events, and their answers to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import Schema
from forewarn_base.values import value
from forewarn_core.fleet.approvals import unapproving
from forewarn_core.fleet.document import Enrolment
from forewarn_core.fleet.lifecycle import Event, EventState, Operation
from forewarn_server.api.schemas import TEXT, TEXTS, TIME, Member, ObjectSchema
from forewarn_server.control.plane import StateView

_NOT_ASKED = "not-asked"
_STATES: Schema = {"type": "string", "enum": ["waiting", "approved", "started", _NOT_ASKED]}
POLLED_MEANING = (
    "Last poll of the group, to the minute; null: no poll since Scheduled Events was enabled."
)


@value
class GroupAnswer:
    """A group's answer to one event; each event belongs to one group and one operation."""

    operation: Operation
    event: Event
    owner: str
    enrolment: Enrolment | None
    #: VMs that have not approved the event.
    missing: tuple[str, ...]

    @property
    def state(self) -> str:
        """The state of the answer, one of `_STATES`."""
        if self.event.state is not EventState.SCHEDULED:
            state: str = self.event.state.value
            return state
        return "waiting" if self.enrolment else _NOT_ASKED


APPROVAL: ObjectSchema[GroupAnswer] = ObjectSchema(
    "GroupAnswer",
    "A group's answer to one event; each event belongs to one group and one operation.",
    Member("operation", TEXT, "operation.id"),
    Member("host", TEXT, "operation.host"),
    Member("event", TEXT, "event.id"),
    Member("group", TEXT, "event.group"),
    Member("owner", TEXT, meaning="Empty: nobody's."),
    Member("state", _STATES, meaning="not-asked: the group does not listen for events."),
    Member(
        "missing",
        TEXTS,
        "missing",
        "VMs without an approval of the event. One approval is enough unless the group is strict.",
    ),
    Member("not_before", TIME, "operation.notice.not_before_ms"),
    Member(
        "polled",
        TIME,
        lambda a: written(a.enrolment.last_poll_ms if a.enrolment else 0),
        POLLED_MEANING,
    ),
)


def approvals(view: StateView, maintenance: int, now_ms: int) -> list[GroupAnswer]:
    """Return the groups' answers to a maintenance's announced events; O(working hosts)."""
    return list(_approvals(view, maintenance, now_ms))


def _approvals(view: StateView, maintenance: int, now_ms: int) -> Iterator[GroupAnswer]:
    draft = view.draft(now_ms)
    for target in draft.progress(maintenance).worked_on:
        operation = draft.operation(target.operation)
        for event in draft.events_of(operation) if operation else ():
            assert operation is not None
            missing = unapproving(event) if event.state is EventState.SCHEDULED else ()
            owner = draft.topology.groups[event.group].owner
            yield GroupAnswer(operation, event, owner, draft.enrolment(event.group), missing)


def unasked_groups(view: StateView, hosts: Iterable[str]) -> list[str]:
    """Return the groups on these hosts that do not listen for events, sorted; O(VMs)."""
    topology = view.state.topology
    groups = {topology.vms[vm].group for host in hosts for vm in topology.vms_on(host)}
    return sorted(group for group in groups if group not in view.state.enrolments)
