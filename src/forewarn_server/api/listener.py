"""Listeners of the operator API: parse addresses, open sockets, remove socket files."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from forewarn_metadata.endpoint.http.addresses import AddressInvalid, parse

#: Prefix of an address that is the path of a Unix socket.
UNIX = "unix:"
#: Mode of the Unix socket: only its owner and group may connect, because callers may need no token.
UNIX_MODE = 0o660


@value
class Purpose:
    """A server's name and the setting of its address."""

    server: str
    setting: str


OPERATOR = Purpose("The operator API", "`--operator-listen`, [listen] operator")
AZURE = Purpose("Azure Resource Manager", "`--azure ADDRESS`, [azure] listen")
FEED = Purpose("The feed for metadata nodes", "[feed] listen")
METRICS = Purpose("The metrics endpoint", "[listen] metrics")


class OperatorAddressUnusable(CallerError):
    """The service cannot listen on an address from the settings."""

    code = "operator-address-unusable"
    message = "{server} cannot listen on {address}: {reason}."
    advice = "Free the address, or choose another address ({setting})."


class OperatorAddressTaken(OperatorAddressUnusable):
    """The operating system does not let the service listen on an address."""

    code = "operator-address-taken"
    status = 409


def check_address(address: str, purpose: Purpose = OPERATOR) -> tuple[str, int]:
    """Return host and port of `IPV4:PORT` or `[IPV6]:PORT`, or the path of `unix:PATH` and 0.

    `localhost` is 127.0.0.1; no other name is resolved.

    Raises:
        OperatorAddressUnusable: the address is malformed.
    """
    try:
        read = parse(address)
    except AddressInvalid:
        read = None
    if read is None or read.interface:
        reason = "the address is not IPV4:PORT, localhost:PORT, [IPV6]:PORT or unix:PATH"
        raise OperatorAddressUnusable(
            server=purpose.server, address=address, reason=reason, setting=purpose.setting
        )
    return read.host, read.port


def open_listener(address: str, purpose: Purpose = OPERATOR) -> socket.socket:
    """Open a socket and bind it to an address; port 0 selects a free port.

    Raises:
        OperatorAddressUnusable: the address is malformed.
        OperatorAddressTaken: the address is in use or not permitted.
    """
    host, port = check_address(address, purpose)
    try:
        listener = _open_unix(host) if address.startswith(UNIX) else _open_tcp(host, port)
    except (OSError, AttributeError) as error:  # AttributeError on systems without Unix sockets
        raise taken(address, purpose, error) from error
    listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
    return listener


def taken(address: str, purpose: Purpose, error: BaseException | None) -> OperatorAddressTaken:
    """Return the error for an address on which the operating system refuses to listen."""
    reason = getattr(error, "strerror", None) or error
    return OperatorAddressTaken(
        server=purpose.server, address=address, reason=reason, setting=purpose.setting
    )


def clean_up(address: str) -> None:
    """Remove the socket file of a closed Unix listener."""
    if address.startswith(UNIX):
        with contextlib.suppress(OSError):
            _remove_socket(address.removeprefix(UNIX))


def name_of(listener: socket.socket) -> str:
    """Return the address of a socket in the form that `--server` accepts."""
    if listener.family in {socket.AF_INET, socket.AF_INET6}:
        host, port = listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return f"unix:{listener.getsockname()}"


def _open_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm on connections of sockets with this protocol number.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if (
            os.name == "posix"
        ):  # on Windows this option would let another process bind the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _open_unix(path: str) -> socket.socket:
    _remove_socket(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, UNIX_MODE)  # noqa: PTH101 - nobody can connect before it listens
    except OSError:
        listener.close()
        raise
    return listener


def _remove_socket(path: str) -> None:
    """Remove a stale socket file left by a killed process; refuse any other file."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116
            os.unlink(path)  # noqa: PTH108
