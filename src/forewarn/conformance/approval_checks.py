"""Checks of invalid approvals, which a server must refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.conformance.checks import NOBODYS, approval_of, check, demand, expect_status
from forewarn.protocol.approvals import APPROVALS_MAX

if TYPE_CHECKING:
    from forewarn.conformance.exchange import ServiceUnderTest


@check("A-2", "a malformed approval is answered 400")
def _malformed_approval(target: ServiceUnderTest) -> None:
    for body in (
        *(b"", b"{", b"[]", b"{}", b'{"StartRequests":{}}', b'{"StartRequests":[]}'),
        *(b'{"StartRequests":[{}]}', b'{"StartRequests":[{"EventId":7}]}'),
    ):
        expect_status(target.post(body), 400, of=f"POST {body.decode()!r}")
    body = approval_of(NOBODYS)
    expect_status(target.post(body, headers=()), 400, of="POST without the Metadata header")


@check("A-3", "an approval of an unknown event is refused")
def _unknown(target: ServiceUnderTest) -> None:
    reply = target.post(approval_of(NOBODYS))
    demand(400 <= reply.status < 500, f"the answer has status {reply.status}")


@check("A-5", "an approval that is too large is refused")
def _too_large(target: ServiceUnderTest) -> None:
    body = approval_of(*[NOBODYS[:-3] + f"{number:03}" for number in range(APPROVALS_MAX + 1)])
    expect_status(target.post(body), 413, 400, of=f"POST of {APPROVALS_MAX + 1} requests")
