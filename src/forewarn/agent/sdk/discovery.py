"""Discovery of the possible addresses of the metadata service.

A VM outside a virtual network receives the address in DHCP option 245. This module reads the option
from the lease files of DHCP clients. Source: C-8.
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
LEASE_BYTES_MAX = 1024 * 1024  # limit of a lease file; dhclient appends to its file without limit
LEASE_FILES_MAX = 64
MARKS = ("OPTION_245=", "unknown-245 ", "unknown_245 ", "private-245 ", "option-245 ")
"""Notations of option 245 in the lease files of systemd-networkd, dhclient and NetworkManager."""


def endpoints(given: str = "", *, leases: tuple[str, ...] = LEASES) -> tuple[str, ...]:
    """Return the possible endpoints in order: from `given`, the environment, or known addresses.

    Raises:
        ArgumentInvalid: `given` is not text.
    """
    if not isinstance(given, str):
        raise ArgumentInvalid(name="endpoint", wanted="text", found=given)
    chosen = given or os.environ.get(ENDPOINT_VARIABLE, "")
    if chosen:
        return (chosen,)
    urls = [f"http://{address}" for address in option_245(leases)]
    return tuple(dict.fromkeys([FIXED_ENDPOINT, *urls]))


def option_245(leases: tuple[str, ...] = LEASES) -> tuple[str, ...]:
    """Return the addresses from option 245 in the lease files, ordered by age, newest last."""
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
    """Return the address in a line such as `a8:3f:81:10` or `a83f8110`, or an empty string."""
    mark = next((mark for mark in MARKS if mark in line), "")
    if not mark:
        return ""
    text = line.partition(mark)[2].strip(" ;\"'=").replace(":", "")
    try:
        octets = bytes.fromhex(text)
    except ValueError:
        return ""
    return ".".join(str(octet) for octet in octets) if len(octets) == 4 else ""
