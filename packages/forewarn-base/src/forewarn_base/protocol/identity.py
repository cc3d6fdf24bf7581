"""The identity of a calling VM, which a metadata node passes to the core."""

from __future__ import annotations

from typing import NamedTuple


class CallerIdentity(NamedTuple):
    """The values of a VM's record by which a node recognised it; all empty: no record. Source: S-6.

    The record may have changed since: the address may belong to another VM now.
    """

    #: One of the VM's addresses, in the form of its record.
    address: str = ""
    #: The interface to which the address is limited; empty: any.
    interface: str = ""
    #: The VM's id, as signed by a proxy.
    instance_id: str = ""
