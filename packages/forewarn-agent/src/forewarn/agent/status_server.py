"""The status endpoint, which shows the agent's state to operators, probes and Prometheus.

The endpoint is read-only. The agent's loop answers one request per connection, and imports `ssl`
only if a certificate is configured.
"""

from __future__ import annotations

import json
import socket

from forewarn.agent.core.records import UNPREPARED, event_form
from forewarn_base.errors import reason_of
from forewarn_base.host_port import host_and_port, host_of_header, is_domain

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from typing import Protocol

    from forewarn.agent.core.agent_core import AgentCore
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.http_exchange import DescriptorPoll
    from forewarn.agent.metrics import Metrics
    from forewarn.agent.poller import Poller
    from forewarn.agent.settings import AgentSettings

    class Shown(Protocol):
        """The attributes of an agent that the endpoint reads."""

        settings: AgentSettings
        identity: Identity
        contact: Poller
        metrics: Metrics
        core: AgentCore | None

        @property
        def choice_problem(self) -> str:
            """Why the rule that chooses chose nothing; empty: no problem."""


MAX_CONNECTIONS = 32  # most connections; for a further connection, the oldest is closed
REQUEST_BYTES_MAX = 8192
END_OF_HEAD = b"\r\n\r\n"
SECONDS_MAX_MS = 5000  # time after which a client is disconnected
STALE_POLL_MS = 60_000  # age of the last successful poll above which `/readyz` fails


class StatusServer:
    """Answers `/status`, `/healthz`, `/readyz`, `/drainz`, `/prepared` and `/metrics`."""

    def __init__(self, settings: AgentSettings, *, before: StatusServer | None = None) -> None:
        """Listen at the address in the settings; after a failure, the server `before` continues.

        Raises:
            OSError: the address or the certificate is unusable.
        """
        self._address = settings.status_listen
        self._tls = None
        if settings.status_cert:
            import ssl  # noqa: PLC0415  4 MiB, only where it is wanted

            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                self._tls.load_cert_chain(settings.status_cert, settings.status_key)
            except OSError as error:
                text = f"[status] cert {settings.status_cert} cannot be used with its key"
                raise OSError(f"{text}: {reason_of(error)}") from error
        take = _listen if before is None else before.listener_for
        self._listener = take(self._address)
        self._open: dict[int, _Connection] = {}

    def listener_for(self, address: str) -> socket.socket:
        """Return a listener for the next server; after a failure, this server continues.

        Raises:
            OSError: the address cannot be used.
        """
        if address == self._address:
            return self._listener.dup()
        try:
            return _listen(address)
        except OSError:
            if host_and_port(address)[1] != host_and_port(self._address)[1]:
                raise
        self._listener.close()  # the new address may have the same port
        try:
            return _listen(address)
        except OSError:
            self._listener = _listen(self._address)
            raise

    @property
    def port(self) -> int:
        """The port of the listener."""
        number: int = self._listener.getsockname()[1]
        return number

    def watch(self, poller: DescriptorPoll) -> None:
        """Register the open sockets with the poller."""
        poller.watch(self._listener.fileno())
        for fd, connection in self._open.items():
            poller.watch(fd, write=connection.wants_write)

    def next_ms(self) -> int | None:
        """Return when to disconnect a slow client, ms since the epoch, or None."""
        return min((one.until_ms for one in self._open.values()), default=None)

    def serve(self, agent: Shown, ready: set[int], now_ms: int) -> None:
        """Accept, read and answer without blocking."""

        def answer(path: str, hosts: list[str], now_ms: int) -> tuple[int, str, str]:
            if len(hosts) > 1 or any(_is_foreign(agent, host) for host in hosts):
                return 400, "text/plain", HOST_REFUSED
            return _answer(agent, path, now_ms)

        if self._listener.fileno() in ready:
            self._accept(now_ms)
        for fd, connection in tuple(self._open.items()):
            over = now_ms >= connection.until_ms
            if over or (fd in ready and connection.advance(answer, now_ms)):
                connection.close()
                del self._open[fd]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        for connection in self._open.values():
            connection.close()

    def _accept(self, now_ms: int) -> None:
        try:
            accepted, _ = self._listener.accept()
            accepted.settimeout(0.0)
            if self._tls is not None:
                accepted = self._tls.wrap_socket(
                    accepted, server_side=True, do_handshake_on_connect=False
                )
        except OSError:
            return
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            self._open.pop(oldest).close()
        self._open[accepted.fileno()] = _Connection(accepted, now_ms + SECONDS_MAX_MS)


class _Connection:
    """One request and its answer."""

    def __init__(self, accepted: socket.socket, until_ms: int) -> None:
        self._socket = accepted
        self._request = bytearray()
        self._unsent = b""
        self.until_ms = until_ms
        self.wants_write = False

    def advance(self, answer: Answering, now_ms: int) -> bool:
        """Read and write without blocking; return whether the connection is finished."""
        try:
            if not self._unsent:
                return self._receive(answer, now_ms)
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except OSError as error:
            self.wants_write = bool(self._unsent) or type(error).__name__ == "SSLWantWriteError"
            return not _not_yet(error)
        return not self._unsent

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, answer: Answering, now_ms: int) -> bool:
        data = self._socket.recv(REQUEST_BYTES_MAX)
        searched = max(0, len(self._request) - len(END_OF_HEAD) + 1)
        self._request += data
        if not data or len(self._request) > REQUEST_BYTES_MAX:
            return True
        if self._request.find(END_OF_HEAD, searched) < 0:
            return False
        line, *fields = self._request.decode("latin-1").partition("\r\n\r\n")[0].split("\r\n")
        words = line.split(" ")
        hosts = [text.strip() for name, _, text in map(_field, fields) if name.lower() == "host"]
        if len(words) == 3 and words[0] in ("GET", "HEAD"):
            status, kind, body = answer(words[1], hosts, now_ms)
        else:
            status, kind, body = 405, "text/plain", "only GET\n"
        payload = body.encode()
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(payload)}\r\nConnection: close\r\n"
            "Cache-Control: no-store\r\n\r\n"
        )
        self._unsent = head.encode() + (payload if words[0] != "HEAD" else b"")
        self.wants_write = True
        return False


#: Stages in which this VM decides about the approval, or has decided. Source: C-5.
DECIDING = ("preparing", "ready", "checking", "approving", "held", "aborting", "aborted")

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


HOST_REFUSED = "the Host header names another host; [status] allowed_hosts permits names\n"


def _field(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _is_foreign(agent: Shown, header: str) -> bool:
    """Return whether a request's `Host` is that of another site's page (DNS rebinding)."""
    host = host_of_header(header)
    return is_domain(host) and host not in agent.settings.status_allowed_hosts


def _listen(place: str) -> socket.socket:
    address = host_and_port(place)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.create_server(address, family=family, backlog=MAX_CONNECTIONS)
    listener.settimeout(0.0)
    return listener


def _answer(agent: Shown, path: str, now_ms: int) -> tuple[int, str, str]:
    """Return status, content type and body for a path."""
    route = path.partition("?")[0]
    if route == "/healthz":
        return 200, "text/plain", "ok\n"
    if route == "/readyz":
        good_ms = agent.contact.good_ms
        held_ms = int(agent.settings.wait_s * 1000)
        stale = good_ms is None or now_ms - good_ms > STALE_POLL_MS + held_ms
        return (
            (503, "text/plain", "no recent successful poll\n")
            if stale
            else (200, "text/plain", "ok\n")
        )
    if route == "/drainz":
        draining = any(
            held.phase != "approve" and held.status != UNPREPARED
            for held in (agent.core.steps if agent.core is not None else ())
        )
        return (503, "text/plain", "draining\n") if draining else (200, "text/plain", "ok\n")
    if route == "/metrics":
        body = agent.metrics.exposition(agent.core, agent.contact, now_ms=now_ms)
        return 200, "text/plain; version=0.0.4; charset=utf-8", body
    if route == "/prepared":
        form = prepared_form(agent.identity.name, agent.core)
        return 200, "application/json", json.dumps(form) + "\n"
    if route in ("/", "/status"):
        return 200, "application/json", json.dumps(status_form(agent, now_ms)) + "\n"
    return 404, "text/plain", "not found\n"


def status_form(agent: Shown, now_ms: int) -> dict[str, object]:
    """Return the agent's state in JSON types."""
    core, contact = agent.core, agent.contact
    events = core.events if core is not None else ()
    return {
        "name": agent.identity.name if core is not None else None,
        "endpoint": contact.endpoint,
        "api_version": contact.version,
        "polls": contact.polls,
        "seconds_since_poll": None if contact.good_ms is None else (now_ms - contact.good_ms) / 1e3,
        "service_clock_ahead_s": contact.ahead_ms / 1e3,
        "trouble": contact.trouble,
        "choice_problem": agent.choice_problem,
        "events": [
            {
                "event": event_form(record.event),
                "stage": record.stage,
                "rule": record.rule,
                "why": record.why,
                "approved": record.approved,
            }
            for record in events
        ],
        "steps": [
            {"name": held.key, "phase": held.phase, "status": held.status, "for": held.holders}
            for held in (core.steps if core is not None else ())
        ],
        "unrecovered": core.unrecovered if core is not None else {},
    }


def prepared_form(name: str, core: AgentCore | None) -> dict[str, object]:
    """Return the events for which this VM is prepared, for the other VMs' agents. Source: C-5."""
    events = core.events if core is not None else ()
    stages = ("ready", "checking", "approving", "approved", "held", "under-way")
    done = [one for one in events if one.stage in stages and one.group == len(one.plan)]
    return {
        "name": name,
        "prepared": [one.event_id for one in done if not one.gone],
        "deciding": [one.event_id for one in events if one.stage in DECIDING and not one.gone],
    }


def _not_yet(error: OSError) -> bool:
    return isinstance(error, (BlockingIOError, InterruptedError)) or "Want" in type(error).__name__


if TYPE_CHECKING:
    from collections.abc import Callable

    Answering = Callable[[str, list[str], int], tuple[int, str, str]]
