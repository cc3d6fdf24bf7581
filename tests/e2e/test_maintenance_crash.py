"""A service that is killed at each boundary between two effects of a running maintenance.

It is killed as a process; what such a death means is judged from the history that is left.
"""

import collections
import http.client
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import pytest

from forewarn_core.fleet.state import Changes, Entry
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_drivers.simulated import SimulatedDriver
from forewarn_server.service.bridge import Bridge
from forewarn_store import Store, open_store
from tests.e2e import crashing
from tests.e2e.crashing import Client, Doom, Life
from tests.simulator.world.crash_points import POINTS

pytestmark = pytest.mark.slow

AT_ONCE = 2
#: Deaths at each point; `make crashes` asks for more.
DEATHS_EACH = int(os.environ.get("DEATHS", "1"))
HOSTS = tuple(Host(f"h{n:02}", fault_domain=n % 2) for n in range(12 * DEATHS_EACH))
FLEET = ChangeTopology(
    hosts=HOSTS,
    groups=(Group("web"),),
    vms=tuple(Vm(f"web_{n}", host.name, "web") for n, host in enumerate(HOSTS)),
)
#: Which passing of which point a life ends at; nothing is aborted here.
DEATHS = [
    (point, 2 + number % 3)
    for number in range(DEATHS_EACH)
    for point in POINTS
    if "abort" not in point
]
ROUNDS_MAX = 10_000
FORM = {"cause": "network-update", "all": True, "duration": "1m", "max_at_once": AT_ONCE}


def serve(store: str, ready: Connection, point: str, nth: int) -> None:
    """Run the service until it kills itself, as it comes by a point for the nth time.

    Of commits those count that change a maintenance or its work.
    """
    passed = 0

    def passes(here: str) -> None:
        nonlocal passed
        passed += here == point
        if here == point and passed == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def between(act: Callable[..., object], name: str) -> Callable[..., object]:
        def acts(*given: object) -> object:
            counts = not isinstance(given[1], Changes) or given[1].maintenances
            if counts:
                passes(f"before {name}")
            answer = act(*given)
            if counts:
                passes(f"after {name}")
            return answer

        return acts

    for owner, name in ((Store, "commit"), (Bridge, "publish"), (SimulatedDriver, "begin")):
        setattr(owner, name, between(getattr(owner, name), name))
    crashing.serve(store, ready, FLEET)


def ask(client: Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Ask the operator API something that it must not refuse."""
    status, answer = client.ask(method, path, body)
    assert status < 300, answer
    found: dict[str, Any] = json.loads(answer)
    return found


def carry_on(operator: Client, vm: Client) -> bool:
    """Have the maintenance begun and its events approved; say whether it is done."""
    known = ask(operator, "GET", "/v1/maintenances")["maintenances"]
    if not known:
        ask(operator, "POST", "/v1/maintenances", FORM)
    elif known[0]["state"] == "draft":
        ask(operator, "POST", "/v1/maintenances/m-1/start")
    for event in json.loads(vm.document("web_0"))["Events"]:
        if event["EventStatus"] == "Scheduled":
            vm.approve("web_0", event["EventId"])
    return bool(known) and known[0]["state"] == "done"


def live(store: str, point: str, nth: int) -> bool:
    """Live until death, or until the maintenance is done; return whether it is."""
    life, doom = Life(store, serve, point, nth), Doom(ROUNDS_MAX)
    try:
        assert life.listening(), "the service did not start"
        with (
            closing(Client(life.operator, doom)) as operator,
            closing(Client(life.metadata, doom)) as vm,
        ):
            for _ in range(ROUNDS_MAX):
                if carry_on(operator, vm):
                    return True
        pytest.fail("the maintenance is stuck")
    except (EOFError, OSError, http.client.HTTPException):
        return False
    finally:
        life.kill()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """What is durable once the maintenance is done, with a death at each point on the way."""
    path = str(tmp_path_factory.mktemp("crash") / "forewarn.db")
    done = [live(path, point, nth) for point, nth in DEATHS]
    assert not any(done), "it was done before all the deaths"
    assert live(path, "", 0)
    store = open_store(path)
    found = [each.entry for each in store.entries()]
    store.close()
    return found


def counted(history: list[Entry], action: str) -> collections.Counter[str]:
    """How often each host was in such an entry."""
    return collections.Counter(each.host for each in history if each.action == action)


@pytest.mark.parametrize("what", ["announced", "started", "begun", "succeeded"])
def test_each_host_is_worked_on_once(history: list[Entry], what: str) -> None:
    """No death has anything done twice, or left out. Source: F-1, L-7."""
    assert counted(history, f"operation.{what}") == {host.name: 1 for host in HOSTS}


def at_work(history: list[Entry]) -> Iterator[set[str]]:
    """Yield the hosts that are announced or worked on, after each entry."""
    live: set[str] = set()
    for entry in history:
        if entry.action == "operation.announced":
            live.add(entry.host)
        elif entry.action == "operation.succeeded":
            live.remove(entry.host)
        yield set(live)


def test_budget_and_fault_domains_hold_over_deaths(history: list[Entry]) -> None:
    """At no moment are there more hosts, or hosts of two fault domains. Source: F-3, G-1."""
    domain = {host.name: host.fault_domain for host in HOSTS}
    most = max(len(hosts) for hosts in at_work(history))
    assert most == AT_ONCE
    assert all(len({domain[each] for each in hosts}) <= 1 for hosts in at_work(history))


def test_death_takes_no_plan_out_of_force(history: list[Entry]) -> None:
    """A plan is made at the beginning and after each wave, and by no restart. Source: F-2."""
    actions = collections.Counter(each.action.removeprefix("maintenance.") for each in history)
    assert actions["wave-over"] == len(HOSTS) // AT_ONCE - 1
    wanted = actions["created"] + actions["started"] + actions["wave-over"]
    assert actions["planned"] <= wanted
    assert not actions["replanning"]
