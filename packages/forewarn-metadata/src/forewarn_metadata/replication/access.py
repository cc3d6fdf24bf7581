"""Checks by the settings whether a metadata node may follow the feed for its hosts.

A node's certificate or token proves its name. The node's request can only reduce its permitted
hosts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from forewarn_base.errors import CallerError
from forewarn_metadata.tokens import RefusedTokens, TokenWrong, TooManyRefused

#: Entry of the setting for nodes with the name of their host.
EVERY_HOST = "*"

#: Maximum number of wrong tokens from one source in a minute, as at the operator API.
REFUSED_TOKENS_MAX = 20

NAME_LENGTH_MAX = 253
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LENGTH_MAX - 1}}}")


class NodeRefused(CallerError):
    """A metadata node requested hosts that it may not serve."""

    code = "node-refused"
    status = 403
    message = "Metadata node {name} is refused: {reason}."
    advice = (
        "Check the host of this node. The setting [feed] hosts lists each node's permitted hosts."
    )


class NodeUnproved(NodeRefused):
    """A caller proves no node's name; the sentence has nothing of the caller's own choice."""

    code = "node-unproved"
    message = "A caller at the feed is refused: {reason}."


def _never(_name: str, _token: str) -> bool:
    return False


class NodeAccess:
    """The permitted nodes, by name."""

    def __init__(
        self,
        hosts: Sequence[str],
        prove: Callable[[str, str], bool] = _never,
        may_read: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Parse `NAME=HOST,HOST` or `*`; `prove` checks a node's token, `may_read` a person's.

        Raises:
            ValueError: an entry of `hosts` has another form.
        """
        self.each_host = EVERY_HOST in hosts
        self.hosts: dict[str, frozenset[str]] = {}
        #: Function that returns whether a token belongs to a node.
        self.prove = prove
        #: Function that returns whether a token permits a person to read every node's part.
        self.may_read = may_read
        for entry in hosts:
            if entry != EVERY_HOST:
                name, equals, listed = entry.partition("=")
                if not (equals and listed.strip() and _NAME.fullmatch(name)):
                    raise ValueError(f"has {entry!r}, which is not NAME=HOST,HOST or *")
                self.hosts[name] = frozenset(host.strip() for host in listed.split(","))
        self._refused = RefusedTokens(REFUSED_TOKENS_MAX, _now_ms)
        #: Hosts in an entry, which have no node of their own.
        self._listed = frozenset[str]().union(*self.hosts.values())

    def admit(
        self, name: str, wanted: AbstractSet[str], proof: NodeProof, *, address: str
    ) -> frozenset[str]:
        """Return the permitted hosts among those that a node requested. Source: M-5.

        Raises:
            NodeRefused: the node's name is not proved, or the node requests other nodes' hosts.
        """
        if not _NAME.fullmatch(name):
            raise NodeUnproved(reason="the node's name is not valid")
        if proof.names:
            if name not in proof.names:
                shown = ", ".join(sorted(proof.names))
                raise NodeRefused(name=name, reason=f"the node's certificate belongs to {shown}")
        else:
            self._check_token(name, proof.token, address)
        allowed = self.permitted(name)
        hosts = frozenset(wanted) or allowed
        if not hosts or not hosts <= allowed:
            named = ", ".join(sorted(hosts - allowed)[:5]) or "any"
            raise NodeRefused(name=name, reason=f"the node may not serve host {named}")
        return hosts

    def still_proves(self, name: str, proof: NodeProof) -> bool:
        """Return whether an admitted node's token has not been revoked. Source: P-4."""
        return bool(proof.names) or self.prove(name, proof.token)

    def permitted(self, name: str) -> frozenset[str]:
        """Return the hosts that a node may serve."""
        return self.hosts.get(name, frozenset((name,)) if self.each_host else frozenset())

    def expected(self, hosts: AbstractSet[str]) -> Iterator[str]:
        """Yield the permitted nodes of these hosts.

        O(entries of the settings + read names).
        """
        for name, served in self.hosts.items():
            if not hosts.isdisjoint(served):
                yield name
        if self.each_host:
            for host in hosts:
                if host not in self._listed and host not in self.hosts:
                    yield host

    def _check_token(self, name: str, token: str, address: str) -> None:
        is_right = self.prove(name, token)
        try:
            self._refused.judge(name if is_right else "", address)
        except TokenWrong as wrong:
            raise self._unproved(name, "no certificate or token proves the node's name") from wrong
        except TooManyRefused as refused:
            raise self._unproved(name, "too many wrong tokens came from its address") from refused

    def _unproved(self, name: str, reason: str) -> NodeRefused:
        """Return a refusal with the name of a node in the settings, or without a name."""
        if name in self.hosts:
            return NodeRefused(name=name, reason=reason)
        return NodeUnproved(reason=reason)


class NodeProof(NamedTuple):
    """What proves a node's name."""

    #: Names in a verified certificate; empty: no certificate.
    names: frozenset[str] = frozenset()
    token: str = ""


class TlsFiles(NamedTuple):
    """TLS files in PEM."""

    certificate: str = ""
    key: str = ""
    #: CA certificate that signs the other end's certificates.
    ca: str = ""


def names_of(certificate: Mapping[str, object]) -> frozenset[str]:
    """Return the names in a verified certificate: its common name and its DNS names."""
    subject: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject", ())  # type: ignore[assignment]  # as `getpeercert` documents
    also: Iterable[tuple[str, str]] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
    names = {text for part in subject for kind, text in part if kind == "commonName"}
    return frozenset(names | {text for kind, text in also if kind == "DNS"})


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
