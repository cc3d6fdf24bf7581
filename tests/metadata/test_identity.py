"""Which VM is asking, and that it learns nothing about others. Sections S and A-2 to A-6."""

import hmac
import json
import socket
import sys

import pytest
from msgspec.structs import replace

from forewarn_core.requests import RequestAnswer
from forewarn_metadata.replication.messages import Caller, DocumentChange
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    NOW_MS,
    VM_A,
    VM_C,
    Live,
    Raw,
    approval,
    request,
    serving,
    with_settings,
)
from tests.waiting import LIMIT_S

SECRET = "a-shared-secret"
PROXY = with_settings(proxy_addresses=("127.0.0.1",), proxy_secret=SECRET)


def signed(instance_id: str, secret: str = SECRET) -> dict[str, str]:
    """Return the headers a proxy adds."""
    signature = hmac.digest(secret.encode(), instance_id.encode(), "sha256").hex()
    return {"x_instance_id": instance_id, "x_instance_id_signature": signature}


def test_unknown_caller_learns_nothing(live: Live) -> None:
    """Who is not known gets 404 for everything, the same each time. Source: S-6."""
    live.apply(DocumentChange(99, gone=("vm-a",)))
    try:
        replies = [
            live.get(),
            live.get(metadata=""),
            live.get("/metadata/scheduledevents"),
            live.get("/metadata/versions"),
            live.get("/nowhere"),
            live.post(approval(FREEZE.event_id)),
        ]
        assert {(reply.status, reply.body) for reply in replies} == {
            (404, b'{"error":"Not found"}')
        }
        assert live.control.approvals == []
    finally:
        live.know(VM_A)


def test_address_that_moves_to_another_vm_moves_at_once(live: Live) -> None:
    """An open connection shows the document of whoever has the address now. Source: S-4, S-6."""
    live.show(FREEZE)
    with live.connect() as raw:
        for _ in range(3):
            raw.send(request(EVENTS))
            assert b"Freeze" in raw.reply().body
        moved = Caller("vm-c", "group-2", "group-2", ("127.0.0.1",))
        live.apply(DocumentChange(99, callers=(moved,), gone=("vm-a",)))
        try:
            raw.send(request(EVENTS))
            assert b"Freeze" not in raw.reply().body
            assert b"Freeze" not in live.get(connection="close").body
        finally:
            live.know(VM_C, VM_A)
        raw.send(request(EVENTS))
        assert b"Freeze" in raw.reply().body


def test_whole_change_replaces_everybody(live: Live) -> None:
    """A whole change drops the VMs and documents it does not name. Source: S-6."""
    live.apply(DocumentChange(99, whole=True, callers=(VM_C,)))
    try:
        assert live.get().status == 404
    finally:
        live.know(VM_A)
        live.show(incarnation=0)
        live.show(incarnation=0, view="group-2")


def test_view_of_one_vm_is_its_own(portable: bool) -> None:
    """A VM with a view of its own sees that, the others see the group's. Source: S-1, S-2, S-4."""
    with serving(with_settings(vm_by_query=True), portable=portable) as live:
        live.know(Caller("vm-g", "group-1", "group-1/vm-g"))
        live.show(FREEZE)
        live.show(incarnation=3, view="group-1/vm-g")
        live.show(incarnation=5, view="group-2")
        seen = {
            vm: json.loads(live.get(f"{EVENTS}&vm={vm}").body)["DocumentIncarnation"]
            for vm in ("vm-a", "vm-g", "vm-c")
        }
        assert seen == {"vm-a": 1, "vm-g": 3, "vm-c": 5}
        assert live.get(f"{EVENTS}&vm=nobody").status == 404


def test_query_names_nobody_unless_switched_on(live: Live) -> None:
    """Outside the emulator `vm` in the query means nothing. Source: S-4, S-6."""
    live.show(incarnation=5, view="group-2")
    form = json.loads(live.get(f"{EVENTS}&vm=vm-c").body)
    assert form["DocumentIncarnation"] == 0


def test_any_caller_may_be_the_default_vm(portable: bool) -> None:
    """In the emulator whoever is not known may be taken for one VM. Source: S-6."""
    with serving(with_settings(default_vm="vm-c"), portable=portable) as live:
        live.show(incarnation=5, view="group-2")
        live.know(replace(VM_A, addresses=()))
        assert json.loads(live.get().body)["DocumentIncarnation"] == 5
        assert json.loads(live.get(connection="close").body)["DocumentIncarnation"] == 5


def test_address_of_a_gone_vm_is_not_the_default_ones(portable: bool) -> None:
    """Who had an address of its own is nobody once it is gone. Source: S-4, S-6."""
    with serving(with_settings(default_vm="vm-c"), portable=portable) as live:
        live.apply(DocumentChange(99, gone=("vm-a",)))
        assert live.get().status == 404


def test_signed_proxy_header_names_the_vm(portable: bool) -> None:
    """A right signature from a proxy's address names the VM, even forwarded. Source: S-6, E-4."""
    with serving(PROXY, portable=portable) as live:
        live.show(incarnation=5, view="group-2")
        for instance_id, incarnation in (("instance-c", 5), ("instance-a", 0), ("instance-c", 5)):
            reply = live.get(**signed(instance_id), x_forwarded_for="10.0.0.7")
            assert json.loads(reply.body)["DocumentIncarnation"] == incarnation
        shouted = {name: text.upper() for name, text in signed("instance-c").items()}
        shouted["x_instance_id"] = "instance-c"
        assert json.loads(live.get(**shouted).body)["DocumentIncarnation"] == 5


def test_instance_id_that_a_vm_had_before_is_nobody(portable: bool) -> None:
    """A changed record moves the VM's name at a proxy at once. Source: S-6, S-4."""
    with serving(PROXY, portable=portable) as live:
        live.know(replace(VM_C, instance_id="instance-d"))
        statuses = {each: live.get(**signed(each)).status for each in ("instance-c", "instance-d")}
        assert statuses == {"instance-c": 404, "instance-d": 200}, f"S-6: {statuses}"


@pytest.mark.parametrize(
    "headers",
    [
        signed("instance-x"),
        signed("instance-c", "another-secret"),
        signed("instance-c") | {"x_instance_id": "instance-a"},
        {"x_instance_id": "instance-c"},
        {"x_instance_id": "instance-c", "x_instance_id_signature": "\xe9"},
    ],
    ids=["unknown", "wrong secret", "of another", "unsigned", "no hexadecimal"],
)
def test_wrong_signature_is_nobody(portable: bool, headers: dict[str, str]) -> None:
    """A wrong or missing signature, or an unknown id, is an unknown caller. Source: S-6."""
    with serving(PROXY, portable=portable) as live:
        assert live.get(**headers).status == 404


def test_signature_needs_a_secret(portable: bool) -> None:
    """Without a secret no signature is right, not even that of the empty one. Source: S-6."""
    with serving(with_settings(proxy_addresses=("127.0.0.1",)), portable=portable) as live:
        assert live.get(**signed("instance-c", "")).status == 404
        assert live.get().status == 200


def test_signed_header_counts_only_from_a_proxy(live: Live) -> None:
    """From any other address the header means nothing. Source: S-6."""
    live.show(incarnation=5, view="group-2")
    reply = live.get(**signed("instance-c"))
    assert json.loads(reply.body)["DocumentIncarnation"] == 0


# Interfaces.

IN_LO = Caller("vm-l", "group-1", "group-1", ("::1", "127.0.0.1"), interface="lo")
ELSEWHERE = Caller("vm-x", "group-2", "group-2", ("10.9.9.9",), interface="eth9")


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say the interface")
def test_global_ipv6_is_found_on_its_interface(portable: bool) -> None:
    """An address without scope has come in by an interface all the same. Source: S-6."""
    with serving(portable=portable, listen=("[::1]:0",)) as live:
        live.apply(DocumentChange(99, whole=True, callers=(IN_LO,)))
        live.show(FREEZE)
        with socket.create_connection(("::1", live.port), LIMIT_S) as sock:
            raw = Raw(sock)
            for _ in range(3):
                raw.send(request(EVENTS))
                assert b"Freeze" in raw.reply().body


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say the interface")
def test_kept_connection_is_judged_again_with_the_first_interface(portable: bool) -> None:
    """It was opened when no interface mattered; the next request is judged as any. S-6."""
    with serving(portable=portable) as live, live.connect() as raw:
        live.show(FREEZE)
        for change in (
            DocumentChange(99, callers=(ELSEWHERE,)),
            DocumentChange(100, callers=(IN_LO,), gone=("vm-a",)),
        ):
            raw.send(request(EVENTS))
            assert b"Freeze" in raw.reply().body
            live.apply(change)
        raw.send(request(EVENTS))
        assert b"Freeze" in raw.reply().body


# Approvals as HTTP.


def test_approval_is_handed_on_with_who_and_where(live: Live) -> None:
    """The control plane learns the VM, the ids in upper case and the address. Source: A-1, A-5."""
    body = b'{"DocumentIncarnation":"5","x":1,"StartRequests":[{"EventId":"abc","EventType":1}]}'
    reply = live.post(body)
    assert (reply.status, reply.body) == (200, b"")
    (asked,) = live.control.approvals
    assert (asked.vm, asked.event_ids, asked.address) == ("vm-a", ("ABC",), "127.0.0.1")


@pytest.mark.parametrize("kind", ["", "application/json", "application/x-www-form-urlencoded"])
def test_any_content_type_is_accepted(live: Live, kind: str) -> None:
    """Clients send no content type, a form's or JSON's. Source: A-5."""
    assert live.post(approval("A"), content_type=kind).status == 200


@pytest.mark.parametrize(
    "body",
    [b" ", b"{", b"[]", b"null", b"{}", b'{"StartRequests":{}}', b'{"StartRequests":[]}',
     b'{"StartRequests":[1]}', b'{"StartRequests":[{}]}', b'{"StartRequests":[{"EventId":5}]}',
     b'{"StartRequests":[{"EventId":"A"},{}]}', b"\xff", b"[" * 60_000],
)  # fmt: skip
def test_malformed_approval_approves_nothing(live: Live, body: bytes) -> None:
    """A malformed body is 400 and the control plane is not even asked. Source: A-2."""
    reply = live.post(body)
    assert reply.status == 400
    assert "error" in json.loads(reply.body)
    assert live.control.approvals == []


def test_approval_without_body_is_malformed(live: Live) -> None:
    """An approval without any body is 400. Source: A-2."""
    assert live.ask(request(EVENTS, method="POST")).status == 400


def test_approval_has_limits(live: Live) -> None:
    """Up to 64 KiB and 100 requests are taken, beyond it is 413. Source: A-5."""
    full = approval("A", *[str(n) for n in range(99)])
    assert live.post(full + b" " * (64 * 1024 - len(full))).status == 200
    assert live.post(approval(*[str(n) for n in range(101)])).status == 413
    assert live.post(full + b" " * (64 * 1024 - len(full) + 1)).status == 413


@pytest.mark.parametrize("status", [400, 404])
def test_refused_approval_has_the_status_of_the_setting(portable: bool, status: int) -> None:
    """An unknown, finished or foreign id gets the configured status. Source: A-3, S-4."""
    with serving(with_settings(unknown_event_status=status), portable=portable) as live:
        live.control.answer = RequestAnswer(False, "Event A is not known.")
        reply = live.post(approval("A"))
        assert (reply.status, reply.body) == (status, b'{"error":"Event A is not known."}')
        live.control.answer = RequestAnswer(False)
        assert live.post(approval("A")).status == status


def test_approval_waits_until_it_is_durable(live: Live) -> None:
    """200 is not said before the control plane has said so. Source: A-6."""
    live.control.answer = None
    with live.connect() as raw:
        raw.send(request(EVENTS, method="POST", body=approval("A")))
        while not live.call(lambda: live.control.waiting):
            pass
        raw.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.more()
        raw.sock.setblocking(True)
        live.call(lambda: live.control.waiting[0].set_result(RequestAnswer(True)))
        assert raw.reply().status == 200


def test_approval_that_never_gets_durable_is_503(portable: bool) -> None:
    """An approval without an outcome is not called approved: the client repeats it. Source: A-6."""
    with serving(with_settings(approve_timeout_s=0.05), portable=portable) as live:
        live.control.answer = None
        reply = live.post(approval("A"))
        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        live.call(lambda: live.control.waiting[0].set_result(RequestAnswer(True)))
        assert live.get().status == 200


def test_client_gone_before_the_outcome_harms_nobody(live: Live) -> None:
    """A client that hangs up during its approval leaves nothing behind. Source: A-6."""
    live.control.answer = None
    with live.connect() as raw:
        raw.send(request(EVENTS, method="POST", body=approval("A")))
        while not live.call(lambda: live.control.waiting):
            pass
    live.call(lambda: live.control.waiting[0].set_result(RequestAnswer(True)))
    assert live.get().status == 200
    assert live.clock.now_ms() == NOW_MS
