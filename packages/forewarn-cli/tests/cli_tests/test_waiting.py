"""Following work until it ends, and how far it is."""

import os
import threading

import pytest

from forewarn_base.exit_codes import INTERRUPTED, OK, REFUSED, TIMED_OUT
from forewarn_core.fleet.stimulus import Complete, DriverProgressed
from tests.api.live import Live
from tests.cli.conftest import Run
from tests.waiting import LIMIT_S, wait_until

PATIENCE = ("--wait", "--timeout", "20")


def complete_when_running(live: Live, *, failed: bool = False) -> threading.Thread:
    """End the first operation, as soon as it runs, from another thread."""

    def follow() -> None:
        for _ in range(2000):
            operation = live.get("/v1/operations/op-1")["operation"]
            if operation["begun"]:
                live.daemon.control.submit(Complete(1, failed, "by hand"), "test").result(LIMIT_S)
                return

    thread = threading.Thread(target=follow)
    thread.start()
    return thread


@pytest.mark.parametrize(("failed", "status"), [(False, OK), (True, REFUSED)])
def test_wait_follows_work_to_its_end(run: Run, live: Live, failed: bool, status: int) -> None:
    """Who is awaited is told, then how it goes; the exit status says how it ended."""
    run("vm", "reboot", "web-0")
    live.settle()
    other = complete_when_running(live, failed=failed)
    ended = run("operation", "approve", "op-1", *PATIENCE)
    other.join(LIMIT_S)
    assert ended.status == status
    assert "op-1 is running: everybody approved" in ended.err
    assert ("failed" if failed else "succeeded") in ended.out


def test_wait_for_work_that_is_cancelled_is_no_success(run: Run, live: Live) -> None:
    """A program that waits for a reboot must learn that there was none. Source: L-3."""

    def cancel() -> None:
        wait_until(lambda: live.get("/v1/operations")["operations"])
        live.post("/v1/operations/op-1/cancel")

    other = threading.Thread(target=cancel)
    other.start()
    ended = run("host", "reboot", "h1", *PATIENCE)
    other.join(LIMIT_S)
    assert "cancelled" in ended.out
    assert ended.status == REFUSED, f"status {ended.status}: {ended.out}"


def test_wait_ends_at_once_for_what_has_ended(run: Run, live: Live) -> None:
    """Silent work of a group that is not enabled is over when it is answered."""
    live.daemon.drivers["manual"] = live.daemon.drivers["simulated"]
    ended = run("vm", "reboot", "web-0", "--wait", "--timeout", "0.2", "--json")
    assert ended.status == TIMED_OUT
    assert ended.json["operations"][0]["state"] == "announced"


def test_wait_gives_up_after_its_limit(run: Run) -> None:
    """Watching ends after --timeout; the work goes on."""
    late = run("host", "reboot", "h1", "--wait", "--timeout", "0.3")
    assert late.status == TIMED_OUT
    assert "op-1 waits: group db has not approved event" in late.err
    assert late.err.endswith("the work continues\n")
    assert "announced" in late.out


def test_wait_tells_what_happened_before_what_is_awaited(run: Run) -> None:
    """Work is asked for before it waits, whatever the server was quicker with."""
    late = run("host", "reboot", "h1", "--wait", "--timeout", "0.3")
    asked, waits = late.err.index("is requested"), late.err.index("op-1 waits")
    assert asked < waits
    assert late.err.count("is requested") == 1


def test_interrupted_wait_is_calm(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the watching, says how to go on, and leaves no trace."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("forewarn_cli.work_requests._follow", interrupt)
    stopped = run("host", "reboot", "h1", "--wait")
    assert stopped.status == INTERRUPTED
    assert "forewarn operation why op-1" in stopped.err
    both = run("vm", "reboot", "web-0", "db-0", "--wait")
    assert "forewarn operation why op-2, forewarn operation why op-3\n" in both.err
    assert "Traceback" not in stopped.err


def test_operations_show_how_far_their_drivers_are(run: Run, live: Live) -> None:
    """The table has a column for it where a driver has told it. R-1."""
    run("host", "migrate", "h2")
    run("host", "reboot", "h1")
    live.advance(1000)
    assert "PROGRESS" not in run("operation").out
    said = DriverProgressed(1, 1, "migrating web-1", 45)
    live.daemon.control.submit(said, "driver").result(LIMIT_S)
    shown = run("operation").out.splitlines()
    assert shown[0].split()[5] == "PROGRESS"
    assert "running  45 % migrating web-1" in shown[1]
    assert "%" not in shown[2]


def test_too_many_hosts_become_a_maintenance_on_request(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the command offers to create it; elsewhere it shows the command."""
    live.fleet(hosts={f"many-{n}": {"labels": {"rack": "r7"}} for n in range(101)})
    refused = run("host", "reboot", "--selector", "rack=r7")
    assert refused.status == REFUSED
    assert "forewarn maintenance create --cause host-reboot --selector rack=r7" in refused.err
    ours, theirs = os.openpty()
    with os.fdopen(theirs, encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        os.write(ours, b"y\n")
        made = run("host", "reboot", "--selector", "rack=r7")
    os.close(ours)
    assert made.status == OK
    [maintenance] = live.get("/v1/maintenances")["maintenances"]
    assert (maintenance["cause"], maintenance["state"]) == ("host-reboot", "running")
