"""Sockets of the SDK's clients and of the agent."""

from __future__ import annotations

import socket

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from forewarn.agent.sdk.http import Endpoint

CHUNK_BYTES = 65536
#: TCP keepalive: seconds to the first probe, seconds between probes, and number of unanswered
#: probes.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}


def connect(
    target: Endpoint, timeout_s: float, opened: Callable[[socket.socket], None] = lambda _: None
) -> socket.socket:
    """Return a connected socket, for TCP with TCP_NODELAY and keepalive.

    `opened` receives the unconnected socket, so that another thread can close the socket.
    """
    places: list[tuple[int, Any]]
    if target.path:
        places = [(socket.AF_UNIX, target.path)]
    else:
        host = target.host.encode()  # text would load the IDNA codec and use 1 MiB
        addresses = socket.getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
        places = [(family, address) for family, _, _, _, address in addresses]
    for left, (family, address) in enumerate(places, 1 - len(places)):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened(connection)
            connection.settimeout(timeout_s)
            connection.connect(address)
        except OSError:
            connection.close()
            if left == 0:
                raise
            continue
        if not target.path:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
        return connection
    raise AssertionError("the last attempt returns or raises")  # pragma: no cover


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keepalive on a connection.

    After a live migration, the answer of the old host never arrives. The new host resets the
    connection at the first probe, and the client repeats its request.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        option = getattr(socket, name, None)  # ignore options that the system lacks
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
