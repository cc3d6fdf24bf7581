"""Orders of many hosts on the command line: placed by `host`, shown, waited for, cancelled."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from forewarn.exit_codes import OK, REFUSED, TIMED_OUT
from forewarn.operator_api.work_routes import AT_ONCE_MAX
from tests.cli.conftest import Run
from tests.operator_api.live import Live
from tests.waiting import wait_until

HOSTS = AT_ONCE_MAX + 2


@pytest.fixture
def hosts(live: Live, tmp_path: Path) -> Path:
    """A file with the names of many hosts, none of which has VMs."""
    names = [f"n{n}" for n in range(HOSTS)]
    live.fleet(hosts={name: {} for name in names})
    path = tmp_path / "hosts.txt"
    path.write_text("\n".join(names))
    return path


def complete_what_runs(live: Live) -> threading.Thread:
    """End every operation of the first order as soon as it runs, from another thread."""

    def follow() -> None:
        ended: set[str] = set()
        for _ in range(2000):
            page = live.get("/v1/operations?state=running&limit=500")["operations"]
            for each in page:
                live.post(f"/v1/operations/{each['id']}/complete")
                ended.add(each["id"])
            if len(ended) == HOSTS:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    return thread


@pytest.mark.usefixtures("live")
def test_large_order_is_shown_in_place_of_its_operations(run: Run, hosts: Path) -> None:
    """Who asks for work on many hosts is told the order, and where to follow it."""
    placed = run("host", "reboot", "--file", str(hosts))
    assert placed.status == OK
    assert f"host-reboot of {HOSTS} hosts (Reboot)" in placed.out
    assert "forewarn order show order-" in placed.err
    [order] = run("order", "list", "--json").json["orders"]
    assert order["id"] in run("order", "list").out
    assert run("order", "show", order["id"], "--json").json["order"]["hosts"] == HOSTS
    shown = run("order", "show", order["id"])
    assert "asked by" in shown.out
    assert run("why", order["id"]).status == OK


def test_cancelled_order_says_why(run: Run, live: Live, hosts: Path) -> None:
    """The reason is kept, and shown; what runs already ends by itself."""
    order = run("host", "reboot", "--file", str(hosts), "--json").json["order"]["id"]
    cancelled = run("order", "cancel", order, "--reason", "the wrong rack")
    assert cancelled.status == OK
    assert "the wrong rack" in cancelled.out
    wait_until(lambda: live.get(f"/v1/orders/{order}")["order"]["state"] in {"cancelling", "ended"})
    assert run("order", "cancel", order).status == REFUSED
    for each in run("operations", "--order", order, "--json").json["operations"]:
        run("complete", each["id"])
    assert run("order", "list").out.strip() in {"", "there is no order of many hosts"}
    assert order in run("order", "list", "--all").out


def test_wait_follows_an_order_to_its_end(run: Run, live: Live, hosts: Path) -> None:
    """The exit status says whether all of it went well; its end is told in counts."""
    other = complete_what_runs(live)
    ended = run("host", "reboot", "--file", str(hosts), "--wait", "--timeout", "30", "--json")
    other.join(30)
    assert ended.status == OK, ended
    assert f"ended: {HOSTS} succeeded" in ended.err
    assert ended.json["order"]["state"] == "ended"


def test_wait_gives_up_on_an_order_after_its_limit(run: Run, hosts: Path) -> None:
    """Watching ends after --timeout; the order goes on."""
    late = run("host", "reboot", "--file", str(hosts), "--wait", "--timeout", "0.5")
    assert late.status == TIMED_OUT
    assert "no longer watching, before its end; the work goes on" in late.err


def test_interrupted_wait_names_the_order(
    run: Run, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves the work as it is, and says where to look."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("forewarn.cli.api_client.ApiClient.lines", interrupted)
    stopped = run("host", "reboot", "--file", str(hosts), "--wait")
    assert "no longer watching; the work goes on: forewarn order show order-" in stopped.err


def test_unknown_order_is_refused(run: Run) -> None:
    """With the sentence of the server."""
    unknown = run("order", "show", "order-99")
    assert unknown.status != OK
    assert "There is no order order-99." in unknown.err
