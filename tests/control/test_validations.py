"""A gate of the settings validates a host after its work. Source: T-7."""

from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.stimulus import ChangeTopology, DriverBegun, DriverDone
from forewarn_core.fleet.topology import Host
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control.gate_checks import GateCall, make_gates
from tests.control.rig import Running
from tests.waiting import wait_until


def worked_on(gate: list[str], label: str = "check") -> tuple[Running, Operation]:
    """A host with a validation whose work is done."""
    running = Running(gates=make_gates({"check": {"command": gate}}))
    running.ask(ChangeTopology(hosts=(Host("h", labels=(("validation", label),)),)))
    operation = running.announce()
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.pass_time()
    running.ask(DriverBegun(operation.number, 1))
    running.ask(DriverDone(operation.number, 1))
    running.settle()
    return running, operation


def test_passed_gate_ends_the_operation() -> None:
    """The command reads which host it is about. Source: T-7."""
    program = (
        "import json, sys; about = json.load(sys.stdin);"
        " sys.exit(not (about['host'] == 'h' and about['operation'].startswith('op-')))"
    )
    running, operation = worked_on(["python3", "-c", program])
    wait_until(lambda: running.history(operation)[-1] == "operation.succeeded")
    running.loop.stop()


def test_failed_gate_keeps_the_operation_and_opens_an_incident() -> None:
    """The reason is the gate's. Source: T-7."""
    running, operation = worked_on(["sh", "-c", "echo no link >&2; exit 1"])
    wait_until(lambda: "ticket.opened" in running.history(operation))
    now = running.loop.read(lambda plane: plane.state.operations[operation.number]).result()
    assert (now.state, now.alert) == (OperationState.RUNNING, Alert.STUCK)
    assert "no link" in now.reason
    running.loop.stop()


def test_unknown_gate_fails_the_validation() -> None:
    """A misspelt label does not return a host unchecked. Source: T-7."""
    running, operation = worked_on(["true"], label="chekc")
    wait_until(lambda: "operation.stuck" in running.history(operation))
    running.loop.stop()


def test_host_is_named_in_a_text_of_the_settings() -> None:
    """Only a validation has a host; a gate between waves keeps its text. Source: T-7."""
    call = GateCall("check", "m-1", 1.0, lambda: (), "h7", "op-3")
    assert call.filled("https://{host}/healthz") == "https://h7/healthz"
    assert GateCall("check", "m-1", 1.0, lambda: ()).filled("{host}") == "{host}"
