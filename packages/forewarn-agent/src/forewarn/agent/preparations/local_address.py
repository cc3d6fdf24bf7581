"""Which addresses are this machine's, so that a step finds its own member of a cluster."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from forewarn.agent.preparations.http_call import local_host


def is_local(host: str) -> bool:
    """Return whether a name or an IP address is this machine's."""
    if host == local_host():
        return True
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address[0]) for family, _, _, _, address in addresses)


def host_of(url: str) -> str:
    """Return the host of `SCHEME://HOST:PORT`; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _can_bind(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((str(address), 0))
    except OSError:
        return False
    return True
