"""Who may follow the feed, and for which hosts: by certificate or token, as the settings say.

No connection may go in here. A node's name is the one its certificate or its token proves; what
it says of itself may only narrow what it is allowed.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from forewarn.errors import CallerError

if TYPE_CHECKING:
    from forewarn.replication.messages import Follow

EVERY_HOST = "*"
"""As an entry of the setting: the node of each host has the host's name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PROOF_MISSING = "it has proved its name neither by a certificate nor by a token"


class NodeRefused(CallerError):
    """A metadata node asks for what is not its own."""

    code = "node-refused"
    status = 403
    message = "Metadata node {name} is refused: {reason}."
    advice = "Look who runs it; which hosts it may serve is set in [feed] hosts."


class NodeAccess:
    """The nodes that may come, by name."""

    def __init__(self, hosts: Sequence[str], tokens: Sequence[str] = ()) -> None:
        """Read `NAME=HOST,HOST` or `*`, and `NAME:TOKEN`.

        Raises:
            ValueError: one is neither.
        """
        self.each_host = EVERY_HOST in hosts
        self.hosts: dict[str, frozenset[str]] = {}
        self._tokens: dict[str, str] = {}
        for entry in hosts:
            if entry != EVERY_HOST:
                name, equals, listed = entry.partition("=")
                if not (equals and listed.strip() and _NAME.fullmatch(name)):
                    raise ValueError(f"has {entry!r}, which is not NAME=HOST,HOST or *")
                self.hosts[name] = frozenset(host.strip() for host in listed.split(","))
        for entry in tokens:
            name, colon, token = entry.partition(":")
            if not (colon and token and _NAME.fullmatch(name)):
                raise ValueError("has an entry that is not NAME:TOKEN")
            self._tokens[name] = token

    def admit(self, said: Follow, certificate: Mapping[str, object] | None) -> frozenset[str]:
        """Return the hosts a node may serve, no more than it asked for. Source: M-5.

        Raises:
            NodeRefused: it is not who it says, or asks for hosts of others.
        """
        name = said.name
        if not _NAME.fullmatch(name):
            raise NodeRefused(name=repr(name[:80]), reason="its name cannot be one")
        if certificate:
            if name not in names_of(certificate):
                shown = ", ".join(sorted(names_of(certificate)))
                raise NodeRefused(name=name, reason=f"its certificate is that of {shown}")
        else:
            token = self._tokens.get(name, "")
            if not token or not hmac.compare_digest(token.encode(), said.token.encode()):
                raise NodeRefused(name=name, reason=_PROOF_MISSING)
        allowed = self.hosts.get(name, frozenset((name,)) if self.each_host else frozenset())
        wanted = frozenset(said.hosts) or allowed
        if not wanted or not wanted <= allowed:
            hosts = ", ".join(sorted(wanted - allowed)[:5]) or "any"
            raise NodeRefused(name=name, reason=f"it may not serve host {hosts}")
        return wanted

    def expected(self, hosts: Iterable[str]) -> dict[str, set[str]]:
        """Return the nodes that serve some of these hosts, as far as the settings say."""
        wanted = frozenset(hosts)
        found: dict[str, set[str]] = {}
        for name, served in self.hosts.items():
            if served & wanted:
                found[name] = set(served & wanted)
        if self.each_host:
            known = {host for served in found.values() for host in served}
            found.update((host, {host}) for host in wanted - known - self.hosts.keys())
        return found


class TlsFiles(NamedTuple):
    """Files in PEM."""

    certificate: str = ""
    key: str = ""
    ca: str = ""
    """Who signs the other end's certificates."""


def names_of(certificate: Mapping[str, object]) -> frozenset[str]:
    """Return the names a verified certificate is for: its common name and its DNS names."""
    subject: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject", ())  # type: ignore[assignment]  # as `getpeercert` documents
    also: Iterable[tuple[str, str]] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
    names = {text for part in subject for kind, text in part if kind == "commonName"}
    return frozenset(names | {text for kind, text in also if kind == "DNS"})
