"""HTTP read by hand: answers cut anywhere, odd framing, endpoints as they are written."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.agent.sdk.http import (
    HEAD_BYTES_MAX,
    Endpoint,
    EndpointInvalid,
    ResponseInvalid,
    ResponseReader,
    request_bytes,
    target_of,
)

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Y: z\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
WHOLE = (LENGTH, CHUNKED, CONTINUED)


@given(st.sampled_from(WHOLE), st.lists(st.integers(1, 20)))
def test_answer_is_the_same_however_it_is_cut(whole: bytes, cuts: list[int]) -> None:
    """TCP knows no messages."""
    reader, rest, complete = ResponseReader(), whole, False
    for size in [*cuts, len(whole)]:
        if rest and not complete:
            complete = reader.feed(rest[:size])
            rest = rest[size:]
    assert complete
    assert reader.answer is not None
    assert (reader.answer.status, reader.answer.body, reader.keeps) == (200, b"hello", True)


@given(st.sampled_from(WHOLE), st.data())
def test_answer_that_is_cut_off_is_broken(whole: bytes, data: st.DataObject) -> None:
    """A connection that closes in the middle leaves no answer. Source: E-10."""
    end = data.draw(st.integers(0, len(whole) - 1))
    reader = ResponseReader()
    assert end == 0 or not reader.feed(whole[:end])
    with pytest.raises(ResponseInvalid):
        reader.feed(b"")


@pytest.mark.parametrize(
    "whole",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + b"x" * 500_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 600_000,
    ],
    ids=["chunks", "trailer", "length", "until-closed"],
)
def test_long_answer_in_small_pieces_is_read_at_once(whole: bytes) -> None:
    """What has come is not read again with each piece: a slow server costs no processor."""
    reader, began_s = ResponseReader(), time.process_time()
    for at in range(0, len(whole), 16):
        assert not reader.feed(whole[at : at + 16])
    assert time.process_time() - began_s < 2


@given(st.binary(min_size=1, max_size=200))
def test_noise_is_no_answer(noise: bytes) -> None:
    """Whatever comes, it is an answer, an error or not yet complete."""
    reader = ResponseReader()
    try:
        if not reader.feed(noise):
            reader.feed(b"")
    except ResponseInvalid:
        return
    assert reader.answer is not None


@pytest.mark.parametrize(
    ("text", "keeps", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", False, b"ok"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", False, b"ok"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", True, b""),
        (b"HTTP/1.1 204\r\n\r\n", True, b""),
    ],
)
def test_connection_is_kept_only_where_it_can_be(text: bytes, keeps: bool, body: bytes) -> None:
    """The next request goes over the same connection, or over a new one. Source: E-7."""
    reader = ResponseReader()
    assert reader.feed(text)
    assert reader.answer is not None
    assert (reader.keeps, reader.answer.body) == (keeps, body)


def test_answer_without_a_length_ends_with_the_connection() -> None:
    """Old servers do that."""
    reader = ResponseReader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert not reader.feed(b"lo")
    assert reader.feed(b"")
    assert reader.answer is not None
    assert (reader.answer.body, reader.keeps) == (b"hello", False)


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"x" * (HEAD_BYTES_MAX + 1),
    ],
)
def test_nonsense_is_refused(text: bytes) -> None:
    """What cannot become an answer is given up at once."""
    with pytest.raises(ResponseInvalid):
        ResponseReader().feed(text)


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("http://169.254.169.254", Endpoint("169.254.169.254")),
        ("http://127.0.0.1:8169/", Endpoint("127.0.0.1", 8169)),
        ("http://[::1]:80", Endpoint("::1")),
        ("http://[fe80::1]", Endpoint("fe80::1")),
        ("http://[fe80::1%25eth0]", Endpoint("fe80::1%eth0")),
        ("http://[fe80::1%eth0]:8169", Endpoint("fe80::1%eth0", 8169)),
        (
            "http://127.0.0.1:8169/metadata/scheduledevents?api-version=2020-07-01",
            Endpoint("127.0.0.1", 8169),
        ),
        (
            "http://h/metadata/scheduledEvents/?vm=web_0&api-version=2017-08-01&wait=5",
            Endpoint("h", query="vm=web_0"),
        ),
        ("unix:/run/x.sock", Endpoint("localhost", path="/run/x.sock")),
        ("unix:///run/x.sock", Endpoint("localhost", path="/run/x.sock")),
    ],
)
def test_endpoint_names_a_target(endpoint: str, target: Endpoint) -> None:
    """Endpoints are written as people write them, and as URLs are."""
    assert target_of(endpoint) == target
    assert target_of(str(target)) == target


def test_zone_of_an_address_stays_on_this_machine() -> None:
    """In a URL it follows `%25`, as RFC 6874 says; requests do not contain it."""
    target = target_of("http://[fe80::1%25eth0]:8169")
    assert str(target) == "http://[fe80::1%25eth0]:8169"
    assert b"Host: [fe80::1]:8169\r\n" in request_bytes("GET", target, path="/")


ZONED = """
import socket, sys
from forewarn.agent.http_exchange import Line
from forewarn.agent.sdk.http import target_of
from forewarn.agent.sdk.sockets import connect
from forewarn_base.http_client import new_connection
listener = socket.socket(socket.AF_INET6)
listener.bind(("fe80::1", 0, 0, socket.if_nametoindex("lo")))
listener.listen()
url = f"http://[fe80::1%25lo]:{listener.getsockname()[1]}"
connect(target_of(url), 5).close()
line = Line()
line.begin(target_of(url), "GET", request=b"x")
connection = new_connection(url, "", timeout_s=5)
connection.connect()
for _ in range(3):
    listener.accept()[0].close()
print("reached")
"""


@pytest.mark.netns
def test_link_local_address_is_reached() -> None:
    """By the SDK, the agent, and the other clients. Source: C-8."""
    script = 'ip link set lo up; ip addr add fe80::1/64 dev lo nodad; exec $0 -c "$1"'
    words = ["unshare", "--net", "sh", "-c", script, sys.executable, ZONED]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "reached\n", done.stderr


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "x",
        "https://x",
        "http://",
        "http://x:0",
        "http://x:y",
        "http://x:\u00b2",
        "http://x:" + "9" * 5000,
        "http://\u00e4.example",
        "http://x y",
        "http://u@x",
        "http://x/p",
        "http://x/metadata/scheduledevents?vm=a b",
        "http://x/metadata/scheduledevents?vm=\u00e4",
        "http://x:99999",
        "unix:x",
    ],
)
def test_other_endpoints_are_refused(endpoint: str) -> None:
    """A typing mistake is not a metadata service."""
    with pytest.raises(EndpointInvalid):
        target_of(endpoint)


def test_unix_socket_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none there; it is said at once, not when the first poll falls over."""
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(EndpointInvalid, match="Windows"):
        target_of("unix:/run/metadata.sock")


def test_request_is_one_that_every_server_reads() -> None:
    """The bytes of an approval."""
    text = request_bytes("POST", Endpoint("::1", 8), path="/a", headers=(("B", "c"),), body=b"{}")
    assert text == b"POST /a HTTP/1.1\r\nHost: [::1]:8\r\nB: c\r\nContent-Length: 2\r\n\r\n{}"
    with pytest.raises(AssertionError):
        request_bytes("GET", Endpoint("x"), path="/a\r\nInjected: yes")
