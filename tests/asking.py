"""One HTTP request to a service, and what came back."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import LIMIT_S

#: Where a VM reads its document.
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


@dataclass(frozen=True)
class Reply:
    """What came back; names of headers are as they came."""

    status: int
    body: bytes
    headers: dict[str, str] = field(repr=False)

    @property
    def json(self) -> Any:  # noqa: ANN401 - as it came
        """The body, read; nothing if it is empty."""
        return json.loads(self.body) if self.body else {}

    @property
    def code(self) -> str:
        """The code of a refusal."""
        code: str = self.json["error"]["code"]
        return code


def ask(
    address: str,
    method: str,
    path: str,
    form: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    source: str = "",
) -> Reply:
    """Send one request to HOST:PORT or `http://HOST:PORT`, on a connection of its own.

    Args:
        address: where to.
        method: GET, POST ...
        path: with its query.
        form: what is sent as JSON; None: `body` is sent.
        headers: further headers; a VM's request for events has its own without being asked to.
        body: bytes to send.
        source: address of this machine to send from; empty: the system chooses.
    """
    sent = {"Metadata": "true"} if path.startswith("/metadata/") else {}
    if form is not None:
        body = json.dumps(form).encode()
        sent["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(
        address.removeprefix("http://"),
        timeout=LIMIT_S,
        source_address=(source, 0) if source else None,
    )
    try:
        connection.request(method, path, body, {**sent, **(headers or {})})
        answer = connection.getresponse()
        return Reply(answer.status, answer.read(), dict(answer.getheaders()))
    finally:
        connection.close()
