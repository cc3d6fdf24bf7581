"""Discovery: where the metadata service may be, and by which name it knows this VM.

A VM outside a virtual network learns the address by DHCP, as option 245, which is read from the
leases other programs keep. Source: C-8.
"""

from __future__ import annotations

import os

from forewarn.agent.sdk.dialogue import FIXED_ENDPOINT
from forewarn.errors import ArgumentInvalid

ENDPOINT_VARIABLE = "FOREWARN_ENDPOINT"
LEASES = (
    "/run/systemd/netif/leases",
    "/var/lib/dhcp",
    "/var/lib/dhclient",
    "/var/lib/NetworkManager",
    "/var/lib/waagent",
)
LEASE_BYTES_MAX = 1024 * 1024  # dhclient appends to its file for as long as the VM lives
LEASE_FILES_MAX = 64
MARKS = ("OPTION_245=", "unknown-245 ", "unknown_245 ", "private-245 ", "option-245 ")
"""How systemd-networkd, dhclient and NetworkManager write the option."""


def endpoints(given: str = "", *, leases: tuple[str, ...] = LEASES) -> tuple[str, ...]:
    """Return the endpoints to try, in order: a given one, the environment's, or the known ones.

    Args:
        given: The endpoint of the configuration; wins where not empty.
        leases: Directories in which leases are looked for.

    Raises:
        ArgumentInvalid: the given one is not text.
    """
    if not isinstance(given, str):
        raise ArgumentInvalid(name="endpoint", wanted="text", found=given)
    chosen = given or os.environ.get(ENDPOINT_VARIABLE, "")
    if chosen:
        return (chosen,)
    urls = [f"http://{address}" for address in option_245(leases)]
    return tuple(dict.fromkeys([FIXED_ENDPOINT, *urls]))


def option_245(leases: tuple[str, ...] = LEASES) -> tuple[str, ...]:
    """Return the addresses that DHCP option 245 gives in the leases, the newest last."""
    addresses: dict[str, None] = {}
    for directory in leases:
        try:
            names = sorted(os.listdir(directory))  # noqa: PTH208  `pathlib` is too heavy
        except OSError:
            continue
        for name in names[:LEASE_FILES_MAX]:
            for line in _lines(f"{directory}/{name}"):
                address = _address(line)
                if address:
                    addresses[address] = None
    return tuple(addresses)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as lease:  # noqa: PTH123  the same
            return lease.read(LEASE_BYTES_MAX).splitlines()
    except OSError:
        return []


def _address(line: str) -> str:
    """Return the address a line of a lease gives, or nothing: `a8:3f:81:10` or `a83f8110`."""
    mark = next((mark for mark in MARKS if mark in line), "")
    if not mark:
        return ""
    text = line.partition(mark)[2].strip(" ;\"'=").replace(":", "")
    try:
        octets = bytes.fromhex(text)
    except ValueError:
        return ""
    return ".".join(str(octet) for octet in octets) if len(octets) == 4 else ""
