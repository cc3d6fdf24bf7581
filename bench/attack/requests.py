"""Floods of complete requests: callers with a token send hostile texts, one after the other."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

JSON, TOML, YAML = "application/json", "application/toml", "application/yaml"
#: Names of the tokens, which are those of their roles, or of the node.
OPERATOR, OWNER, VIEWER, NODE = "operator", "owner", "viewer", "h-0"
#: Limits of bodies: a form, a file, and a form that lists names.
BODY_BYTES, FILE_BYTES, NAMES_BYTES = 1024 * 1024, 4 * 1024 * 1024, 16 * 1024 * 1024
TIMEOUT_S = 60.0
#: A VM of the owner.
OWN_VM = "vm-20"


@dataclass(frozen=True)
class Requests:
    """One request that several callers repeat, each after the answer to its last one."""

    token: str
    method: str
    path: str
    media: str
    body: Callable[[], bytes]
    port: str = "operator"
    callers: int = 2
    #: Number of hosts of the fleet, each with a VM.
    hosts: int = 1
    #: Whether a caller keeps its connection.
    keeps: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    #: A status that some answer has; otherwise the flood does not reach what it is about.
    answer: str = ""

    def run(self, port: int, seconds: float) -> dict[str, int]:
        """Send requests for a time; return how many had which status."""
        counts: dict[str, int] = {}
        body, ends_s = self.body(), time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._send, args=(port, body, ends_s, counts))
            for _ in range(self.callers)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not self.answer or self.answer in counts, counts
        return counts

    def _send(self, port: int, body: bytes, ends_s: float, counts: dict[str, int]) -> None:
        headers = {
            "Authorization": f"Bearer fw_{self.token}_seeded",
            "Content-Type": self.media,
            "Connection": "keep-alive" if self.keeps else "close",
            **self.headers,
        }
        connection = self._connect(port)
        while time.monotonic() < ends_s:
            try:
                connection.request(self.method, self.path, body, headers)
                answer = connection.getresponse()
                answer.read()
                outcome = str(answer.status)
            except (OSError, http.client.HTTPException):
                outcome = "cut"
                connection.close()
            if not self.keeps:
                connection.close()
            counts[outcome] = counts.get(outcome, 0) + 1
        connection.close()

    def _connect(self, port: int) -> http.client.HTTPConnection:
        """Return a connection, which opens itself again for the next request after a close."""
        if self.port != "Azure port":
            return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        context = ssl._create_unverified_context()  # noqa: SLF001 - on loopback
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)


def repeated(piece: str, size: int, *, start: str = "", end: str = "") -> Callable[[], bytes]:
    """Return a function that makes a text of `size` bytes of one repeated piece."""

    def text() -> bytes:
        count = (size - len(start) - len(end)) // len(piece)
        return (start + piece * count + end).encode()

    return text


def _graph(text: str) -> Callable[[], bytes]:
    return lambda: json.dumps({"query": f"maintenanceresources{text}"}).encode()


_REBOOT = f"/v1/vms/{OWN_VM}/reboot"
_DRY_POLICY = "/v1/policy?dry_run=true"
_DRY_TOPOLOGY = "/v1/topology?dry_run=true"
_GRAPH = "/providers/Microsoft.ResourceGraph/resources?api-version=2022-10-01"
_COMMAS = "," * 1_000_001

_AS_NODE = {"forewarn-instance": "i"}

REQUESTS = {
    "a node that reports polls without end": Requests(
        NODE,
        "POST",
        "/feed/h-0",
        JSON,
        lambda: b'{"type":"polled","groups":{"vm-0":0}}',
        port="feed",
        keeps=True,
        headers=_AS_NODE,
        answer="204",
    ),
    "a node that asks for its part without end": Requests(
        NODE,
        "GET",
        "/feed/h-0",
        JSON,
        bytes,
        port="feed",
        keeps=True,
        headers=_AS_NODE,
        answer="200",
    ),
    "quotes and backslashes in an owner's body": Requests(
        OWNER, "POST", _REBOOT, JSON, repeated('"\\', BODY_BYTES, start=_COMMAS)
    ),
    "quotes and backslashes in a policy as TOML": Requests(
        OPERATOR, "PUT", _DRY_POLICY, TOML, repeated('"\\', FILE_BYTES)
    ),
    "spaces in a viewer's Resource Graph query": Requests(
        VIEWER, "POST", _GRAPH, JSON, _graph(" " * 9_900), port="Azure port"
    ),
    "words in a viewer's Resource Graph query": Requests(
        VIEWER, "POST", _GRAPH, JSON, _graph("|where a" + " or a" * 490), port="Azure port"
    ),
    "empty lists in an owner's body": Requests(
        OWNER, "POST", _REBOOT, JSON, repeated("[],", BODY_BYTES, start="[", end="0]")
    ),
    "empty lists in a topology": Requests(
        OPERATOR, "PUT", _DRY_TOPOLOGY, JSON, repeated("[],", 1_490_000, start="[", end="0]")
    ),
    "a topology of one text": Requests(
        OPERATOR, "PUT", _DRY_TOPOLOGY, JSON, repeated("\\n", FILE_BYTES, start='"', end='"')
    ),
    "tables in a policy as TOML": Requests(
        OPERATOR, "PUT", _DRY_POLICY, TOML, repeated("[[a]]\n", 700_000)
    ),
    "numbers in a topology as YAML": Requests(
        OPERATOR, "PUT", _DRY_TOPOLOGY, YAML, repeated("1,", 1_990_000, start="[", end="1]")
    ),
    "the longest names in a plan": Requests(
        OPERATOR,
        "POST",
        "/v1/maintenances/plan",
        JSON,
        lambda: json.dumps(
            {
                "cause": "host-update",
                "duration": "PT9M",
                "hosts": [f"{number:0>128}" for number in range(100_000)],
            }
        ).encode(),
    ),
}
