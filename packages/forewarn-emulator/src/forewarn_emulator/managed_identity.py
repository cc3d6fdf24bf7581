"""The managed identity of an emulated VM: tokens for Azure Resource Manager. Source: Z-3."""

from __future__ import annotations

from collections.abc import Callable

from forewarn_base.clock import SystemClock
from forewarn_metadata.endpoint.http.response import Response, compact
from forewarn_server.adfs_tokens import LIFETIME_S, TokenIssuer

#: Longest resource name in a token, in characters.
RESOURCE_LENGTH_MAX = 256


def token_giver(key: str) -> Callable[[str, str], Response]:
    """Return a function that issues a token for a VM and a resource."""
    issuer = TokenIssuer(key.encode(), lambda _: "")

    def issue(vm: str, resource: str) -> Response:
        audience = resource[:RESOURCE_LENGTH_MAX]
        now_s = SystemClock().now_ms() // 1000
        token = {
            "access_token": issuer.issue(vm, audience=audience, issuer="forewarn"),
            "client_id": vm,
            "expires_in": str(LIFETIME_S),
            "expires_on": str(now_s + LIFETIME_S),
            "ext_expires_in": str(LIFETIME_S),
            "not_before": str(now_s),
            "resource": audience,
            "token_type": "Bearer",
        }
        return Response(body=compact(token))

    return issue
