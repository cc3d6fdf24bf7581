"""Listening addresses of the metadata service: their text form, and their sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import struct
import sys
from array import array
from collections.abc import Iterable
from typing import cast

from forewarn_base.errors import CallerError, OurError
from forewarn_base.host_port import host_and_port, joined_address
from forewarn_base.values import value

_LOCALHOST = "127.0.0.1"
BACKLOG = 4096  # the kernel's limit is net.core.somaxconn

_IP_PKTINFO = 8  # two constants of Linux that the socket module does not define
_IP_PKTOPTIONS = 9
_STREAM = int(socket.SOCK_STREAM)
_UNIX_MODE = 0o666  # any user with access to the directory may send requests, as at a port


class AddressInvalid(CallerError):
    """A listening address is malformed."""

    code = "address-invalid"
    message = "{text!r} is not a valid listening address."
    advice = (
        "Write IPV4:PORT, localhost:PORT, IPV4%INTERFACE:PORT, [IPV6]:PORT or unix:PATH; other "
        "names are not resolved."
    )


class AddressUnavailable(OurError):
    """The operating system refuses a listening address."""

    code = "address-unavailable"
    status = 503
    message = "Cannot listen on {text}: {reason}."
    advice = (
        "Check that this machine has the address and that the port is free and permitted, or "
        "choose another address with `--listen` or [listen] metadata."
    )


@value
class Address:
    """One address to listen on."""

    #: IPv4 or IPv6 address; the path of a Unix socket.
    host: str
    port: int = 0
    #: Accept only connections through this network interface.
    interface: str = ""
    is_unix: bool = False

    def __str__(self) -> str:
        """Return the text form that `parse` reads."""
        if self.is_unix:
            return f"unix:{self.host}"
        host = f"{self.host}%{self.interface}" if self.interface else self.host
        return joined_address(host, self.port)


@value
class Listener:
    """A listening socket."""

    sock: socket.socket
    #: The actual address, with the actual port.
    address: Address
    #: The socket's file descriptor.
    family: int

    @property
    def interface(self) -> str:
        """Function that reads the interface of a connection; None if not required."""
        return self.address.host if self.address.is_unix else self.address.interface

    @property
    def is_unix(self) -> bool:
        """Whether the listener is a Unix socket, whose peers have no address."""
        return self.address.is_unix

    @property
    def is_plain(self) -> bool:
        """Whether the address alone identifies a peer."""
        return not self.address.is_unix and not self.address.interface

    def accept(self) -> tuple[int, str]:
        """Accept one connection; return its descriptor and the peer's address.

        Raises:
            BlockingIOError: no connection is waiting.
        """
        # avoid `socket.accept`, which creates three enums for each of the tens of thousands of
        # connections a second
        fd, peer = self.sock._accept()  # type: ignore[attr-defined]  # noqa: SLF001
        return fd, peer[0] if isinstance(peer, tuple) else ""

    def accepted_socket(self, fd: int) -> socket.socket:
        """Return the socket of an accepted connection."""
        return cast("socket.socket", socket.SocketType(self.family, _STREAM, 0, fd))

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket."""
        self.sock.close()
        if self.address.is_unix:
            _unlink_socket(self.address.host)


def parse(text: str) -> Address:
    """Read `IPV4:PORT`, `IPV4%INTERFACE:PORT`, `[IPV6]:PORT` or `unix:PATH`.

    `localhost` is 127.0.0.1; other names are not resolved.

    Raises:
        AddressInvalid: the text has none of these forms.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return Address(text.removeprefix("unix:"), is_unix=True)
    bracketed = text.startswith("[")
    family = socket.AF_INET6 if bracketed else socket.AF_INET
    try:
        host, port = host_and_port(text)
        host, _, interface = host.partition("%")
        host = _LOCALHOST if host == "localhost" and not bracketed else host
        socket.inet_pton(family, host)
    except (OSError, ValueError) as error:
        raise AddressInvalid(text=text) from error
    return Address(host, port, interface)


def open_listener(address: Address, *, shared: bool = False) -> Listener:
    """Open a listening socket; `shared` allows other processes on the port (SO_REUSEPORT).

    Raises:
        AddressUnavailable: the system refuses the address.
    """
    family = _family_of(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        _prepare(sock, address, shared=shared)
        sock.bind(_name_of(address))
        if address.is_unix:
            os.chmod(address.host, _UNIX_MODE)  # noqa: PTH101
        sock.listen(BACKLOG)
        sock.settimeout(0)
    except OSError as error:
        sock.close()
        raise AddressUnavailable(text=str(address), reason=error.strerror or error) from error
    if address.is_unix:
        return Listener(sock, address, int(family))
    port = sock.getsockname()[1]
    return Listener(sock, Address(address.host, port, address.interface), int(family))


def interface_of(sock: socket.socket) -> str:
    """Return the interface of a connection, if the system knows it. Source: S-6."""
    if sys.platform != "linux":
        return ""
    try:
        if sock.family == socket.AF_INET6:
            # A connection's default outgoing multicast interface is the interface of its first
            # packet. Only a link-local peer has a scope.
            index = sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF)
            return socket.if_indextoname(index) if index else ""
        # The kernel stores the packet info of the connection's first packet. The interface's index
        # follows the cmsghdr, as the first member of in_pktinfo.
        kept = sock.getsockopt(socket.IPPROTO_IP, _IP_PKTOPTIONS, 64)
        header = struct.calcsize("@Lii")
        if len(kept) < header + 4:
            return ""
        return socket.if_indextoname(struct.unpack_from("@i", kept, header)[0])
    except OSError:
        return ""


def _family_of(address: Address) -> socket.AddressFamily:
    if address.is_unix:
        if not hasattr(socket, "AF_UNIX"):
            raise AddressUnavailable(text=str(address), reason="this system has no Unix sockets")
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _prepare(sock: socket.socket, address: Address, *, shared: bool) -> None:
    if address.is_unix:
        _unlink_socket(address.host)
        return
    sock.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # accepted sockets inherit the option
    if os.name == "posix":  # on Windows this option would let another process bind the same port
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    elif sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    if address.interface and sys.platform == "linux":
        bound = address.interface.encode() + b"\0"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bound)


def _name_of(address: Address) -> str | tuple[str, int] | tuple[str, int, int, int]:
    if address.is_unix:
        return address.host
    if ":" in address.host:
        scope = socket.if_nametoindex(address.interface) if address.interface else 0
        return (address.host, address.port, 0, scope)
    return (address.host, address.port)


def _unlink_socket(path: str) -> None:
    """Remove a Unix socket's file from an earlier run; refuse any other file."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116
            os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        return


_ATTACH = 51  # SO_ATTACH_REUSEPORT_CBPF, which the socket module does not define

# Linux's classic packet filters (linux/filter.h, linux/bpf_common.h) load fields of a packet's
# network header from offsets above this value.
_NETWORK = 0xFFF0_0000  # SKF_NET_OFF
_LOAD, _XOR_INDEX, _TO_INDEX = 0x20, 0xAC, 0x07
_TIMES, _SHIFT, _MODULO, _RETURN = 0x24, 0x74, 0x94, 0x16

#: Offsets of the words of the source address.
_SOURCES = {socket.AF_INET: (12,), socket.AF_INET6: (8, 12, 16, 20)}
_SPREAD = 2_654_435_761  # Knuth's multiplier, which also distributes addresses at a fixed distance


def bind_clients(sock: socket.socket, processes: int) -> None:
    """Bind each client address to one of `processes` processes, if the system supports filters.

    Processes are numbered in the order of their start. The system distributes the clients of a
    missing process as usual.
    """
    if sys.platform != "linux":
        return
    first, *others = _SOURCES[sock.family]
    code = [(_LOAD, _NETWORK + first)]
    for offset in others:
        code += [(_TO_INDEX, 0), (_LOAD, _NETWORK + offset), (_XOR_INDEX, 0)]
    code += [(_TIMES, _SPREAD), (_SHIFT, 16), (_MODULO, processes), (_RETURN, 0)]
    instructions = array("B", b"".join(struct.pack("@HBBI", name, 0, 0, k) for name, k in code))
    program = struct.pack("@HP", len(code), instructions.buffer_info()[0])
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH, program)


def processes_of(addresses: Iterable[str], processes: int) -> frozenset[int]:
    """Return the processes that these addresses reach, numbered in the order of their start."""
    met = set()
    for address in addresses:
        packed = ipaddress.ip_address(address).packed
        mixed = 0
        for (word,) in struct.iter_unpack("!I", packed):
            mixed ^= word
        met.add((mixed * _SPREAD % 2**32 >> 16) % processes)
    return frozenset(met)
