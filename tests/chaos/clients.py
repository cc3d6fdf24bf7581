"""Who uses the service during a campaign, and writes down every answer with the time."""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.http_call import ask
from tests.chaos.scene import (
    ADDRESSES,
    METADATA,
    OPERATOR,
    PLANES,
    RUSH_HOST,
    RUSH_VMS,
    SERVED,
    WORK_HOSTS,
    Scene,
)
from tests.e2e.client_log import Approval, ClientLog, Read, event_of

#: Pause of a VM between two polls, and of a probe, in seconds.
POLL_S, PROBE_S = 0.3, 0.1
#: How often a VM approves an event that it reads.
APPROVAL_CHANCE = 0.25
#: Longest wait of a VM for an answer, in seconds.
ANSWER_S = 4.0
#: Live operations that an operator leaves in the service.
LIVE_MAX = 8
#: How long the VMs of a rush poll and approve at most, in seconds, and states in which they go on.
RUSH_S_MAX = 300.0
WAITING_STATES = {"planned", "announced", "unknown"}
CAUSES = ("host-reboot", "network-update", "host-update", "host-reboot")


def now_ms() -> int:
    """Return the right time, in ms since the epoch UTC."""
    return time.time_ns() // 1_000_000


@dataclass
class Request:
    """A change that an operator asked for, and the answer; status 0: it got none."""

    key: str
    path: str
    sent_ms: int
    status: int = 0
    answered_ms: int = 0
    operations: tuple[str, ...] = ()


@dataclass
class Record:
    """Everything that clients saw."""

    log: ClientLog = field(default_factory=ClientLog)
    requests: list[Request] = field(default_factory=list)
    #: When a poll of a control plane was answered 200, and when one said that it leads.
    polled_ms: list[int] = field(default_factory=list)
    led_ms: list[int] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)


class Worker(threading.Thread):
    """A thread that does one thing again and again until it is to stop."""

    def __init__(self, act: Callable[[], object], pause_s: float) -> None:
        """Start it."""
        super().__init__(daemon=True)
        self._act, self._pause_s = act, pause_s
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        """Do it."""
        while not self._stopping.wait(self._pause_s):
            self._act()

    def stop(self) -> None:
        """Do it no more."""
        self._stopping.set()


class VirtualMachine:
    """Polls, and approves; where no node serves it, it asks one control plane after the other."""

    def __init__(self, name: str, host: str, record: Record, chance: random.Random) -> None:
        """Play a VM on a host."""
        self.name, self._record, self._chance = name, record, chance
        servers: Sequence[str] = (SERVED[host],) if host in SERVED else PLANES
        self._servers = itertools.cycle(servers)
        #: How often it approves what it reads; 1: always.
        self.approves = APPROVAL_CHANCE
        #: Status of the last answer.
        self.status = 0
        self._documents: dict[int, str] = {}

    def live(self) -> None:
        """Poll once, and perhaps approve."""
        server = next(self._servers)
        path = f"/metadata/scheduledevents?api-version=2020-07-01&vm={self.name}"
        asked_ms = now_ms()
        status, form = ask(ADDRESSES[server], METADATA, "GET", path, limit_s=ANSWER_S)
        if status:
            self.status = status
        if status != 200:
            return
        incarnation, forms = int(form["DocumentIncarnation"]), form["Events"]
        events = {str(each["EventId"]): event_of(each) for each in forms}
        asker = f"{self.name}@{server}"
        log = self._record.log
        log.reads.append(Read(asker, asked_ms, now_ms(), incarnation, events))
        text = json.dumps(forms)
        if self._documents.setdefault(incarnation, text) != text:
            self._record.contradictions.append(f"{asker} at {incarnation}: {text}")
        for event_id, event in events.items():
            if event.status == "Scheduled" and self._chance.random() < self.approves:
                body = json.dumps({"StartRequests": [{"EventId": event_id}]})
                approval_ms = now_ms()
                status, _ = ask(ADDRESSES[server], METADATA, "POST", path, body, limit_s=ANSWER_S)
                log.approvals.append(Approval(asker, event_id, approval_ms, status))


class Operators:
    """People who ask for work, withdraw some of it, and settle stuck work."""

    def __init__(self, scene: Scene, record: Record, chance: random.Random) -> None:
        """Ask for nothing yet."""
        self._scene, self._record, self._chance = scene, record, chance
        self._keys = itertools.count(1)
        self._urls = itertools.cycle(PLANES)
        self._patience_s = 120.0
        self._pause = threading.Event()

    def change(self, method: str, path: str, body: dict[str, Any]) -> Request:
        """Ask for a change under one key, at one URL after the other, until it is answered."""
        request = Request(f"key-{next(self._keys)}", path, now_ms())
        self._record.requests.append(request)
        if method == "POST" and path == "/v1/operations":
            body = {**body, "description": request.key}
        ends_s = time.monotonic() + self._patience_s
        while time.monotonic() < ends_s:
            plane = next(self._urls)
            status, answer = self._scene.ask(plane, method, path, body, key=request.key)
            if 200 <= status < 500 and not _asks_again(status, answer):
                request.status, request.answered_ms = status, now_ms()
                request.operations = tuple(str(e["id"]) for e in answer.get("operations", ()))
                break
            self._pause.wait(0.1)
        return request

    def read(self, path: str) -> dict[str, Any]:
        """Read something at any URL; empty: nobody answered this time."""
        status, answer = self._scene.ask(next(self._urls), "GET", path)
        return answer if status == 200 else {}

    def state_of(self, operation: str) -> str:
        """Return the state of an operation; `unknown`: nobody answered; `lost`: no such one."""
        path = f"/v1/operations/{operation}"
        status, answer = self._scene.ask(next(self._urls), "GET", path)
        if status == 200:
            return str(answer["operation"]["state"])
        return "lost" if status == 404 else "unknown"

    def work(self) -> None:
        """Ask for one thing: new work, an end of old work, or the end of stuck work."""
        live = self.read("/v1/operations?live=true&limit=100").get("operations")
        if live is None:
            return
        for each in live:
            if each["state"] == "running" and each["alert"] == "stuck":
                self.change("POST", f"/v1/operations/{each['id']}/complete", {"reason": "looked"})
        announced = [each for each in live if each["state"] in {"announced", "planned"}]
        if announced and self._chance.random() < 0.15:
            unlucky = self._chance.choice(announced)
            self.change("POST", f"/v1/operations/{unlucky['id']}/cancel", {"reason": "changed"})
        elif len(live) < LIVE_MAX:
            host = self._chance.choice(WORK_HOSTS)
            form = {"cause": self._chance.choice(CAUSES), "targets": [host], "queue": True}
            self.change("POST", "/v1/operations", form)

    def settled(self) -> bool:
        """Whether nothing is live any more; settle stuck work."""
        live = self.read("/v1/operations?live=true&limit=100").get("operations")
        for each in live or ():
            if each["state"] == "running" and each["alert"] == "stuck":
                self.change("POST", f"/v1/operations/{each['id']}/complete", {"reason": "looked"})
        return live == []


class Evictions:
    """Spot VMs that do not approve, so that their notice of 30 s runs out: one after the other."""

    def __init__(self, operators: Operators, record: Record, host: str, seed: int) -> None:
        """Evict nothing yet."""
        self._operators, self._record, self._host, self._seed = operators, record, host, seed
        self._number = 0
        self._vm: VirtualMachine | None = None
        self._poller: Worker | None = None
        self._asked = False

    def go_on(self) -> None:
        """Take the next step: create a VM, ask for its eviction, wait for its end."""
        if self._vm is None:
            self._number += 1
            name = f"spot{self._host}x{self._number}_0"
            form = {"host": self._host, "spot": True}
            if self._operators.change("PUT", f"/v1/vms/{name}", form).status in {200, 201}:
                vm = VirtualMachine(name, self._host, self._record, random.Random(self._seed))
                vm.approves = 0.0
                self._vm, self._poller = vm, Worker(vm.live, POLL_S)
        elif not self._asked and self._vm.status == 404:  # the database has lost it
            form = {"host": self._host, "spot": True}
            self._operators.change("PUT", f"/v1/vms/{self._vm.name}", form)
        elif not self._asked and self._vm.status == 200:
            form = {"cause": "eviction", "targets": [self._vm.name]}
            self._operators.change("POST", "/v1/operations", form)
            self._asked = True
        elif self._asked and self._vm.status == 404 and self._poller is not None:
            self._poller.stop()
            self._vm, self._asked = None, False

    def stop(self) -> None:
        """Evict no more; the VM that is there goes on."""
        if self._poller is not None:
            self._poller.stop()


class Rush:
    """Many VMs of one host, each in a group of its own, that approve at the same time."""

    def __init__(self, operators: Operators, record: Record, seed: int) -> None:
        """Ask for nothing yet."""
        self._operators = operators
        #: Never set.
        self._pause = threading.Event()
        self._vms = [
            VirtualMachine(name, RUSH_HOST, record, random.Random(f"{seed} {name}"))
            for name in RUSH_VMS
        ]

    def go(self, meanwhile: Callable[[], object]) -> bool:
        """Ask for work and let every VM approve it at once; return whether all did in the end.

        Args:
            meanwhile: is called while the approvals are on their way.
        """
        form = {"cause": "host-update", "targets": [RUSH_HOST], "queue": True}
        asked = self._operators.change("POST", "/v1/operations", form).operations
        with ThreadPoolExecutor(len(self._vms)) as threads:
            for each in self._vms:
                each.approves = 1.0
            ends_s, number, waits = time.monotonic() + RUSH_S_MAX, 0, True
            while waits and time.monotonic() < ends_s:
                going = [threads.submit(each.live) for each in self._vms]
                if number == 1:  # some approve in the first round, and all do in the second
                    meanwhile()
                wait(going)
                states = map(self._operators.state_of, asked)
                number, waits = number + 1, not WAITING_STATES.isdisjoint(states)
                self._pause.wait(POLL_S)
        return not waits


class Probes:
    """How long nobody answers polls, and how long nobody leads."""

    def __init__(self, record: Record) -> None:
        """Ask each control plane, again and again."""
        self._workers = []
        for name in PLANES:
            address = ADDRESSES[name]
            path = "/metadata/scheduledevents?api-version=2020-07-01&vm=lone_0"
            asked = (
                (record.polled_ms, METADATA, path),
                (record.led_ms, OPERATOR, "/leader"),
            )
            for times, port, what in asked:
                self._workers.append(Worker(_prober(address, port, what, times), PROBE_S))

    def stop(self) -> None:
        """Ask no more."""
        for each in self._workers:
            each.stop()


def _prober(address: str, port: int, path: str, times: list[int]) -> Callable[[], None]:
    def probe() -> None:
        if ask(address, port, "GET", path, limit_s=1.0)[0] == 200:
            times.append(now_ms())

    return probe


def _asks_again(status: int, answer: dict[str, Any]) -> bool:
    """Whether the caller should repeat a request: too many, or its first answer is on its way."""
    return status == 429 or answer.get("error", {}).get("code") == "answer-unknown"


def gap_ms(times: list[int], begin_ms: int, end_ms: int) -> int:
    """Return the longest time without an answer that began or ended between two times."""
    here = sorted(times)
    before = max((each for each in here if each <= begin_ms), default=begin_ms)
    inside = [each for each in here if begin_ms < each <= end_ms]
    after = min((each for each in here if each > end_ms), default=end_ms)
    moments = [before, *inside, after]
    return max(later - earlier for earlier, later in itertools.pairwise(moments))
