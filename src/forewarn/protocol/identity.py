"""How a VM was recognised, from the metadata node to the core. Not read by the agent."""

from __future__ import annotations

from typing import NamedTuple


class CallerIdentity(NamedTuple):
    """How a node knew a VM: as its record had it there. All empty: by no record. Source: S-6.

    The record may have changed since: an address may be another VM's by now.
    """

    #: One of the VM's addresses, as its record writes it.
    address: str = ""
    #: The interface on which that address counts; empty: any.
    interface: str = ""
    #: What a proxy signed for it.
    instance_id: str = ""
