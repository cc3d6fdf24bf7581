"""Publishing as a stage of its own: what failed, what nobody confirmed, and what waits for it."""

from collections.abc import Iterator

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, Enable, RequestMaintenance, Retry
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_metadata.replication.messages import PublishResult
from forewarn_store.errors import StoreFull, StoreUncertain
from tests.control.rig import Running, refuses
from tests.waiting import LIMIT_S

HOUR_MS = 3_600_000


@pytest.fixture
def running() -> Iterator[Running]:
    """A run loop with two hosts, each with a VM in a group of its own."""
    made = Running()
    made.ask(ChangeTopology((Host("h2"),), (Group("g2"),), (Vm("v2", "h2", "g2"),)))
    made.ask(Enable("g2"))
    yield made
    made.loop.stop()
    made.store.close()


@pytest.mark.parametrize("way", ["fails", "raises"])
def test_publication_that_fails_is_not_followed_by_a_begin(running: Running, way: str) -> None:
    """Nothing is begun before it is shown, however often that fails. Source: L-7."""
    operation = running.announce()
    setattr(running.publisher, way, True)
    running.ask(ApprovalRequest("v", operation.events, ""))
    for _ in range(3):
        running.pass_time()
    assert running.state_of(operation) is OperationState.RUNNING
    assert running.driver.begun == []
    assert not running.loop.shows
    setattr(running.publisher, way, False)
    running.pass_time()
    assert running.driver.begun == [1]
    assert running.loop.shows


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])
def test_step_of_the_clock_does_not_put_publishing_off(running: Running, step_ms: int) -> None:
    """What failed is published again as soon as it would have been. Source: L-7, N-4."""
    operation = running.announce()
    running.publisher.fails = True
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    running.publisher.fails = False
    running.pass_time(step_ms=step_ms)
    assert running.loop.shows
    assert running.driver.begun == [1]


def test_answer_waits_for_nothing_that_failed(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits to have it shown is answered while nothing can be published. Source: M-4."""
    running.publisher.fails = True
    running.announce()
    work = RequestMaintenance(cause=Cause.REBOOT, targets=("v",))
    assert running.loop.submit(work, "test", shown=True).result(LIMIT_S).operations
    assert not running.loop.shows
    assert [each.action for each in caplog.records] == ["publication-failed"]  # type: ignore[attr-defined]


def test_notice_that_could_not_be_published_does_not_run(running: Running) -> None:
    """It counts from when it was shown: the service gives it again. Source: N-1, M-4."""
    running.publisher.fails = True
    operation = running.announce()
    running.pass_time(20 * 60_000)
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.publisher.fails = False
    running.pass_time()
    assert running.history(operation)[-2:] == ["operation.renewed", "operation.shown"]


def test_everything_is_published_again_after_a_failure(running: Running) -> None:
    """A later change may rest on the one that was lost, so that the whole goes out. Source: L-7."""
    running.publisher.fails = True
    running.announce()
    running.publisher.fails = False
    running.pass_time()
    assert [change.whole for change in running.publisher.changes[-3:-1]] == [False, True]


def test_change_is_not_published_on_top_of_what_failed(running: Running) -> None:
    """Nodes would lack what it rests on: it goes out with everything. Source: M-1, M-4."""
    running.publisher.fails = True
    first = running.announce()
    running.settle()
    running.publisher.fails = False
    running.publisher.changes.clear()
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",))
    [second] = running.ask(asked).operations
    running.settle()
    assert running.publisher.changes == []
    running.pass_time()
    assert running.publisher.changes[0].whole
    assert [running.history(each)[-1] for each in (first, second)] == ["operation.shown"] * 2


def test_node_that_does_not_confirm_is_named(running: Running) -> None:
    """Policy's time is up: the operation goes on, and people are told of whom. Source: M-4."""
    operation = running.announce()
    running.publisher.result = PublishResult(("worker 2",))
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    assert running.driver.begun == [1]
    entries = running.entries(operation)
    [told] = [entry for entry in entries if entry.action == "operation.not-shown"]
    assert told.text == "node worker 2 did not show op-1 in time: VM v may not know of it"
    actions = [entry.action for entry in entries]
    assert actions.index("operation.not-shown") < actions.index("operation.begun")


@pytest.mark.parametrize(
    ("hosts", "who"),
    [(("h", "h9"), "VM v"), (("h9",), "other VMs of its groups on host h9")],
    ids=["its-own", "others"],
)
def test_only_vms_of_nodes_that_did_not_confirm_are_named(
    running: Running, hosts: tuple[str, ...], who: str
) -> None:
    """A VM whose own node shows the event knows of it. Source: M-4."""
    operation = running.announce()
    running.publisher.result = PublishResult(("n9",), hosts)
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    [told] = [e for e in running.entries(operation) if e.action == "operation.not-shown"]
    assert told.text == f"node n9 did not show op-1 in time: {who} may not know of it"


def test_notice_that_vms_are_not_shown_is_published_again(running: Running) -> None:
    """It counts once their node is back; until then its documents go out again. Source: H-7."""
    running.publisher.result = PublishResult(("n",), ("h",))
    operation = running.announce()
    changes = len(running.publisher.changes)
    running.pass_time()
    running.pass_time()
    assert len(running.publisher.changes) == changes + 2
    assert running.history(operation)[-1] == "operation.not-shown"
    running.publisher.result = PublishResult()
    running.pass_time()
    assert running.history(operation)[-1] == "operation.shown"
    changes = len(running.publisher.changes)
    running.pass_time()
    assert len(running.publisher.changes) == changes


def test_notice_counts_for_work_whose_own_vms_are_shown_it(running: Running) -> None:
    """Work on one host does not wait for the node of another. Source: H-7."""
    running.publisher.result = PublishResult(("n",), ("h",))
    waiting = running.announce()
    work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",))
    [other] = running.ask(work).operations
    running.settle()
    assert running.history(other)[-1] == "operation.shown"
    assert "operation.shown" not in running.history(waiting)


def test_publication_about_others_does_not_count_as_the_notice(running: Running) -> None:
    """Other nodes confirm what they were sent; the VM's own node is away still. Source: H-7."""
    running.publisher.result = PublishResult(("n",), ("h",))
    operation = running.announce()
    running.publisher.result = PublishResult()
    running.ask(ChangeTopology(groups=(Group("g", strict_approval=True),)))
    running.ask(ChangeTopology(vms=(Vm("v", "h", "g", tags=(("a", "b"),)),)))
    running.settle()
    assert "operation.shown" not in running.history(operation)


def test_notice_waits_though_the_store_refuses_to_say_so(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What history cannot take now does not let work go on. Source: H-7."""
    running.publisher.late = True
    operation = running.announce()
    running.publisher.result = PublishResult(("n",), ("h",))
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreFull(place="here", reason="full")))
        running.publisher.catch_up()
        running.settle()
    running.pass_time()
    assert running.history(operation)[-1] == "operation.not-shown"


def test_late_publication_holds_up_only_its_own_operations(running: Running) -> None:
    """A node that is slow with one host's documents does not delay another's. Source: M-4."""
    first = running.announce()
    running.publisher.late = True
    running.ask(ApprovalRequest("v", first.events, ""))
    running.publisher.late = False
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h2",))
    second = running.ask(asked).operations[0]
    running.settle()
    assert "operation.begun" in running.history(second)
    assert "operation.begun" not in running.history(first)
    running.ask(Retry(first.number))
    running.settle()
    assert "operation.begun" not in running.history(first)
    running.publisher.catch_up()
    running.settle()
    assert running.history(first)[-1] == "operation.begun"


def test_what_changes_before_a_beginning_is_shown_before_it(running: Running) -> None:
    """A VM that arrives on a host that has failed is told before its driver is. L-5, L-7."""
    [moved] = running.ask(
        RequestMaintenance(cause=Cause.HOST_LOST, targets=("h2",), destination="h")
    ).operations
    running.settle()
    running.publisher.late = True
    [lost] = running.ask(
        RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h",))
    ).operations
    running.ask(Complete(moved.number))
    assert running.plane.state.operations[lost.number].vms == ("v", "v2")
    running.publisher.show_first()
    running.settle()
    assert "operation.begun" not in running.history(lost)
    running.publisher.catch_up()
    running.settle()
    assert running.history(lost).count("operation.begun") == 1


def test_work_is_shown_in_a_new_document_before_it_begins(running: Running) -> None:
    """A VM with a GPU gets a document of its own while work waits to begin. Source: L-7, S-3."""
    operation = running.announce()
    running.publisher.late = True
    running.ask(ApprovalRequest("v", operation.events, ""))
    group = Group("g", GroupKind.SCALE_SET, fault_domain_count=1)
    running.ask(ChangeTopology(groups=(group,), vms=(Vm("v", "h", "g", gpu=True),)))
    running.publisher.show_first()
    running.settle()
    assert "operation.begun" not in running.history(operation)
    running.publisher.catch_up()
    running.settle()
    assert running.history(operation)[-1] == "operation.begun"


def test_beginning_that_is_not_on_record_is_not_repeated(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two publications may have it follow, and a full store stands between them. Source: R-2."""
    operation = running.announce()
    running.publisher.late = True
    running.ask(ApprovalRequest("v", operation.events, ""))
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreUncertain(place="here", reason="cut")))
        with pytest.raises(StoreUncertain):
            running.ask(ChangeTopology((Host("h3"),)))
    running.pass_time(0)  # what it has is taken up and published again
    assert running.publisher.changes[-1].whole
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreFull(place="here", reason="full")))
        running.publisher.show_last()
        running.pass_time()
        assert running.driver.begun == [1]
        running.publisher.catch_up()
        running.pass_time()
        assert running.driver.begun == [1]
    running.pass_time()
    assert running.driver.begun == [1]
    assert "operation.begun" in running.history(operation)


def test_what_failed_is_published_as_soon_as_the_store_has_told(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when that was due by a clock that has been put back since. Source: L-7, N-4."""
    operation = running.announce()
    running.publisher.fails = True
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    running.publisher.fails = False
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreUncertain(place="here", reason="cut")))
        with pytest.raises(StoreUncertain):
            running.ask(ChangeTopology((Host("h3"),)))
    running.pass_time(0)
    assert running.loop.shows
    assert set(running.driver.begun) == {1}  # again for each time the store was asked


def tried_at(running: Running, seconds: int) -> list[int]:
    """The seconds from now at which something is published, of so many."""
    found = []
    for second in range(1, seconds + 1):
        before = len(running.publisher.changes)
        running.pass_time(1000)
        if len(running.publisher.changes) > before:
            found.append(second)
    return found


def test_publishing_is_tried_again_after_pauses_that_double(running: Running) -> None:
    """From one second to half a minute, and from one second again once it succeeded. L-7."""
    running.publisher.fails = True
    running.announce()
    running.settle()
    assert tried_at(running, 130) == [1, 3, 7, 15, 31, 61, 91, 121]
    running.publisher.fails = False
    assert tried_at(running, 40) == [21]
    assert running.loop.shows
    running.publisher.fails = True
    running.ask(ChangeTopology((), (), (Vm("v3", "h2", "g2"),)))
    running.settle()
    assert tried_at(running, 8) == [1, 3, 7]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in-order", "other-way-round"])
def test_all_that_waited_for_what_failed_is_done_in_the_end(
    running: Running, order: tuple[int, int]
) -> None:
    """Of several publications that fail, whatever order they fail in. Source: L-7."""
    first = running.announce()
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",))
    second = running.ask(asked).operations[0]
    running.settle()
    running.publisher.late = True
    running.ask(ApprovalRequest("v", first.events, ""))
    running.ask(ApprovalRequest("v2", second.events, ""))
    running.settle()
    waiting = list(running.publisher._waiting)
    running.publisher._waiting.clear()
    running.publisher.late = False
    assert len(waiting) == 2
    for number in order:
        waiting[number].set_exception(OSError("the feed is broken"))
    running.settle()
    assert running.driver.begun == []
    assert not running.loop.shows
    running.pass_time()
    assert running.driver.begun == [1, 1]
    assert [running.history(each)[-1] for each in (first, second)] == ["operation.begun"] * 2
