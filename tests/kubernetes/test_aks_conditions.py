"""AKS's conditions of a node, read as scheduled events."""

from typing import Any

import pytest

from forewarn_base.kubernetes.aks_conditions import AKS_TYPES, ConditionReader
from forewarn_base.kubernetes.node_notices import AKS_EVENT, NodeNotice, plan_notice
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.protocol.timestamps import parse
from tests.kubernetes.small_cluster import with_conditions

ID = "40B7BD88-C56E-44E4-93F6-75CEDACE2869"
TIME = "Wed, 26 Feb 2025 10:13:13 GMT"
LINK = "For more information, see https://aka.ms/aks/scheduledevents."


def node(*conditions: tuple[str, str, str]) -> dict[str, Any]:
    """Return a node with conditions: type, status and message."""
    listed = [
        {"type": kind, "status": status, "message": message, "lastTransitionTime": "2025-02-26"}
        for kind, status, message in conditions
    ]
    return {"metadata": {"name": "aks-1"}, "status": {"conditions": listed}}


def read(*conditions: tuple[str, str, str]) -> tuple[ScheduledEvent, ...]:
    """Read a node for the first time."""
    return ConditionReader().read(node(*conditions))


@pytest.mark.parametrize(
    ("message", "duration_s", "event_id"),
    [
        (f"Preempt Scheduled: {TIME}. DurationInSeconds: -1.  {LINK}", -1, ""),
        (f"Preempt Scheduled: {TIME}. {LINK} EventId: {ID}", -1, ID),
        (f"Preempt Scheduled: {TIME}. DurationInSeconds: 5. EventId: {ID.lower()}", 5, ID),
    ],
)
def test_message_names_the_event(message: str, duration_s: int, event_id: str) -> None:
    """The forms that AKS's releases have written, each with its NotBefore. Source: K-5."""
    [event] = read(("VMEventScheduled", "True", message))
    assert (event.event_type, event.status) == ("Preempt", "Scheduled")
    assert event.not_before_ms == parse(TIME)
    assert (event.duration_s, event.resources) == (duration_s, ("aks-1",))
    assert event.event_id == event_id or not event_id
    assert len(event.event_id) == 36


@pytest.mark.parametrize("kind", [each for each in AKS_TYPES if each != "VMEventScheduled"])
def test_each_type_of_aks_is_an_event(kind: str) -> None:
    """The types of single impacts need no message. Source: K-5."""
    [event] = read((kind, "True", ""), ("Ready", "True", "kubelet is posting ready status"))
    assert event.event_type == AKS_TYPES[kind]
    assert event.not_before_ms is None


@pytest.mark.parametrize(
    "condition",
    [
        ("VMEventScheduled", "False", "VM has no scheduled event"),
        ("VMEventScheduled", "Unknown", "IMDS unavailable"),
        ("VMEventScheduled", "True", "a message in no known form"),
        ("RebootScheduled", "False", ""),
        ("KernelDeadlock", "True", f"Reboot Scheduled: {TIME}"),
    ],
)
def test_condition_without_an_event_announces_none(condition: tuple[str, str, str]) -> None:
    """Nothing is guessed. Source: K-5."""
    assert read(condition) == ()


def test_two_conditions_of_a_preempt_are_one_event() -> None:
    """The one that has the time is believed, in whatever order they stand. Source: K-5."""
    general = ("VMEventScheduled", "True", f"Preempt Scheduled: {TIME}. EventId: {ID}")
    single = ("PreemptScheduled", "True", "")
    for order in ((general, single), (single, general)):
        [event] = read(*order)
        assert (event.event_id, event.not_before_ms) == (ID, parse(TIME))


def test_event_keeps_its_id_when_it_starts() -> None:
    """A message without an id loses its time as well; the event stays the same. Source: K-5."""
    reader = ConditionReader()
    [scheduled] = reader.read(node(("VMEventScheduled", "True", f"Reboot Scheduled: {TIME}.")))
    later = node(("VMEventScheduled", "True", "Reboot Started."))
    later["status"]["conditions"][0]["lastTransitionTime"] = "2025-02-27"
    [started] = reader.read(later)
    assert (started.event_id, started.status) == (scheduled.event_id, "Started")
    assert started.not_before_ms is None


def test_events_stay_while_aks_does_not_know() -> None:
    """AKS says Unknown while its own source does not answer. Source: K-5."""
    reader = ConditionReader()
    known = reader.read(node(("VMEventScheduled", "True", f"Freeze Scheduled: {TIME}.")))
    assert reader.read(node(("VMEventScheduled", "Unknown", "IMDS unavailable"))) == known
    assert reader.read(node(("VMEventScheduled", "False", ""))) == ()


def test_agent_does_not_read_its_own_notice() -> None:
    """An agent may write AKS's types for other readers, and must not follow them. Source: K-2."""
    notice = NodeNotice(
        facts=frozenset({"planned"}),
        event_id=ID,
        event_type="Reboot",
        status="Scheduled",
        source="Platform",
        not_before_ms=parse(TIME),
        deadline_ms=None,
        duration_s=9,
    )
    form = node()
    for writer, count in (("agent/aks-1", 0), ("emulator/aks", 1)):
        types = {"VMEventScheduled": AKS_EVENT}
        plan = plan_notice(form, notice, writer=writer, types=types, now_ms=0)
        assert len(ConditionReader().read(with_conditions(form, plan.patch or {}))) == count


def test_types_are_configurable() -> None:
    """Other projects have conditions of the same kind under other names. Source: K-1."""
    reader = ConditionReader({"MaintenanceScheduled": "Reboot"})
    [event] = reader.read(node(("MaintenanceScheduled", "True", f"at {TIME}")))
    assert (event.event_type, event.not_before_ms) == ("Reboot", parse(TIME))
