"""The simulator's own parts: dice, event queue, crash point, disk, and the checkers."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from forewarn.core.document import Enrolment, View
from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import Operation
from forewarn.core.maintenance import Maintenance, MaintenancePlan
from forewarn.core.policy import AppliedPolicy, NoticePolicy
from forewarn.core.state import Changes, Entry
from forewarn.core.topology import Group, GroupKind, Host, Vm
from forewarn.drivers import Task
from forewarn.planning.plan_text import read_plan
from forewarn.protocol.documents import Document, ScheduledEvent
from forewarn.replication.messages import Caller, DocumentChange, Publication
from forewarn.store.errors import StoreFull, StoreUnavailable, StoreUncertain
from tests.simulator.checkers.contract import body_owed
from tests.simulator.checkers.invariants import InvariantChecker
from tests.simulator.checkers.node_checker import HANDED_ON_MS
from tests.simulator.checkers.node_notice import SETTLE_MS
from tests.simulator.world.crash_points import Crash, CrashPoint, Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.driver import SimDriver
from tests.simulator.world.event_queue import HOUR_MS, START_MS, EventQueue
from tests.simulator.world.metadata_node import SimulatedReply
from tests.simulator.world.simulated_store import TROUBLES, Disk, DiskFaultRates, SimulatedStore


class CountingObserver:
    """An observer that only counts."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.durable_count = self.troubles = 0

    def durable(self, changes: Changes) -> None:  # noqa: ARG002 - only counted
        """Count."""
        self.durable_count += 1

    def note_trouble(self) -> None:
        """Count."""
        self.troubles += 1


def test_dice_are_the_same_everywhere() -> None:
    """These draws are written down: a machine that draws others has other dice."""
    dice = Dice(1, "test")
    assert [dice.below(100) for _ in range(5)] == RECORDED
    assert Dice(1, "other").below(1 << 40) != Dice(1, "test").below(1 << 40)


RECORDED = [13, 31, 92, 32, 35]


def test_dice_stay_in_their_limits() -> None:
    """Draws cover the whole range and nothing else."""
    dice = Dice(2, "test")
    assert {dice.between(1, 3) for _ in range(100)} == {1, 2, 3}
    assert {dice.pick("ab") for _ in range(50)} == {"a", "b"}
    assert sorted(dice.some("abc", 9)) == ["a", "b", "c"]
    assert not any(dice.chance(0) for _ in range(50))
    assert all(dice.chance(1000) for _ in range(50))


def test_event_queue_keeps_time_and_order() -> None:
    """Acts come in the order of their times, those of the same time in the order noted."""
    queue = EventQueue()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, queue.now_ms - START_MS))

    queue.after(20, lambda: note("late"))
    queue.after(10, lambda: note("first"))
    queue.after(10, lambda: note("second"))
    queue.at(0, lambda: note("past"))
    while queue.step(START_MS + 15):
        pass
    assert seen == [("past", 0), ("first", 10), ("second", 10)]
    assert queue.now_ms == START_MS + 15


def test_crash_point_goes_off_once() -> None:
    """An armed crash happens at its point, once, and no exception handler can catch it."""
    crash_point = CrashPoint()
    crash_point.passes("before commit")
    crash_point.arm("before commit")
    crash_point.passes("after commit")
    with pytest.raises(Crash):
        crash_point.passes("before commit")
    crash_point.passes("before commit")
    assert crash_point.hits == {"before commit": 1}
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize(
    ("troubles", "error", "durable"),
    [
        (["fine"], None, 1),
        (["refused"], StoreUnavailable, 0),
        (["full"], StoreFull, 0),
        (["lost before"], StoreUnavailable, 0),
        (["lost after"], None, 1),
        (["lost after", "refused"], StoreUncertain, 1),
        (["lost before", "full"], StoreUncertain, 0),
    ],
    ids=lambda each: ", ".join(each) if isinstance(each, list) else "",
)
def test_disk_has_bad_days(
    troubles: list[str], error: type[Exception] | None, durable: int
) -> None:
    """Whatever the caller is told, the observer knows what happened. Source: A-6, L-7."""
    rates, observer = DiskFaultRates(Dice(1, "disk")), CountingObserver()
    with closing(Disk(rates)) as disk:
        store = SimulatedStore(disk, CrashPoint(), observer)
        state = store.load()
        rates.next = list(troubles)
        changes = Changes(
            state.last_number + 1, entries=[Entry(1, "operator", "test.done", "done")]
        )
        if error is None:
            store.commit(changes)
        else:
            with pytest.raises(error):
                store.commit(changes)
        assert observer.durable_count == durable
        assert store.load().last_number == durable


@pytest.mark.parametrize("trouble", ["lost before", "lost after"])
def test_lost_commit_is_settled_once(trouble: str) -> None:
    """What it was to make durable is told where it did, also on an empty store. Source: L-7."""
    rates = DiskFaultRates(Dice(1, "disk"))
    with closing(Disk(rates)) as disk:
        observer = CountingObserver()
        store = SimulatedStore(disk, CrashPoint(), observer)
        state = store.load()
        assert store.settle() is None
        rates.next = [trouble, "refused", "fine"]
        mark = Changes(state.last_number, mark=("a boot", 1))  # which writes no history
        with pytest.raises(StoreUncertain):
            store.commit(mark)
        rates.next, troubles = ["refused"] * 3, observer.troubles
        with pytest.raises(StoreUncertain):
            store.settle()
        rates.next = []
        assert observer.troubles > troubles  # so that nobody is held to be up to date meanwhile
        assert store.settle() is (mark if trouble == "lost after" else None)
        assert store.settle() is None
        store.commit(Changes(1, entries=[Entry(1, "operator", "test.done", "done")]))
        state = store.load()
        assert (state.last_number, state.mark) == (
            1,
            mark.mark if trouble == "lost after" else ("", 0),
        )


def test_bad_time_of_a_disk_ends_by_count() -> None:
    """It lasts until this many writes have met it, however rarely anything is written."""
    rates = DiskFaultRates(Dice(1, "disk"))
    rates.permille, rates.left = 1000, 3
    drawn = [rates.draw() for _ in range(5)]
    assert all(trouble in TROUBLES for trouble in drawn[:3])
    assert drawn[3:] == ["", ""]
    assert sum(rates.fault_counts.values()) == 3


def test_event_queue_that_runs_in_a_circle_is_stopped() -> None:
    """Something that wakes each millisecond is found within a simulated minute. Source: L-8."""
    queue = EventQueue()

    def wake() -> None:
        queue.after(1, wake)

    wake()
    with pytest.raises(Violation, match="steps have come in a simulated minute"):
        _ = [queue.step(START_MS + 3_600_000) for _ in range(queue.steps_max + 2)]
    assert queue.now_ms < START_MS + 60_000


def test_driver_asked_after_what_it_never_began_complains() -> None:
    """Not as a driver's failure: the product would take that for one of the work. Source: L-7."""
    operation = Operation(
        number=7,
        request=7,
        cause=Cause.REBOOT,
        impact=Impact.REBOOT,
        source=Source.USER,
        routine=True,
        host="h1",
        vms=("vm",),
        of_vm=True,
        description="",
    )
    with pytest.raises(Violation, match="op-7"):
        SimDriver(Dice(1, "driver")).progress(Task(operation), START_MS)


def marked_late(after_ms: int) -> InvariantChecker:
    """A group asked at the start, and has a mark of this much later."""
    queue = EventQueue()
    checker = InvariantChecker(queue, NoticePolicy())
    checker.clients.polls_are_marked = True
    vms: dict[str, Vm | None] = {"v": Vm("v", "h", "g")}
    changes = Changes(0, hosts={"h": Host("h")}, groups={"g": Group("g")}, vms=vms)
    changes.enrolments["g"] = Enrolment("g", enabled_ms=START_MS, polled_ms=START_MS)
    checker.take(changes, START_MS)
    checker.clients.asks("v")
    pass_ms(queue, after_ms)
    marked = Enrolment("g", enabled_ms=START_MS, polled_ms=queue.now_ms)
    checker.take(Changes(0, enrolments={"g": marked}), queue.now_ms)
    checker.clients.marked(frozenset({"g"}), queue.now_ms)
    return checker


def test_gate_that_counts_a_poll_made_before_its_wave_is_noticed() -> None:
    """Whatever the mark says: what the group's VMs asked decides. Source: F-5."""
    checker = marked_late(600_000)
    with pytest.raises(Violation, match="asked last 300000 ms too early"):
        checker.clients.check_polled("g", START_MS + 300_000)
    checker.clients.asks("v")
    checker.clients.check_polled("g", START_MS + 300_000)


def test_gate_waits_for_nobody_who_had_fallen_silent_before() -> None:
    """Who did not poll in the hour before the work need not poll after it. Source: F-5."""
    marked_late(2 * 3_600_000).clients.check_polled("g", START_MS + 3_600_000)


@pytest.mark.parametrize("well", [True, False], ids=["well", "store-away"])
def test_report_of_polls_counts_where_the_store_could_keep_it(*, well: bool) -> None:
    """A group may be disabled a day after the last one that was not lost. Source: B-2."""
    queue = EventQueue()
    checker = InvariantChecker(queue, NoticePolicy())
    checker.clients.polls_are_marked = True
    checker.sound_since_ms = lambda _: START_MS if well else queue.now_ms
    changes = Changes(0, groups={"g": Group("g")})
    changes.enrolments["g"] = Enrolment("g", enabled_ms=START_MS, polled_ms=START_MS)
    checker.take(changes, START_MS)
    pass_ms(queue, HOUR_MS)
    checker.clients.marked(frozenset({"g"}), queue.now_ms)
    pass_ms(queue, 23 * HOUR_MS)
    with pytest.raises(Violation, match=r"23\.0 hours") if well else nullcontext():
        checker.take(Changes(0, enrolments={"g": None}), queue.now_ms)


def pass_ms(queue: EventQueue, by_ms: int) -> None:
    """Let time pass in which nothing happens."""
    queue.after(by_ms, lambda: None)
    assert queue.step(queue.now_ms + by_ms)


@dataclass
class FarHypervisor:
    """A node away from the service, which says nothing."""

    name: str
    hosts: frozenset[str] | None
    up: bool = True
    since_ms: int = START_MS
    serves: bool = True
    may_come_back_empty: bool = False
    spooled: list[bytes] = field(default_factory=list)


def test_node_that_asks_for_a_vm_on_its_way_there_tells_no_lie() -> None:
    """Its request may have waited for the feed since before the VM was moved. Source: M-5."""
    checker = InvariantChecker(EventQueue(), NoticePolicy())
    node = FarHypervisor("node-2", frozenset({"h2"}))
    checker.nodes.far = (node,)
    hosts: dict[str, Host | None] = {name: Host(name) for name in ("h1", "h2")}
    changes = Changes(0, hosts=hosts, groups={"g": Group("g")}, vms={"v": Vm("v", "h1", "g")})
    checker.take(changes, START_MS)
    with pytest.raises(Violation, match="not on its hosts"):
        checker.nodes.asks_for_others(node, "v", accepted=True)
    checker.take(Changes(0, vms={"v": Vm("v", "h2", "g")}), START_MS)
    checker.nodes.asks_for_others(node, "v", accepted=True)


def test_plan_of_a_clock_that_was_put_back_is_younger_than_its_policy() -> None:
    """A standby whose clock is 200 ms behind plans at once; an older plan is noticed. F-3."""
    queue = EventQueue()
    checker = InvariantChecker(queue, NoticePolicy())
    cause, impact = Cause.HOST_REBOOT, Impact.REBOOT
    asked = Maintenance(1, cause, impact, (), START_MS, "operator", duration_s=60)
    applied = AppliedPolicy("fleet", START_MS, "operator", NoticePolicy().maintenance)
    checker.take(Changes(0, maintenances={1: asked}, policies={"fleet": applied}), START_MS)

    def plan_made(ahead_ms: int, service_ms: int) -> None:
        body = read_plan(
            '{"waves": [], "moves": {}, "blocked": [], "bound": [0, ""], "limits": []}'
        )
        plan = MaintenancePlan("p", 1, "", START_MS + ahead_ms, body)
        checker.take(Changes(0, plans={"p": plan}), service_ms)

    plan_made(-100, START_MS - 100)
    with pytest.raises(Violation, match="before the policy in force"):
        plan_made(-101, START_MS - 100)
    with pytest.raises(Violation, match="before the policy in force"):
        plan_made(-1, START_MS)


def followed() -> tuple[EventQueue, InvariantChecker, FarHypervisor]:
    """Return a checker of one VM, and the node away from the service that knows it."""
    queue = EventQueue()
    checker = InvariantChecker(queue, NoticePolicy())
    node = FarHypervisor("node-2", frozenset({"h"}))
    checker.nodes.far = (node,)
    vms: dict[str, Vm | None] = {"v": Vm("v", "h", "g")}
    checker.take(Changes(0, hosts={"h": Host("h")}, groups={"g": Group("g")}, vms=vms), START_MS)
    checker.nodes.takes(node, DocumentChange(1, callers=(Caller("v", "g", "g"),)))
    return queue, checker, node


@pytest.mark.parametrize("lags", [True, False], ids=["lags", "forgets"])
def test_node_that_was_equal_once_is_looked_at_again(*, lags: bool) -> None:
    """It does not hear of a VM that is added, or lets go of one. Source: M-1."""
    queue, checker, node = followed()
    pass_ms(queue, SETTLE_MS)
    checker.nodes.look(node)
    if lags:
        checker.take(Changes(0, vms={"w": Vm("w", "h", "g")}), queue.now_ms)
    else:
        checker.nodes.takes(node, DocumentChange(2, gone=("v",)))
    pass_ms(queue, SETTLE_MS)
    with pytest.raises(Violation, match="does not know " + ("w" if lags else "v")):
        checker.nodes.look(node)


@pytest.mark.parametrize("lost", [True, False], ids=["feed-lost", "feed-kept"])
def test_poll_is_owed_unless_the_feed_it_went_to_is_lost(*, lost: bool) -> None:
    """A node reports a poll once; who kept its feed has reported it, who lost it the next. B-2."""
    queue, checker, node = followed()
    checker.sound_since_ms = lambda _: queue.now_ms  # the service stands still
    poll(checker, node)
    if lost:
        checker.nodes.lost_feed(node)
    away_ms = queue.now_ms
    pass_ms(queue, 2 * HANDED_ON_MS)
    checker.sound_since_ms = lambda _: away_ms
    with nullcontext() if lost else pytest.raises(Violation, match="120 s ago: not reported"):
        checker.nodes.look(node)
    checker.nodes.marked(frozenset({"g"}))
    poll(checker, node)
    pass_ms(queue, HANDED_ON_MS + 1)
    with pytest.raises(Violation, match="60 s ago: not reported"):
        checker.nodes.look(node)


def poll(checker: InvariantChecker, node: FarHypervisor) -> None:
    """Have the VM ask its node, and be answered."""
    reply = SimulatedReply(200, view="g")
    checker.nodes.polled("v", node, reply, calm_since_ms=START_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize("view", ["g/v", "g"], ids=["its-own", "its-group's"])
def test_document_that_two_views_had_is_the_one_its_node_was_sent(view: str) -> None:
    """A VM's own document may say what its group's said long ago; only that is old. M-2, S-3."""
    queue = EventQueue()
    checker = InvariantChecker(queue, NoticePolicy())
    node: Any = FarHypervisor("node-2", None)
    checker.nodes.far = (node,)
    group = Group("g", GroupKind.SCALE_SET, fault_domain_count=1)
    first = Document(0, ())
    changes = Changes(0, hosts={"h": Host("h")}, groups={"g": group})
    changes.vms["v"] = Vm("v", "h", "g", gpu=True)
    changes.views.update({key: View(key, "g", first) for key in ("g", "g/v")})
    checker.take(changes, START_MS)
    sent = tuple(Publication(key, enabled=True, document=first) for key in changes.views)
    caller = Caller("v", "g", view)
    checker.nodes.takes(node, DocumentChange(1, callers=(caller,), publications=sent))
    later = View("g", "g", Document(1, (ScheduledEvent(event_id="E"),)))
    checker.take(Changes(0, views={"g": later}), queue.now_ms)
    pass_ms(queue, HOUR_MS)
    checker.nodes.look(node)  # it shows what VMs are owed, and then is cut off
    checker.sound_since_ms = lambda _: queue.now_ms
    checker.take(Changes(0, vms={"v": Vm("v", "h", "g")}, views={"g/v": None}), queue.now_ms)
    version = "2020-07-01"
    body = body_owed(0, (), version)
    found = checker.view_read("v", version, body, node=node)
    reply = SimulatedReply(200, body, found, version)
    with nullcontext() if view == "g/v" else pytest.raises(Violation, match="3600 s before it was"):
        checker.clients.polled("v", node, reply, answered_ms=queue.now_ms)
    assert found == view
