"""The notice on a node, compared with what the node says: one patch, or nothing to write."""

from typing import Any

import pytest

from forewarn_base.kubernetes.node_notices import (
    KEP_TYPES,
    VALID_MS,
    NodeNotice,
    is_expired,
    plan_notice,
)
from forewarn_base.protocol.timestamps import parse
from tests.kubernetes.small_cluster import with_conditions

NOW_MS = parse("2026-11-29T01:00:00Z")
NOTICE = NodeNotice(
    facts=frozenset({"planned"}),
    event_id="E1",
    event_type="Reboot",
    status="Scheduled",
    source="Platform",
    not_before_ms=NOW_MS + 900_000,
    deadline_ms=NOW_MS + 900_000,
    duration_s=9,
)
Node = dict[str, Any]


def node(**conditions: str) -> Node:
    """Return a node with conditions of other programs, by type and status."""
    known = [{"type": kind, "status": status} for kind, status in conditions.items()]
    meta = {"name": "n", "resourceVersion": "7"}
    return {"metadata": meta, "spec": {}, "status": {"conditions": known}}


def write(
    before: Node,
    notice: NodeNotice | None,
    *,
    writer: str = "agent/n",
    types: dict[str, str] | None = None,
    now_ms: int = NOW_MS,
) -> Node:
    """Return the node after its notice was written."""
    plan = plan_notice(before, notice, writer=writer, types=types or KEP_TYPES, now_ms=now_ms)
    return before if plan.patch is None else with_conditions(before, plan.patch)


def true_types(form: Node) -> list[str]:
    """Return the types of the conditions that are true."""
    return sorted(c["type"] for c in form["status"]["conditions"] if c["status"] == "True")


def test_notice_is_a_condition_with_its_horizon() -> None:
    """The annotations say what a boolean cannot. Source: K-1."""
    after = write(node(Ready="True"), NOTICE)
    assert true_types(after) == ["MaintenancePlanned", "Ready"]
    assert after["metadata"]["annotations"] == {
        "forewarn.io/event-id": "E1",
        "forewarn.io/event-type": "Reboot",
        "forewarn.io/not-before": "2026-11-29T01:15:00Z",
        "forewarn.io/deadline": "2026-11-29T01:15:00Z",
        "forewarn.io/expected-interruption": "9s",
        "forewarn.io/writer": "agent/n",
        "forewarn.io/valid-until": "2026-11-29T02:15:09Z",
        "forewarn.io/condition-types": "MaintenancePlanned",
    }


def test_same_notice_is_not_written_again() -> None:
    """Checks at intervals write nothing: one write for each transition. Source: K-1."""
    once = write(node(), NOTICE)
    for later_ms in (0, 60_000, 890_000):
        plan = plan_notice(
            once, NOTICE, writer="agent/n", types=KEP_TYPES, now_ms=NOW_MS + later_ms
        )
        assert plan.patch is None


def test_transition_keeps_when_a_condition_became_true() -> None:
    """A new message does not change when a condition became true."""
    before = write(node(), NOTICE)
    later = NOTICE._replace(facts=frozenset({"planned", "draining"}), not_before_ms=NOW_MS + 1000)
    after = write(before, later, now_ms=NOW_MS + 60_000)
    since = {c["type"]: c["lastTransitionTime"] for c in after["status"]["conditions"]}
    assert since == {
        "MaintenancePlanned": "2026-11-29T01:00:00Z",
        "DrainInProgress": "2026-11-29T01:01:00Z",
    }


def test_end_of_the_event_leaves_the_node_as_it_was() -> None:
    """Conditions and annotations of the notice go; those of others stay. Source: K-1."""
    before = node(Ready="True")
    before["metadata"]["annotations"] = {"team": "web"}
    after = write(write(before, NOTICE), None)
    assert after["metadata"]["annotations"] == {"team": "web"}
    assert true_types(after) == ["Ready"]
    assert write(after, None) is after


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_type_of_another_writer_is_never_written(status: str) -> None:
    """Whatever it says: the other program would fight for it, or be misread. Source: K-2."""
    types = {"VMEventScheduled": "aks-event", "MaintenancePlanned": "planned"}
    before = node(VMEventScheduled=status)
    plan = plan_notice(before, NOTICE, writer="agent/n", types=types, now_ms=NOW_MS)
    assert plan.foreign == ("VMEventScheduled",)
    after = write(write(before, NOTICE, types=types), None, types=types)
    assert after["status"] == before["status"]


def test_readers_of_other_projects_find_their_types() -> None:
    """Soperator's type is true until the event is over; AKS's have its form. Source: K-2."""
    types = {
        "NebiusMaintenanceScheduled": "announced",
        "VMEventScheduled": "aks-event",
        "PreemptionScheduled": "aks-preemption",
    }
    preempt = NOTICE._replace(event_type="Preempt", facts=frozenset({"planned"}))
    after = write(node(), preempt, types=types)
    said = {c["type"]: (c["reason"], c["message"]) for c in after["status"]["conditions"]}
    form = "Preempt Scheduled: Sun, 29 Nov 2026 01:15:00 GMT. EventId: E1"
    assert said["VMEventScheduled"] == ("VMEventScheduled", form)
    assert said["PreemptionScheduled"] == ("SpotEvictionIncoming", form)
    assert "NebiusMaintenanceScheduled" in said
    started = NOTICE._replace(status="Started", facts=frozenset({"in-progress"}))
    assert true_types(write(after, started, types=types)) == [
        "NebiusMaintenanceScheduled",
        "VMEventScheduled",
    ]


def test_notice_of_another_writer_is_left_until_it_expires() -> None:
    """Then the next writer takes it over, or removes it. Source: K-1."""
    before = write(node(), NOTICE, writer="control/a")
    plan = plan_notice(before, NOTICE, writer="agent/n", types=KEP_TYPES, now_ms=NOW_MS)
    assert (plan.patch, plan.other_writer) == (None, "control/a")
    late_ms = NOW_MS + 909_000 + VALID_MS
    assert not is_expired(before, late_ms - 1000)
    assert is_expired(before, late_ms)
    assert true_types(write(before, None, now_ms=late_ms)) == []
    taken = write(before, NOTICE, now_ms=late_ms)
    assert taken["metadata"]["annotations"]["forewarn.io/writer"] == "agent/n"


def test_notice_of_a_long_event_is_extended() -> None:
    """An event may take longer than expected; a valid notice never expires under it."""
    started = NOTICE._replace(not_before_ms=None, facts=frozenset({"in-progress"}))
    form, writes = node(), 0
    for minute in range(300):
        now_ms = NOW_MS + minute * 60_000
        after = write(form, started, now_ms=now_ms)
        writes += after is not form
        form = after
        assert not is_expired(form, now_ms)
    assert writes <= 1 + 300 // 30


def test_uncordoned_node_is_not_drained() -> None:
    """New pods may have come. Source: K-3."""
    drained = NOTICE._replace(facts=frozenset({"planned", "drained"}))
    cordoned = node()
    cordoned["spec"] = {"unschedulable": True}
    assert "Drained" in true_types(write(cordoned, drained))
    after = write(write(cordoned, drained) | {"spec": {}}, drained)
    assert true_types(after) == ["MaintenancePlanned"]


def test_text_of_an_event_is_shortened_to_one_line() -> None:
    """What a service sends as a type or an id cannot break a message."""
    odd = NOTICE._replace(event_type="Reb\noot", event_id="x" * 10_000)
    after = write(node(), odd)
    (condition,) = after["status"]["conditions"]
    assert "\n" not in condition["message"]
    assert len(condition["message"]) < 600
