"""Who may call the operator API: bearer tokens, this machine, and no pages of other sites.

Identity only; what an operator may do is not decided in here.
"""

from __future__ import annotations

import hmac
import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forewarn.errors import CallerError
from forewarn.operator_api.connections import ADMIT
from forewarn.operator_api.responses import refusal
from forewarn.protocol import timestamps
from forewarn.tokens import RefusedTokens, read_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from forewarn.clock import Clock
    from forewarn.settings import OperatorSettings

#: Addresses and host names of which it is remembered whether they are this machine's.
ADDRESSES_REMEMBERED = 256
#: The operator that a caller on this machine is, where it needs no token.
LOCAL = "local"
#: The header in which every answer says what the service's clock shows.
TIME_HEADER = b"forewarn-time"


class TokenMissing(CallerError):
    """A call without a token where one is needed."""

    code = "token-missing"
    status = 401
    message = "The operator API needs a bearer token."
    advice = "Set FOREWARN_TOKEN, or send `Authorization: Bearer TOKEN`."


class HostRefused(CallerError):
    """A call without a token that names this machine by a name it need not have."""

    code = "host-refused"
    status = 403
    message = "Calls without a token must name this machine as localhost, not as {host!r}."
    advice = "Use http://127.0.0.1 or http://localhost, or send a token."


class CrossSite(CallerError):
    """A call that a page of another site has made a browser send."""

    code = "cross-site"
    status = 403
    message = "The operator API takes no calls from pages of {origin!r}."
    advice = "Call it from its own pages, or from programs."


class Authenticator:
    """Lets through who may call, says who it is, and stamps every answer with the time.

    In `scope["state"]` stand the actor, `operator NAME at ADDRESS`, and the operator, `NAME`; both
    are empty for callers of public routes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        settings: OperatorSettings,
        public: frozenset[str],
        page: frozenset[str] = frozenset(),
    ) -> None:
        """Guard an application.

        Args:
            app: what to guard.
            clock: the service's time.
            settings: tokens, and whether this machine needs one.
            public: paths anybody may read.
            page: paths of the page's files, which hold nothing secret: links lead to them.

        Raises:
            TokenInvalid: a token of the settings cannot be one.
        """
        self._app = app
        self._clock = clock
        self._tokens = read_tokens(settings.tokens)
        self._open_on_loopback = settings.open_on_loopback
        self._public = public
        self._page = page
        self._refused = RefusedTokens(settings.max_refused_tokens, clock.now_ms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                now = timestamps.iso8601(self._clock.now_ms()).encode()
                message["headers"] = [*message.get("headers", ()), (TIME_HEADER, now)]
            await send(message)

        state = scope.setdefault("state", {})
        try:
            name = state["operator"] = self._operator(scope)
        except CallerError as error:
            await refusal(error)(scope, receive, stamped)
            return
        state["actor"] = f"operator {name}{_place(scope)}" if name else ""
        if name and ADMIT in state:
            state[ADMIT]()
        await self._app(scope, receive, stamped)

    def _operator(self, scope: Scope) -> str:
        if scope["path"] in self._page:
            return ""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        check_site(headers)
        authorization = _text(headers, b"authorization")
        if authorization:
            return self._owner(authorization, _address(scope))
        if self._open_on_loopback and _is_loopback(scope):
            host = host_name(_text(headers, b"host"))
            if not names_loopback(host):
                raise HostRefused(host=host)
            return LOCAL
        if scope["path"] in self._public:
            return ""
        raise TokenMissing

    def _owner(self, authorization: str, address: str) -> str:
        scheme, _, given = authorization.partition(" ")
        found = ""
        for name, token in self._tokens.items():  # all: the time taken reveals nothing
            if hmac.compare_digest(token, given.strip().encode("latin-1")):
                found = name
        if scheme.lower() != "bearer":
            found = ""
        self._refused.judge(found, address)
        return found


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def check_site(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a page of another site has made a browser send.

    Raises:
        CrossSite: it is such a call.
    """
    origin = _text(headers, b"origin")
    if origin:
        split = urlsplit(origin) if origin.count("/") == 2 else urlsplit("")
        if not split.netloc or split.netloc.lower() != _text(headers, b"host").lower():
            raise CrossSite(origin=origin)
    if headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}:
        raise CrossSite(origin=origin or "another site")


def _address(scope: Scope) -> str:
    """Return where a call comes from; empty for a Unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _place(scope: Scope) -> str:
    address = _address(scope)
    return f" at {address}" if address else ""


def _is_loopback(scope: Scope) -> bool:
    address = _address(scope)  # at a Unix socket the file's permissions say who may connect
    return not address or is_loopback_address(address)


def names_loopback(host: str) -> bool:
    """Whether a host name is this machine's; empty is."""
    return host.lower() in {"", "localhost"} or is_loopback_address(host)


def host_name(host: str) -> str:
    """Return a `Host` header's name or address, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(ADDRESSES_REMEMBERED)
def is_loopback_address(text: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
