"""Assigns each client address to one of the processes that share a port.

Each process counts rate limits separately. By default, the system distributes connections by
address and port, so that a VM with many connections would reach every process and multiply its
limit. A VM with several addresses has a share of its limit in each process that its addresses
reach.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ATTACH = 51  # SO_ATTACH_REUSEPORT_CBPF, which the socket module does not define

# Linux's classic packet filters (linux/filter.h, linux/bpf_common.h) load fields of a packet's
# network header from offsets above this value.
_NETWORK = 0xFFF0_0000  # SKF_NET_OFF
_LOAD, _XOR_INDEX, _TO_INDEX = 0x20, 0xAC, 0x07
_TIMES, _SHIFT, _MODULO, _RETURN = 0x24, 0x74, 0x94, 0x16

_SOURCES = {socket.AF_INET: (12,), socket.AF_INET6: (8, 12, 16, 20)}
"""Offsets of the words of the source address."""
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
