"""Discovery of the possible addresses of the metadata service.

A VM outside a virtual network receives the address in DHCP option 245. This module reads the option
from the lease files of DHCP clients. Source: C-8.
"""

from __future__ import annotations

import os

from forewarn.agent.sdk.dialogue import FIXED_ENDPOINT
from forewarn_base.errors import ArgumentInvalid

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
#: Notations of option 245 in the lease files of systemd-networkd, dhclient and NetworkManager.
MARKS = (
    "OPTION_245=",
    *(f"{word}{dash}245" for word in ("unknown", "private", "option") for dash in "-_"),
)
ADDRESS_OCTETS = 4
HEX_DIGITS, OCTAL_DIGITS = frozenset("0123456789abcdefABCDEF"), frozenset("01234567")


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
    r"""Return the address in a line of a lease file; an empty string without one.

    Its forms are `a83f8110`, `a8:3f:81:10`, and those of dhclient alone: octets below 16 have one
    digit (`a:0:0:c8`), and printable octets are a text (`"d@4!"`, with escapes such as `\012`).
    """
    mark = next((mark for mark in MARKS if mark in line), "")
    if not mark:
        return ""
    text = line.partition(mark)[2].strip(" ;=\t")
    octets = _octets(text.strip("\"'"))
    if not octets and len(text) > 1 and text[0] == text[-1] == '"':
        octets = _octets_of_text(text[1:-1])
    return ".".join(map(str, octets)) if len(octets) == ADDRESS_OCTETS else ""


def _octets(text: str) -> list[int]:
    """Return the octets of hexadecimal digits; empty for another text."""
    parts = text.split(":") if ":" in text else [text[at : at + 2] for at in range(0, len(text), 2)]
    if len(parts) != ADDRESS_OCTETS:
        return []
    if not all(1 <= len(part) <= 2 and HEX_DIGITS.issuperset(part) for part in parts):
        return []
    return [int(part, 16) for part in parts]


def _octets_of_text(text: str) -> list[int]:
    r"""Return the octets of an address as text, with escapes such as `\012` and `\"`."""
    octets: list[int] = []
    at = 0
    while at < len(text) and len(octets) <= ADDRESS_OCTETS:
        escaped = text[at] == "\\"
        digits = text[at + 1 : at + 4] if escaped else ""
        octal = len(digits) == 3 and OCTAL_DIGITS.issuperset(digits)
        octets.append(
            int(digits, 8) if octal else ord(text[at + escaped : at + escaped + 1] or "0")
        )
        at += 4 if octal else 1 + escaped
    return octets if all(octet < 256 for octet in octets) else []
