"""Faults on demand: read, counted, timed, and met by real clients on the real port."""

import json
import select
import socket
from collections.abc import Callable
from http.client import BadStatusLine, IncompleteRead
from urllib.parse import urlsplit

import pytest

from emulator_tests.conftest import Stage
from forewarn_emulator.faults import FaultInvalid, FaultKind, FaultPlan, read_fault
from forewarn_metadata.endpoint.http.request import HttpRequest, parse_head
from forewarn_server.cli.api_client import ApiRefused
from tests.asking import ask
from tests.waiting import LIMIT_S

PATH = "/metadata/scheduledevents?api-version=2020-07-01"


class Vm:
    """A client that shows what it is answered, byte by byte."""

    def __init__(self, stage: Stage) -> None:
        """Talk to a stage's metadata service."""
        split = urlsplit(stage.emulator.url)
        self.address = (split.hostname or "", split.port or 0)

    def get(self, path: str = PATH) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of a GET on a connection of its own."""
        return self._ask("GET", path, None)

    def post(self, event_id: str) -> tuple[int, bytes, dict[str, str]]:
        """Approve an event."""
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        return self._ask("POST", PATH, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, dict[str, str]]:
        reply = ask(f"{self.address[0]}:{self.address[1]}", method, path, body=body)
        return reply.status, reply.body, {n.lower(): text for n, text in reply.headers.items()}


@pytest.fixture
def vm(stage: Stage) -> Vm:
    """The usual VM of the stage."""
    return Vm(stage)


def set_fault(stage: Stage, fault: str) -> None:
    """Set a fault through the operator API."""
    stage.api.post("/v1/faults", {"fault": fault})


def test_unsigned_request_is_refused_while_the_protocol_is_enforced(stage: Stage, vm: Vm) -> None:
    """Events and instance metadata are only for the guest proxy agent. Source: Z-10."""
    instance = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    set_fault(stage, "unsigned")
    assert [vm.get()[0], vm.get(instance)[0]] == [401, 401]
    signed = {
        "Metadata": "true",
        "x-ms-azure-host-authorization": "Azure-HMAC-SHA256 key signature",
    }
    address = f"{vm.address[0]}:{vm.address[1]}"
    assert [ask(address, "GET", path, headers=signed).status for path in (PATH, instance)] == [
        200
    ] * 2
    stage.api.delete("/v1/faults/unsigned")
    assert [vm.get()[0], vm.get(instance)[0]] == [200, 200]


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        ("empty-200=1x", 200, b""),
        ("410=1x", 410, b'{"error":"Gone. The service is being moved."}'),
        ("429=1x", 429, b"Throttle Result: Too Many Requests"),
        ("500=1x", 500, b'{"error":"Internal server error."}'),
    ],
)
def test_client_meets_an_answer_once(
    stage: Stage, vm: Vm, fault: str, status: int, body: bytes
) -> None:
    """One request is answered by the fault, the next as ever. Source: E-10."""
    set_fault(stage, fault)
    assert vm.get()[:2] == (status, body)
    assert vm.get()[:2] == (200, b'{"DocumentIncarnation":0,"Events":[]}')
    assert stage.api.get("/v1/faults") == {"faults": []}


def test_throttled_client_is_told_when_to_come_back(stage: Stage, vm: Vm) -> None:
    """A 429 on demand has the real one's Retry-After. Source: E-6, E-10."""
    set_fault(stage, "429")
    assert vm.get()[2]["retry-after"] == "1"


def test_client_meets_a_reset(stage: Stage, vm: Vm) -> None:
    """The connection is reset in place of an answer. Source: E-10."""
    set_fault(stage, "reset=1x")
    with pytest.raises((ConnectionResetError, BadStatusLine)):
        vm.get()
    assert vm.get()[0] == 200


def test_client_meets_a_truncated_body(stage: Stage, vm: Vm) -> None:
    """Content-Length promises more than comes. Source: E-10."""
    set_fault(stage, "truncate=1x")
    with pytest.raises(IncompleteRead) as met:
        vm.get()
    assert b'{"DocumentIncarnation":0,"Events":[]}'.startswith(met.value.partial)
    assert vm.get()[0] == 200


def test_incarnation_moves_without_a_change(stage: Stage, vm: Vm) -> None:
    """The number goes up with the same events, and stays there while the fault is set. E-10."""
    stage.run("host-reboot")
    before = json.loads(vm.get()[1])
    set_fault(stage, "incarnation=2x")
    seen = [json.loads(vm.get()[1]) for _ in range(3)]
    assert [each["DocumentIncarnation"] for each in seen] == [2, 3, 3]
    assert all(each["Events"] == before["Events"] for each in seen)
    stage.api.delete("/v1/faults/incarnation")
    assert json.loads(vm.get()[1]) == before


def test_moved_incarnation_enables_like_any_poll(staged: Callable[..., Stage]) -> None:
    """Who polls is asked before its VM is restarted, whatever number it reads. B-1, B-3, E-10."""
    stage = staged(enable_on_first_request=True)
    vm = Vm(stage)
    set_fault(stage, "incarnation")
    assert [json.loads(vm.get()[1])["DocumentIncarnation"] for _ in range(3)] == [1, 2, 3]
    stage.api.post("/v1/vms/vm-1/reboot")
    assert stage.sees() == ["Reboot Scheduled vm-1 User -1"]


@pytest.mark.slow
def test_first_answer_is_slow_and_only_the_first(stage: Stage, vm: Vm) -> None:
    """The first answer is held while the second request is answered at once. Source: B-1, E-10."""
    set_fault(stage, "slow-first=2s")
    request = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nConnection: close\r\n\r\n"
    with socket.create_connection(vm.address, timeout=LIMIT_S) as first:
        first.sendall(request.encode())
        while not stage.emulator.call(lambda: held(stage)):
            pass
        assert vm.get()[0] == 200
        assert not select.select([first], [], [], 0)[0]
        assert first.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")


async def held(stage: Stage) -> bool:
    """Whether the service has met the first request."""
    faults = stage.emulator.emulator.faults
    return any(active._met for active in faults._set.values())


def test_approval_that_met_a_fault_is_not_done(stage: Stage, vm: Vm) -> None:
    """A 500 in place of an approval's answer leaves the event unapproved. Source: A-6, E-10."""
    stage.run("host-reboot")
    event_id = stage.emulator.document().events[0].event_id
    set_fault(stage, "500=1x,post")
    assert vm.get()[0] == 200
    assert vm.post(event_id)[0] == 500
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]
    assert vm.post(event_id)[:2] == (200, b"")
    assert stage.sees() == ["Reboot Started vm-1 Platform 300"]


def test_fault_of_reading_leaves_approvals_alone(stage: Stage, vm: Vm) -> None:
    """An empty 200 is an approval's right answer: it is not taken for one. Source: A-6, E-10."""
    stage.run("host-reboot")
    event_id = stage.emulator.document().events[0].event_id
    set_fault(stage, "empty-200")
    assert vm.post(event_id)[:2] == (200, b"")
    assert vm.get()[:2] == (200, b"")
    stage.api.delete("/v1/faults")
    assert stage.sees() == ["Reboot Started vm-1 Platform 300"]


def test_fault_may_be_for_one_vm(stage: Stage, vm: Vm) -> None:
    """`vm=NAME` disturbs nobody else, and instance metadata not at all. Source: E-10, I-1."""
    stage.run("shared-host")
    set_fault(stage, "500=vm=tenant-b-1")
    assert vm.get()[0] == 200
    assert vm.get(f"{PATH}&vm=tenant-b-1")[0] == 500
    instance = "/metadata/instance?api-version=2021-02-01&vm=tenant-b-1"
    assert vm.get(instance)[0] == 200


def test_faults_are_listed_and_taken_back(stage: Stage, vm: Vm) -> None:
    """What is set is told as it was asked for, one of each kind. Source: E-10."""
    for fault in ("500=10%", "429=3x,get", "500=25%,30s"):
        set_fault(stage, fault)
    listed = stage.api.get("/v1/faults")["faults"]
    assert [each["fault"] for each in listed] == ["429=3x,get", "500=25%,30s"]
    stage.api.delete("/v1/faults/429")
    assert [each["kind"] for each in stage.api.get("/v1/faults")["faults"]] == ["500"]
    with pytest.raises(ApiRefused, match="429 is not set"):
        stage.api.delete("/v1/faults/429")
    with pytest.raises(ApiRefused, match="nonsense is not set"):
        stage.api.delete("/v1/faults/nonsense")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "418",
        "500=0%",
        "500=101%",
        "500=1.5x",
        "500=5",
        "500=put",
        "slow-first=121s",
        "slow-first=3m",
        "410=-1s",
    ],
)
def test_strange_faults_are_refused(text: str) -> None:
    """A fault nobody knows is refused with what there is. Source: E-10."""
    with pytest.raises(FaultInvalid) as refused:
        read_fault(text)
    assert "slow-first" in refused.value.advice_text()


@pytest.mark.parametrize(
    "text", ["reset", "410=70s", "429=12.5%", "500=3x,post,vm=web_1", "slow-first=120s"]
)
def test_fault_is_told_as_it_was_read(text: str) -> None:
    """Reading and telling a fault agree. Source: E-10."""
    assert str(read_fault(text)) == text


def test_fault_takes_times_in_every_unit() -> None:
    """Two minutes are two minutes, as people and the documentation write them. Source: E-10."""
    assert read_fault("slow-first=2m") == read_fault("slow-first=120s")
    assert read_fault("410=1h") == read_fault("410=3600s")


def request(method: str = "GET") -> HttpRequest:
    """Return a request for the document."""
    return parse_head(f"{method} {PATH} HTTP/1.1\r\nHost: x\r\nMetadata: true".encode())


def test_fault_ends_with_its_time() -> None:
    """A fault of 70 s is over after 70 real seconds. Source: E-10."""
    now_s = [1000.0]
    plan = FaultPlan(lambda: now_s[0], lambda: 0.0)
    plan.set(read_fault("410=70s"))
    assert plan.fault_for("vm-1", request()) is not None
    now_s[0] += 69.9
    assert plan.fault_for("vm-1", request()) is not None
    now_s[0] += 0.1
    assert plan.fault_for("vm-1", request()) is None
    assert not plan


def test_share_of_requests_is_met_by_chance() -> None:
    """A share asks for a chance at each request. Source: E-10."""
    chances = iter([0.05, 0.1, 0.5, 0.0999])
    plan = FaultPlan(lambda: 0.0, lambda: next(chances))
    plan.set(read_fault("500=10%"))
    met = [plan.fault_for("vm-1", request()) is not None for _ in range(4)]
    assert met == [True, False, False, True]


def test_faults_may_come_together() -> None:
    """A first answer can be slow and broken at once. Source: E-10."""
    plan = FaultPlan(lambda: 0.0, lambda: 0.0)
    plan.set(read_fault("slow-first=5s"))
    plan.set(read_fault("reset"))
    first, second = plan.fault_for("vm-1", request()), plan.fault_for("vm-1", request("POST"))
    assert first is not None
    assert second is not None
    assert (first.hold_s, first.reset, second.hold_s, second.reset) == (5.0, True, 0.0, True)
    plan.clear(FaultKind.RESET)
    assert plan.fault_for("vm-1", request()) is None
    other = plan.fault_for("vm-2", request())
    assert other is not None
    assert other.hold_s == 5.0
