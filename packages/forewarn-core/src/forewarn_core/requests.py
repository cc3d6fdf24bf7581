"""Requests of VMs that the control plane answers, from the connection to the core.

A request has one shape in memory, on its way between machines, and as a stimulus of the core. The
module is apart from `messages`, because the core must not import asyncio.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from forewarn_base.protocol.identity import CallerIdentity


class ApprovalRequest(msgspec.Struct, frozen=True, tag="approve", omit_defaults=True):
    """The StartRequests of one POST from a VM, which approve all or none of these events. A-1."""

    vm: str
    #: Event ids in upper case, without duplicates.
    event_ids: tuple[str, ...]
    #: Source of the request, recorded in history; empty: none.
    address: str
    #: Kind of the VM's identification at the node, which the VM's current record must confirm.
    identity: CallerIdentity = CallerIdentity()
    #: Hosts of the forwarding node, if the VM is on another node now: the VM must have been on one
    #: of these hosts when the event could be approved. The control plane sets this field.
    #:
    #: Source: M-3, M-5.
    node_hosts: tuple[str, ...] = ()

    def from_hosts(self, hosts: tuple[str, ...]) -> ApprovalRequest:
        """Return the approval as forwarded by a node of these hosts."""
        return msgspec.structs.replace(self, node_hosts=hosts)


class EnableRequest(msgspec.Struct, frozen=True, tag="enable"):
    """The first poll of a VM, which enables the VM's group. Source: B-1."""

    vm: str


class OutcomeRequest(msgspec.Struct, frozen=True, tag="outcome"):
    """A VM asks for the outcome of its event. Source: X-1."""

    vm: str
    event_id: str


#: A VM's request, which the control plane answers.
Request: TypeAlias = ApprovalRequest | EnableRequest | OutcomeRequest


class RequestAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a VM's request: an approval, a first poll, or a query for an outcome.

    An approval is `accepted` only when it is durable. Source: A-6.
    """

    accepted: bool
    #: Reason of a refusal in one sentence, for the response's body.
    error: str = ""
    #: The requested outcome, as JSON; empty: the VM has no such event. Source: X-1.
    outcome: str = ""
