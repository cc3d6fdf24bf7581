"""Node events: serves what AKS reports on this Kubernetes node as a document of Scheduled Events.

On AKS a pod may be cut off from the metadata service, but it can read the conditions of its node.
Agents and other clients on this machine poll this service in place of the metadata service. It
refuses approvals, because nothing on a node carries them to Azure. Source: K-5.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from forewarn.agent.log import Log
from forewarn.agent.preparations.http_call import CallUnanswered, expect
from forewarn.agent.preparations.kubernetes import api_server, ask, node_name, node_path
from forewarn.agent.sdk.dialogue import NAME_PATH, VERSION_REFUSED
from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError, reason_of
from forewarn_base.host_port import host_and_port
from forewarn_base.http_client import ClientRequest, open_request
from forewarn_base.kubernetes.aks_conditions import AKS_TYPES, ConditionReader
from forewarn_base.protocol.documents import Document, render_document
from forewarn_base.protocol.versions import EVENTS_PATH, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forewarn.agent.settings import AgentSettings
    from forewarn_base.clock import Clock
    from forewarn_base.protocol.documents import ScheduledEvent

WATCH_S = 300  # the API server ends a watch after this time; the node is then read again
SILENT_S = 90.0  # a watch without a change or a bookmark for this long is dead
RETRY_S, RETRY_MAX_S = 1.0, 15.0  # first and longest pause after a failure
STALE_MS = 60_000  # answers fail once the node has been unknown for this long
CHANGE_BYTES_MAX = 4 * 1024 * 1024
CLIENT_TIMEOUT_S = 10
NOT_HERE = "This service only shows what Kubernetes reports; events cannot be approved here."


class NodeEvents:
    """The events of one node, followed in a thread of their own."""

    def __init__(self, settings: dict[str, object], *, clock: Clock, log: Log) -> None:
        self.name = node_name(settings)
        self._settings = settings
        self._clock = clock
        self._log = log
        types: Mapping[str, str] = settings.get("event_types") or AKS_TYPES  # type: ignore[assignment]
        self._reader = ConditionReader(types)
        self._lock = threading.Lock()
        # Incarnations grow over restarts, because they begin at the time.
        self._document = Document(clock.now_ms() // 1000)
        self._known = False
        self._failing_since_ms = 0
        self._trouble = "the node has not been read yet"
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to follow the node."""
        threading.Thread(target=self._follow, name="node events", daemon=True).start()

    def close(self) -> None:
        """Stop after the current request."""
        self._closed.set()

    def document(self) -> Document | str:
        """Return the document, or why the events are unknown."""
        with self._lock:
            lasts_ms = self._clock.now_ms() - self._failing_since_ms
            current = self._known and not (self._trouble and lasts_ms > STALE_MS)
            return self._document if current else self._trouble

    def _follow(self) -> None:
        pause_s = RETRY_S
        while not self._closed.is_set():
            try:
                for node in self._states():
                    self._take(node)
                    pause_s = RETRY_S
                    if self._closed.is_set():
                        return
            except (ForewarnError, OSError, http.client.HTTPException, ValueError) as error:
                self._fail(reason_of(error))
                self._closed.wait(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    def _states(self) -> Iterator[dict[str, Any] | None]:
        """Yield the node, and then each of its states, until the watch ends; None: no news."""
        path = node_path(self._settings)
        response = ask(self._settings, "GET", path=path)
        node = expect(response, "GET", url=path, statuses=(200, 404)).form()
        if response.status == 404:
            raise CallUnanswered(method="GET", url=path, reason="the cluster has no such node")
        yield node
        version = (node.get("metadata") or {}).get("resourceVersion")  # type: ignore[attr-defined]
        yield from self._changes(str(version))

    def _changes(self, version: str) -> Iterator[dict[str, Any] | None]:
        server, headers, ca_file = api_server(self._settings)
        query = (
            f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"
            f"&fieldSelector=metadata.name%3D{quote(self.name, safe='')}"
            f"&resourceVersion={quote(version, safe='')}"
        )
        url = f"{server}/api/v1/nodes?{query}"
        request = ClientRequest("GET", url, {"Accept": "application/json", **headers})
        with contextlib.closing(
            open_request(request, timeout_s=SILENT_S, ca_file=ca_file)
        ) as connection:
            response = connection.getresponse()
            if response.status != 200:
                raise CallUnanswered(method="GET", url=url, reason=f"status {response.status}")
            while line := response.readline(CHANGE_BYTES_MAX + 1):
                change = json.loads(line)
                if change.get("type") in ("ERROR", "DELETED"):
                    return  # read the node again, whatever happened to it or to its version
                yield None if change.get("type") == "BOOKMARK" else change["object"]

    def _take(self, node: dict[str, Any] | None) -> None:
        """Store the events of a state of the node; None: the state has not changed."""
        with self._lock:
            self._trouble = ""
            self._known = True
            if node is not None:
                events = self._reader.read(node)
                if events != self._document.events:
                    self._document = Document(self._document.incarnation + 1, events)
                    self._tell(events)
        self._log.clear("node-unread")

    def _tell(self, events: tuple[ScheduledEvent, ...]) -> None:
        shown = ", ".join(f"{one.event_type} {one.event_id} {one.status}" for one in events)
        self._log.say("node-events", f"Node {self.name}: {shown or 'no event is reported'}.")

    def _fail(self, reason: str) -> None:
        with self._lock:
            if not self._trouble:
                self._failing_since_ms = self._clock.now_ms()
            self._trouble = f"{reason.rstrip('.')}."
        self._log.once("node-unread", self._trouble, level="warning")


class NodeEventsServer(http.server.ThreadingHTTPServer):
    """The metadata service of one node, for clients on the same machine."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], node: NodeEvents) -> None:
        self.node = node
        super().__init__(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: NodeEventsServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Limit how long a client may be silent."""
        self.request.settimeout(CLIENT_TIMEOUT_S)
        super().setup()

    def do_GET(self) -> None:
        """Answer with the document, or with the name of the VM."""
        if self.headers.get("Metadata", "").lower() != "true":  # pages of browsers cannot send it
            self._send(400, b'{"error":"the header Metadata: true is missing"}')
            return
        place = urlsplit(self.path)
        if place.path == NAME_PATH.partition("?")[0]:
            self._send(200, self.server.node.name.encode(), kind="text/plain")
        elif place.path == EVENTS_PATH:
            self._send_document(parse_qs(place.query).get("api-version", [VERSIONS[-1]])[0])
        else:
            self._send(404, b'{"error":"only scheduledevents and the VM\'s name are here"}')

    def do_POST(self) -> None:
        """Refuse an approval."""
        self.close_connection = True  # the body is not read
        self._send(405, json.dumps({"error": NOT_HERE}).encode())

    def _send_document(self, version: str) -> None:
        if version not in VERSIONS:
            self._send(400, json.dumps({"error": f"the {VERSION_REFUSED}"}).encode())
            return
        document = self.server.node.document()
        if isinstance(document, str):
            self._send(503, json.dumps({"error": document}).encode())
        else:
            self._send(200, render_document(document, version))

    def _send(self, status: int, body: bytes, *, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base
        """Keep polls out of the log."""


def serve(settings: AgentSettings) -> None:
    """Serve the events of this node until the process is stopped.

    Raises:
        OSError: the address cannot be used.
    """
    clock = SystemClock()
    log = Log(settings.log, clock=clock)
    node = NodeEvents(settings.kubernetes, clock=clock, log=log)
    address = host_and_port(str(settings.kubernetes["events_listen"]))
    with NodeEventsServer(address, node) as server:
        node.start()
        log.say("node-events-served", f"The events of node {node.name} are served.")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
