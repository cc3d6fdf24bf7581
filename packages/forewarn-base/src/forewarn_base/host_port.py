"""Addresses of the form `HOST:PORT`, and the `Host` header of requests."""

from __future__ import annotations


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `HOST:PORT` or `[IPV6]:PORT`; the host has no brackets.

    Raises:
        ValueError: the host is missing, or the port is not a number below 65,536.
    """
    host, _, port = address.rpartition(":")
    name = without_brackets(host)
    if not (name and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise ValueError(f"{address!r} is not HOST:PORT")
    return name, int(port)


def joined_address(host: str, port: int | None) -> str:
    """Return `HOST:PORT` or `[IPV6]:PORT`; without a port only the host."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def host_of_header(header: str) -> str:
    """Return the name or address in a `Host` header, in lower case and without the port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and (port.isdigit() or not port) else header).lower()


def host_of_url(host: str) -> str:
    """Return the address that a host in a URL names.

    The zone of an IPv6 address follows `%25` in a URL, and `%` elsewhere (RFC 6874); a plain `%`
    is accepted in a URL, too.
    """
    return host.replace("%25", "%", 1) if ":" in host else host


def without_zone(host: str) -> str:
    """Return an address without its zone, which only this machine knows."""
    return host.partition("%")[0] if ":" in host else host


def without_brackets(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_domain(host: str) -> bool:
    """Return whether a host is a domain name, rather than an address or a name without a dot.

    Pages of other sites have domain names. A page whose domain was made to resolve to this machine
    (DNS rebinding) sends this domain in `Host`.
    """
    if host.startswith("[") or "." not in host:
        return False
    parts = host.split(".")
    return len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts)
