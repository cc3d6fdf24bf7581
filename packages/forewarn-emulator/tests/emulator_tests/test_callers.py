"""Who asks an emulator, and where: VMs by name, address and signature; several places at once."""

import hashlib
import hmac
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emulator_tests.asking import PATH, Start, events, get, started
from emulator_tests.conftest import ANYWHERE
from forewarn_server.cli.api_client import ApiClient


def test_several_vms_share_one_group(process: Start) -> None:
    """`--vm` twice: one group, the first is the default, `?vm=` says another. Source: S-1, S-6."""
    _, url, api = started(process, "--vm", "web-1", "--vm", "web-2")
    api.post("/v1/vms/web-2/reboot")
    [event] = events(get(f"{url}&wait=30&incarnation=0"))
    assert event["Resources"] == ["web-2"]
    assert get(f"{url}&vm=web-2") == get(url)
    with pytest.raises(OSError, match="404"):
        get(f"{url}&vm=web-3")
    hosts = api.get("/v1/hosts")["hosts"]
    assert [host["fault_domain"] for host in hosts] == [0, 1]


def test_address_says_who_asks(process: Start) -> None:
    """`--vm NAME=ADDRESS` knows a VM by its address; all others are the first. Source: S-6."""
    _, url, api = started(process, "--vm", "web-1", "--vm", "web-2=127.0.0.2")
    assert api.get("/v1/vms/web-2")["addresses"] == ["127.0.0.2"]
    split = urlsplit(url)
    there = (split.hostname or "", split.port or 0)
    name = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    ask = f"GET {name} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nConnection: close\r\n\r\n"
    for source, expected in (("127.0.0.1", b"web-1"), ("127.0.0.2", b"web-2")):
        with socket.create_connection(there, 30, source_address=(source, 0)) as vm:
            vm.sendall(ask.encode())
            assert vm.makefile("rb").read().endswith(b"\r\n\r\n" + expected)


def test_fleet_comes_from_a_file(process: Start, tmp_path: Path) -> None:
    """`--topology` gives hosts, groups and VMs, each with its addresses. Source: S-2, S-6."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "hosts: {h1: {}, h2: {fault_domain: 1}}\n"
        "vms:\n  db-1: {host: h1}\n  db-2: {host: h2, addresses: [127.0.0.2]}\n"
    )
    _, url, api = started(process, "--topology", str(fleet))
    api.post("/v1/hosts/h2/reboot")
    assert len(events(get(f"{url}&vm=db-2&wait=30&incarnation=0"))) == 1
    assert events(get(url)) == []
    text = fleet.with_suffix(".txt")
    text.write_text(fleet.read_text())
    status, errors = process("--topology", str(text)).wait()
    assert (status, f"{text} cannot be read. The extension must be" in errors) == (2, True)
    text = fleet.with_suffix(".json")
    text.write_text("{")
    status, errors = process("--topology", str(text)).wait()
    assert (status, f"{text} cannot be read. The body" in errors) == (2, True)
    status, errors = process("--topology", str(fleet), "--vm", "db-9").wait()
    assert (status, "has no VM db-9" in errors) == (2, True)
    split = urlsplit(url)
    there = (split.hostname or "", split.port or 0)
    with socket.create_connection(there, 30, source_address=("127.0.0.2", 0)) as db_2:
        ask = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nConnection: close\r\n\r\n"
        db_2.sendall(ask.encode())
        assert b'"Resources":["db-2"]' in db_2.makefile("rb").read()


def test_signed_header_says_who_asks(process: Start, tmp_path: Path) -> None:
    """A proxy's signature is believed with the secret, and only then. Source: S-6."""
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        '[hosts.h1]\n[vms.one]\nhost = "h1"\n[vms.two]\nhost = "h1"\ninstance_id = "i-2"\n'
    )
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    _, url, api = started(process, "--topology", str(fleet), "--proxy-secret", str(secret))
    api.post("/v1/vms/two/reboot")
    get(f"{url}&vm=two&wait=30&incarnation=0")
    signature = hmac.new(b"sesame", b"i-2", hashlib.sha256).hexdigest()
    signed = {"X-Instance-ID": "i-2", "X-Instance-ID-Signature": signature}
    assert len(events(get(url, signed))) == 1
    assert events(get(url)) == []
    with pytest.raises(OSError, match="404"):
        get(url, {**signed, "X-Instance-ID-Signature": "0" * 64})


def test_it_listens_wherever_it_is_told(process: Start, tmp_path: Path) -> None:
    """IPv4, IPv6 and a Unix socket at once. Source: E-1."""
    path = tmp_path / "metadata.sock"
    emulator = process(
        *("--listen", ANYWHERE, "--listen", "[::1]:0", "--listen", f"unix:{path}"),
        *("--operator-listen", "none"),
    )
    said = emulator.read_until("operator API is disabled")
    found = re.findall(r"http://(?:127\.0\.0\.1|\[::1\]):\d+", said)
    assert len(set(found)) == 2
    for url in set(found):
        assert get(url + PATH) == {"DocumentIncarnation": 0, "Events": []}
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(str(path))
        unix.sendall(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode())
        assert unix.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_operators_elsewhere_need_a_token(process: Start) -> None:
    """A token is made with the emulator running; on this machine none is needed."""
    _, _, api = started(process)
    api.post("/v1/vms/vm-1/reboot")
    made = api.post("/v1/access/tokens", {"principal": "ada", "role": "operator"})
    known = ApiClient(api.server, made["token"])
    known.post("/v1/operations/op-1/cancel")
    actors = {entry["action"]: entry["actor"] for entry in known.get("/v1/history")["entries"]}
    assert "ada" in actors["operation.cancelled"]
