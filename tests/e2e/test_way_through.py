"""How much of the house an act passes from its request to its answer, in a whole service.

All threads are traced: the event loop, the writer, and whoever they wait for. What the writer does
once it has given its answer, such as a line of the log, does not count.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.settings import MetadataSettings, StoreSettings
from tests.operator_api.live import SETTINGS, STARTS_S_MAX, Live
from tests.tracing import Trace, traced_threads

TRIES = 3
"""What only some of as many tries pass, such as the second's poll marks, is not of the act."""
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
VMS = {f"one-{n}": f"127.0.1.{n + 1}" for n in range(TRIES)}
VMS |= {f"two-{n}": f"127.0.2.{n + 1}" for n in range(TRIES)}


class Traced:
    """A service whose threads are traced, on hosts with two VMs each, of groups of their own."""

    def __init__(self, store: Path) -> None:
        """Start it, with a store that is a file, and the log at the level of a service."""
        self.trace = Trace(answered_by="ControlEngine._answer")
        settings = replace(
            SETTINGS,
            metadata=MetadataSettings(rate_per_s=0.0),
            store=StoreSettings(url=f"sqlite:///{store}"),
        )
        with traced_threads(self.trace):
            self.live = Live(settings)
        self.live.fleet(
            hosts={f"h{number}": {} for number in range(TRIES)},
            groups={name: {} for name in VMS},
            vms={
                name: {"host": f"h{name[-1]}", "group": name, "addresses": [address]}
                for name, address in VMS.items()
            },
        )
        for name in VMS:
            self.events(name)
        self.live.settle()

    def passed(self, act: Callable[[int], None]) -> list[str]:
        """Return the files that each of some tries of an act passes."""
        found = []
        for number in range(TRIES):
            self.live.settle()
            with self.trace.files() as files:
                act(number)
            found.append(files)
        return sorted(set.intersection(*found))

    def events(self, vm: str) -> list[str]:
        """Return the ids of the events that a VM is shown."""
        _, body = self._ask(vm, "GET", "")
        return [event["EventId"] for event in json.loads(body)["Events"]]

    def approve(self, vm: str, event_id: str) -> None:
        """Approve an event for a VM."""
        status, body = self._ask(vm, "POST", json.dumps({"StartRequests": [{"EventId": event_id}]}))
        assert status == 200, body

    def _ask(self, vm: str, method: str, body: str) -> tuple[int, bytes]:
        host, port = self.live.metadata_url.removeprefix("http://").partition("/")[0].split(":")
        source = VMS[vm], 0
        asking = http.client.HTTPConnection(host, int(port), STARTS_S_MAX, source_address=source)
        try:
            asking.request(method, EVENTS, body, {"Metadata": "true"})
            answer = asking.getresponse()
            return answer.status, answer.read()
        finally:
            asking.close()


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    """A service that is traced."""
    service = Traced(tmp_path / "store")
    yield service
    service.live.stop()


def test_order_and_its_approvals_pass_few_files(traced: Traced) -> None:
    """What operators and VMs wait for is found in few places. Source: L-7, A-6."""
    ids: dict[str, str] = {}

    def order(number: int) -> None:
        traced.live.post(f"/v1/hosts/h{number}/reboot")

    def approve(role: str) -> Callable[[int], None]:
        return lambda number: traced.approve(f"{role}-{number}", ids[f"{role}-{number}"])

    files = {"an order": traced.passed(order)}
    for name in VMS:
        [ids[name]] = traced.events(name)
    files["an approval that another must follow"] = traced.passed(approve("one"))
    files["the same approval again"] = traced.passed(approve("one"))
    files["the last approval, which starts the work"] = traced.passed(approve("two"))
    limits = {
        "an order": 25,
        "an approval that another must follow": 20,
        "the same approval again": 16,
        "the last approval, which starts the work": 27,
    }
    for act, limit in limits.items():
        assert len(files[act]) <= limit, (act, len(files[act]), files[act])
