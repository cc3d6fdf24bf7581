"""A driver whose calls return only when the test lets them, and work that it carries out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, Enable, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers import Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_server.control.driver_calls import CallLimits, DaemonThreads
from tests.control.rig import Running
from tests.waiting import LIMIT_S

MINUTE_MS = 60_000


class Gated(ManualDriver):
    """A driver whose calls of one kind return only when the test lets them."""

    name = "gated"

    def __init__(self, verb: str) -> None:
        """Hold calls of this kind."""
        self.gate = threading.Event()
        self.called = threading.Semaphore(0)
        self.calls: list[tuple[str, str]] = []
        #: Whether a call fails once the gate has opened.
        self.fails = False
        self._verb = verb

    def begin(self, task: Task) -> None:
        """Begin, or hang."""
        self._call("begin", task)

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Say that it is done, or hang."""
        self._call("progress", task)
        return Progress(done=self._verb != "abort")

    def abort(self, task: Task) -> None:
        """Abort, or hang."""
        self._call("abort", task)

    def _call(self, verb: str, task: Task) -> None:
        self.calls.append((verb, task.id))
        if verb == self._verb:
            self.called.release()
            self.gate.wait(LIMIT_S)
            if self.fails:
                raise OSError("its board is dark")


@contextmanager
def gated(verb: str, *, calls: int = 32) -> Iterator[tuple[Running, Gated, Operation]]:
    """A run loop with threads for drivers, and an operation on a host whose driver hangs."""
    driver = Gated(verb)
    limits = CallLimits(timeout_ms=MINUTE_MS, max_concurrent=calls)
    running = Running(driver, executor=DaemonThreads(), limits=limits)
    try:
        operation = started_on(running, "hung")
        if verb == "abort":
            running.ask(Complete(operation.number, failed=True))
        assert driver.called.acquire(timeout=LIMIT_S)
        yield running, driver, operation
    finally:
        driver.gate.set()
        running.loop.stop()
        running.store.close()


def started_on(running: Running, host: str) -> Operation:
    """Start work on a host of its own, with a VM in a group of its own."""
    group, vm = Group(f"g-{host}"), Vm(f"v-{host}", host, f"g-{host}")
    running.ask(ChangeTopology((Host(host, driver="gated"),), (group,), (vm,)))
    running.ask(Enable(group.name))
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=(host,))
    operation = running.ask(asked).operations[0]
    running.settle()
    running.ask(ApprovalRequest(vm.name, operation.events, ""))
    return operation


def reason_of(running: Running, operation: Operation) -> str:
    """Why an operation is stuck."""
    read = running.loop.read(lambda plane: plane.state.operations[operation.number].reason)
    return read.result(LIMIT_S)
