"""Identifies the calling VM: by address, by a proxy's signed headers, or by name in the emulator.

The responder answers unknown callers. Source: S-6.
"""

from __future__ import annotations

import hmac
import socket
from typing import NamedTuple

from forewarn_base.protocol.identity import CallerIdentity
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.replication.messages import Caller, DocumentChange

#: Peer address of all connections to Unix sockets; their interface is the socket's path.
UNIX = "unix"


class Peer(NamedTuple):
    """The peer of a connection."""

    address: str
    interface: str = ""


class IdentifiedVm(NamedTuple):
    """The calling VM, and the kind of its identification."""

    caller: Caller | None
    #: Whether the connection identifies the VM, so that its next request has the same caller.
    by_peer: bool
    #: Whether a proxy's signature confirms the caller.
    signed: bool = False
    #: The address and provider id that a metadata provider reports for the caller.
    behind: Peer | None = None


class Callers:
    """All VMs that may send requests."""

    def __init__(self, settings: MetadataSettings) -> None:
        self._settings = settings
        self._secret = settings.proxy_secret.encode()
        self._proxies = frozenset(canonical(each) for each in settings.proxy_addresses)
        self._by_vm: dict[str, Caller] = {}
        #: VMs whose address is valid on any interface, by address; nearly all VMs.
        self._by_address: dict[Peer | str, str] = {}
        self._by_instance_id: dict[str, str] = {}
        self._with_interface = 0

    @property
    def interfaces_matter(self) -> bool:
        """Whether the address of some VM is valid only on one interface."""
        return self._with_interface > 0

    @property
    def count(self) -> int:
        """Return the number of VMs."""
        return len(self._by_vm)

    def apply(self, change: DocumentChange) -> bool:
        """Apply changed VMs; return whether the identity of a caller changed."""
        gone = change.gone
        if change.whole:
            named = {caller.vm for caller in change.callers}
            gone = tuple(vm for vm in self._by_vm if vm not in named)
        moved = [each for each in change.callers if self._by_vm.get(each.vm) != each]
        for vm in gone:
            addresses = self._addresses_of(vm) if self._settings.default_vm else ()
            self._remove(vm)
            self._by_address.update(
                dict.fromkeys(addresses, "")
            )  # an unknown name must not select the default VM
        for caller in moved:
            if caller.vm in self._by_vm:
                self._remove(caller.vm)
        for caller in moved:
            self._add(caller)
        return bool(gone or moved)

    def named(self, vm: str) -> Caller | None:
        """Return the VM of a name; None for an unknown name."""
        return self._by_vm.get(vm)

    def find(self, peer: Peer, request: HttpRequest) -> IdentifiedVm:
        """Return the caller of a request. Source: S-6."""
        if self._settings.vm_by_query and "vm" in request.query:
            return IdentifiedVm(self._by_vm.get(request.query["vm"]), by_peer=False)
        if peer.address in self._proxies:
            claimed = request.headers.get("x-instance-id")
            if claimed is not None:
                signature = request.headers.get("x-instance-id-signature", "")
                return self._signed(claimed, signature)
            provider = request.headers.get("x-metadata-provider")
            if provider is not None:
                return self._behind_provider(provider, request)
            return IdentifiedVm(self.by_peer(peer), by_peer=False)
        return IdentifiedVm(self.by_peer(peer), by_peer=True)

    def is_shared(self, peer: Peer) -> bool:
        """Return whether several VMs may use this address and identify themselves in headers."""
        return self._settings.vm_by_query or peer.address in self._proxies

    def by_peer(self, peer: Peer) -> Caller | None:
        """Return the VM with the peer's address on its interface, or on any interface."""
        vm = self._by_address.get(peer) if peer.interface else None
        if vm is None:
            vm = self._by_address.get(peer.address, self._settings.default_vm)
        return self._by_vm.get(vm)

    def _signed(self, claimed: str, signature: str) -> IdentifiedVm:
        if not self._vouches(claimed, signature):
            return IdentifiedVm(None, by_peer=False)
        vm = self._by_instance_id.get(claimed, "")
        return IdentifiedVm(self._by_vm.get(vm), by_peer=False, signed=True)

    def _behind_provider(self, provider: str, request: HttpRequest) -> IdentifiedVm:
        """Return the VM with this address behind a provider; the provider's id is the interface."""
        if not self._vouches(provider, request.headers.get("x-metadata-provider-signature", "")):
            return IdentifiedVm(None, by_peer=False)
        # With several addresses, the VM may have sent one, so that the addresses are not reliable.
        address = canonical(request.headers.get("x-forwarded-for", "").strip())
        behind = Peer(address, provider)
        vm = self._by_address.get(behind, "") if provider else ""
        return IdentifiedVm(self._by_vm.get(vm), by_peer=False, signed=True, behind=behind)

    def _vouches(self, claimed: str, signature: str) -> bool:
        """Return whether a proxy's signature is valid."""
        right = hmac.digest(self._secret, claimed.encode("latin-1"), "sha256").hex()
        signature_bytes = signature.lower().encode("latin-1")
        return bool(self._secret) and hmac.compare_digest(right.encode(), signature_bytes)

    def _add(self, caller: Caller) -> None:
        self._by_vm[caller.vm] = caller
        self._with_interface += bool(caller.interface)
        for address in caller.addresses:
            self._by_address[_place(address, caller.interface)] = caller.vm
        if caller.instance_id:
            self._by_instance_id[caller.instance_id] = caller.vm

    def _addresses_of(self, vm: str) -> tuple[Peer | str, ...]:
        caller = self._by_vm.get(vm)
        if caller is None:
            return ()
        return tuple(_place(each, caller.interface) for each in caller.addresses)

    def _remove(self, vm: str) -> None:
        caller = self._by_vm.pop(vm, None)
        if caller is None:
            return
        self._with_interface -= bool(caller.interface)
        for address in caller.addresses:
            place = _place(address, caller.interface)
            if self._by_address.get(place) == vm:
                del self._by_address[place]
        if self._by_instance_id.get(caller.instance_id) == vm:
            del self._by_instance_id[caller.instance_id]


def _place(address: str, interface: str) -> Peer | str:
    """Return a VM's address and interface as a look-up key."""
    return Peer(canonical(address), interface) if interface else canonical(address)


def known_by(identified: IdentifiedVm, peer: Peer) -> CallerIdentity:
    """Return the kind of a VM's identification. Source: S-6."""
    assert identified.caller is not None
    if identified.behind is not None:
        peer = identified.behind
    elif identified.signed:
        return CallerIdentity(instance_id=identified.caller.instance_id)
    for address in identified.caller.addresses:
        if canonical(address) == peer.address:
            return CallerIdentity(address, identified.caller.interface)
    return CallerIdentity()


def canonical(address: str) -> str:
    """Return an IP address in the system's form, without scope; other text unchanged.

    An IPv4-mapped IPv6 address becomes the IPv4 address.
    """
    bare = address.partition("%")[0] if "%" in address else address
    if ":" not in bare:
        return bare
    try:
        packed = socket.inet_pton(socket.AF_INET6, bare)
    except OSError:
        return address
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)
