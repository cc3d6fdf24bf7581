"""Who may call the operator API: bearer tokens, this machine, and no pages of other sites.

Identity only; what an operator may do is not decided in here.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forewarn.errors import CallerError
from forewarn.operator_api.connections import ADMIT, source_of
from forewarn.operator_api.responses import refusal
from forewarn.protocol import timestamps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from forewarn.clock import Clock
    from forewarn.settings import OperatorSettings

log = logging.getLogger("forewarn.operator")

#: A shorter token can be guessed; `python3 -c "import secrets; print(secrets.token_hex())"`.
TOKEN_LENGTH_MIN = 16
#: Addresses and host names of which it is remembered whether they are this machine's.
ADDRESSES_REMEMBERED = 256
#: Sources of unknown tokens, and operators' sources, that are remembered.
SOURCES_REMEMBERED = 10_000
#: How long unknown tokens are counted, in milliseconds.
REFUSED_WINDOW_MS = 60_000
#: The operator that a caller on this machine is, where it needs no token.
LOCAL = "local"
#: The header in which every answer says what the service's clock shows.
TIME_HEADER = b"forewarn-time"
_FACT = {"action": "token-refused"}


class TokenInvalid(CallerError):
    """A token in the settings that cannot be one."""

    code = "token-invalid"
    message = "Entry {number} of [operator] tokens {problem}."
    advice = "Write tokens as NAME:TOKEN, each name once, each token 16 characters or more."


class TokenMissing(CallerError):
    """A call without a token where one is needed."""

    code = "token-missing"
    status = 401
    message = "The operator API needs a bearer token."
    advice = "Set FOREWARN_TOKEN, or send `Authorization: Bearer TOKEN`."


class TokenWrong(CallerError):
    """A call with a token that nobody has."""

    code = "token-wrong"
    status = 401
    message = "This bearer token is not known here."
    advice = "Look at FOREWARN_TOKEN and at `tokens` in the service's [operator] settings."


class TooManyRefused(CallerError):
    """A source that has sent many unknown tokens."""

    code = "too-many-refused"
    status = 429
    message = "{source} has sent too many unknown tokens."
    advice = "Correct the token, wait a minute, then try again."


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
        self._refused = RefusedTokens(settings.max_refused_tokens, clock)

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


class RefusedTokens:
    """Who has sent tokens that nobody has, and how many: logged with the address, and limited.

    Above the limit a token is not looked at, right or wrong, but for operators who have called
    from there before: a stranger behind the same proxy does not lock them out.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        """Refuse nobody yet; `limit` unknown tokens may come from one source in a minute."""
        self._limit = limit
        self._clock = clock
        #: By source: since when they are counted, in ms since the epoch UTC, and how many.
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        #: Operators seen, with the source each called from; the latest last.
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def judge(self, operator: str, address: str) -> None:
        """Let a call through whose token is an operator's; empty: nobody's.

        Raises:
            TokenWrong: it is nobody's.
            TooManyRefused: too many from there were.
        """
        source = source_of(address)
        if operator and (operator, source) in self._seen:
            return
        now_ms = self._clock.now_ms()
        since_ms, count = self._counts.get(source, (now_ms, 0))
        if not 0 <= now_ms - since_ms < REFUSED_WINDOW_MS:
            since_ms, count = now_ms, 0
        if count >= self._limit:
            raise TooManyRefused(source=source or "The Unix socket")
        if operator:
            self._seen[operator, source] = None
            _forget(self._seen)
            return
        self._counts[source] = (since_ms, count + 1)
        self._counts.move_to_end(source)
        _forget(self._counts)
        more = "; no more is looked at for a minute" if count + 1 == self._limit else ""
        log.warning(
            "unknown token from %s refused%s", address or "a Unix socket", more, extra=_FACT
        )
        raise TokenWrong


def _forget(known: OrderedDict[Any, Any]) -> None:
    if len(known) > SOURCES_REMEMBERED:
        known.popitem(last=False)


def read_tokens(written: tuple[str, ...]) -> dict[str, bytes]:
    """Return tokens by their owners' names, from `NAME:TOKEN`.

    Raises:
        TokenInvalid: one cannot be a token.
    """
    tokens: dict[str, bytes] = {}
    for number, each in enumerate(written, 1):
        name, separator, token = each.partition(":")
        problem = ""
        if not (separator and name and name.isprintable() and len(name) <= 64):
            problem = "has no name before a colon"
        elif name in tokens:
            problem = "has a name that is there before"
        elif len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
            problem = (
                f"has a token that is shorter than {TOKEN_LENGTH_MIN} characters or not plain text"
            )
        if problem:
            raise TokenInvalid(number=number, problem=problem)
        tokens[name] = token.encode()
    return tokens


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
