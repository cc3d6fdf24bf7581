"""HAProxy: drains servers over the runtime API, and later enables the servers again.

Only servers that were ready before the event become ready again, so operators' changes remain.
"""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from forewarn.agent.json_fields import words
from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.wait_until import Unanswered, persist, until
from forewarn_base.errors import PeerError, reason_of
from forewarn_base.host_port import host_and_port

TIMEOUT_S = 10.0
REPLY_BYTES_MAX = 4 * 1024 * 1024


class RuntimeRefused(PeerError):
    """The runtime API refused a command."""

    code = "haproxy-refused"
    message = "HAProxy answers {command!r} with: {reply}."
    advice = "Give the socket `level admin`, and write servers as BACKEND/SERVER."


def prepare(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Set the servers to drain (or `maint`), and wait until all sessions have ended."""
    servers = words(settings, "servers")
    ready = [one for one in servers if persist(partial(_admin_state, settings, one)) == "0"]
    noted = step_state.read().get("servers", [])
    assert isinstance(noted, list)
    step_state.write({"servers": sorted({*noted, *ready})})
    for server in servers:
        _command(settings, f"set server {server} state {settings.get('state', 'drain')}")
    most = int(str(settings.get("sessions_max", 0)))
    until(
        lambda: all(_sessions(settings, server) <= most for server in servers),
        "all sessions have ended",
        seconds=float(str(settings.get("wait_s", 0))),
    )
    return f"drained: {', '.join(servers)}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Set servers to ready if they were ready before the event."""
    servers = step_state.read().get("servers", [])
    assert isinstance(servers, list)
    for server in servers:
        _command(settings, f"set server {server} state ready")
    step_state.clear()
    return f"ready: {', '.join(servers) or 'nothing'}"


def _sessions(settings: dict[str, object], server: str) -> int:
    """Return the current number of sessions of a server."""
    backend, _, name = server.partition("/")
    lines = _ask(settings, f"show stat {backend} 4 -1").splitlines()
    names = lines[0].lstrip("# ").split(",")
    for line in lines[1:]:
        row = dict(zip(names, line.split(","), strict=False))
        if row.get("svname") == name:
            return int(row.get("scur") or 0)
    raise RuntimeRefused(command="show stat", reply=f"no server {server}")


def _admin_state(settings: dict[str, object], server: str) -> str:
    """Return the administrative state of a server; `0` is ready."""
    backend, _, name = server.partition("/")
    reply = _ask(settings, f"show servers state {backend}")
    lines = [line for line in reply.splitlines() if line.strip()]
    heads = next((line for line in lines if line.startswith("# ")), "")
    for line in lines:
        row = dict(zip(heads[2:].split(), line.split(), strict=False))
        if row.get("srv_name") == name:
            return row["srv_admin_state"]
    raise RuntimeRefused(command=f"show servers state {backend}", reply=reply.strip() or "nothing")


def _command(settings: dict[str, object], command: str) -> None:
    reply = persist(lambda: _ask(settings, command)).strip()
    if reply:
        raise RuntimeRefused(command=command, reply=reply)


def _ask(settings: dict[str, object], command: str) -> str:
    """Return the reply to a command.

    Raises:
        Unanswered: HAProxy does not answer, for example while it starts again.
        PermissionError: the agent may not use the socket.
    """
    address = str(settings["socket"])
    try:
        with _connect(address) as connection:
            connection.sendall(f"{command}\n".encode())
            reply = b""
            while len(reply) < REPLY_BYTES_MAX:
                chunk = connection.recv(65536)
                if not chunk:
                    break
                reply += chunk
    except PermissionError:
        raise
    except OSError as error:
        raise Unanswered(service=f"HAProxy at {address}", reason=reason_of(error)) from error
    return reply.decode("utf-8", "replace")


def _connect(address: str) -> socket.socket:
    if not address.startswith("/"):
        return socket.create_connection(host_and_port(address), TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(str(Path(address)))
    except OSError:
        connection.close()
        raise
    return connection
