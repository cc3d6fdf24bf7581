"""Identifies the calling VM: by address, by a proxy's signed headers, or by name in the emulator.

An unrecognised caller is unknown; the responder answers it. Source: S-6.
"""

from __future__ import annotations

import hmac
import socket
from typing import TYPE_CHECKING, NamedTuple

from forewarn.protocol.identity import CallerIdentity

if TYPE_CHECKING:
    from forewarn.metadata.http.request import HttpRequest
    from forewarn.replication.messages import Caller, DocumentChange
    from forewarn.settings import MetadataSettings

UNIX = "unix"
"""Peer address of every Unix-socket connection; the socket's path is the interface."""


class Peer(NamedTuple):
    """The peer of a connection."""

    address: str
    interface: str = ""


class IdentifiedVm(NamedTuple):
    """The caller, and how it was identified."""

    caller: Caller | None
    by_peer: bool
    """Whether the connection alone decided, so that its next request comes from the same VM."""
    signed: bool = False
    """Whether a proxy's signature vouches for the caller."""
    behind: Peer | None = None
    """The address and provider id that a metadata provider reports for the caller."""


class Callers:
    """All VMs that may ask."""

    def __init__(self, settings: MetadataSettings) -> None:
        """Start without any VM."""
        self._settings = settings
        self._secret = settings.proxy_secret.encode()
        self._proxies = frozenset(canonical(each) for each in settings.proxy_addresses)
        self._by_vm: dict[str, Caller] = {}
        #: VMs by address alone, if it is valid on any interface, as nearly all are.
        self._by_address: dict[Peer | str, str] = {}
        self._by_instance_id: dict[str, str] = {}
        self._with_interface = 0

    @property
    def interfaces_matter(self) -> bool:
        """Whether some VM is known only on one interface."""
        return self._with_interface > 0

    @property
    def count(self) -> int:
        """Return how many VMs may ask."""
        return len(self._by_vm)

    def apply(self, change: DocumentChange) -> bool:
        """Update the VMs that may ask; return whether any identity changed."""
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
            )  # must not fall back to the default VM
        for caller in moved:
            if caller.vm in self._by_vm:
                self._remove(caller.vm)
        for caller in moved:
            self._add(caller)
        return bool(gone or moved)

    def named(self, vm: str) -> Caller | None:
        """Return the VM of this name; None if it does not exist."""
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
        """Whether many VMs may ask from this address, each naming itself."""
        return self._settings.vm_by_query or peer.address in self._proxies

    def by_peer(self, peer: Peer) -> Caller | None:
        """Return the VM at this address, first on this interface, then on any."""
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
        """Return the VM with this address at a provider, whose id is its interface."""
        if not self._vouches(provider, request.headers.get("x-metadata-provider-signature", "")):
            return IdentifiedVm(None, by_peer=False)
        # Several addresses mean that the VM has sent one, too, so the two are indistinguishable.
        address = canonical(request.headers.get("x-forwarded-for", "").strip())
        behind = Peer(address, provider)
        vm = self._by_address.get(behind, "") if provider else ""
        return IdentifiedVm(self._by_vm.get(vm), by_peer=False, signed=True, behind=behind)

    def _vouches(self, claimed: str, signature: str) -> bool:
        """Whether a signature is valid."""
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
    """Return how a VM was identified. Source: S-6."""
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
