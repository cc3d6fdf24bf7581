"""Evicted and deleted VMs: leaves their requests unanswered, or resets their connections.

In the public cloud, such VMs no longer exist, so a client that still runs is left to wait: some
clients end after an answer 404 or a reset.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from forewarn_base.settings import MetadataSettings
from forewarn_core.fleet.topology import Vm
from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.identity import Callers, Peer
from forewarn_metadata.replication.messages import Caller, DocumentChange

#: Longest time without an answer before the connection is reset, in real seconds.
HANG_S_MAX = 120.0


class GoneVmAnswer(Enum):
    """Kinds of responses to an evicted or deleted VM."""

    NOT_FOUND = "404"
    HANG = "hang"
    REFUSE = "refuse"


_DISTURBANCES = {
    GoneVmAnswer.HANG: InjectedFault(hold_s=HANG_S_MAX),
    GoneVmAnswer.REFUSE: InjectedFault(reset=True),
}


class GoneVms:
    """Recognises requests of former VMs; used only on the event loop."""

    def __init__(self, answer: GoneVmAnswer, settings: MetadataSettings, vms: Iterable[Vm]) -> None:
        self._disturbance = _DISTURBANCES[answer]
        self._callers = Callers(settings)
        self.know(vms)

    def know(self, vms: Iterable[Vm]) -> None:
        """Add VMs, to be recognised even after their removal; O(VMs)."""
        callers = tuple(
            Caller(
                vm=vm.name,
                group=vm.group,
                view=vm.group,
                addresses=vm.addresses,
                interface=vm.interface,
                instance_id=vm.instance_id,
            )
            for vm in vms
        )
        self._callers.apply(DocumentChange(sequence=0, callers=callers))

    def forget(self, names: Iterable[str]) -> None:
        """Remove VMs that an operator has removed from the fleet."""
        self._callers.apply(DocumentChange(sequence=0, gone=tuple(names)))

    def fault_for(self, peer: Peer, request: HttpRequest) -> InjectedFault | None:
        """Return the fault to inject into a request of a former VM, or None."""
        gone = self._callers.find(peer, request).caller
        return None if gone is None else self._disturbance
