"""Authentication of the operator API: tokens, local users, and no cross-site requests.

A browser that has signed in sends the issuer's token in a cookie. Permissions are checked when a
request is dispatched to its route. Source: P-1.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from urllib.parse import urlsplit

from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn_base.audit_chain import CallRecord
from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError, PeerError
from forewarn_base.host_port import host_of_header, without_brackets
from forewarn_base.protocol import timestamps
from forewarn_base.settings import OperatorSettings
from forewarn_base.values import replace, value
from forewarn_core.access.roles import BUILT_IN, Authority, Principal
from forewarn_core.access.tokens import AccessToken, id_of, proved
from forewarn_metadata.tokens import RefusedTokens, TokenWrong
from forewarn_server.api.connections import ADMIT, NAMES, SAFE, USER
from forewarn_server.api.oidc import IssuerUnavailable, Login, Oidc
from forewarn_server.api.responses import refusal
from forewarn_server.api.standby import FORWARDED_HEADER, ORIGIN_HEADER, Forwarder, proves_relay
from forewarn_server.control.readable import ReadableControl
from forewarn_store import Store

#: Maximum number of cached results of the checks for local addresses and host names.
ADDRESSES_REMEMBERED = 256
#: Characters of an unknown token that are recorded: the length of a token's id.
TOKEN_SHOWN = 15
#: Shortest time between two writes of a token's last use, in milliseconds.
USE_WRITTEN_MS = 600_000
#: The built-in user of local callers in an emulator.
LOCAL = "local"
#: Members of `scope["state"]`: the caller, the name and address of the caller for history, and a
#: function that checks whether the caller is still permitted.
CALLER, ACTOR, STILL_PERMITTED = "caller", "actor", "still"
#: Headers of which a request has at most one. The readers of the server take the first or the last.
SINGLE = (b"host", b"authorization", b"origin", b"idempotency-key")
#: Headers by which proxies name themselves or their callers.
OF_PROXIES = (b"x-forwarded-for", b"forwarded", b"via")
#: Cookie with the issuer's token of a browser that has signed in.
SESSION = "forewarn"
#: Prefix of cookies that browsers accept only with TLS, and send only to the host that set them.
SECURE = "__Host-"
#: Paths for calendar programs, which use HTTP Basic (RFC 7617); the password is a token.
CALENDARS = frozenset({"/v1/declarations.ics"})
#: What the answer 401 of such a path asks for.
BASIC = (b"www-authenticate", b'Basic realm="Forewarn", charset="UTF-8"')
#: Response header with the time of the service's clock.
TIME_HEADER = b"forewarn-time"
#: Headers of an answer to a known caller: the last commit in the answer, and the time in ms since
#: that commit was known to be the newest. A read with the first header requires at least that
#: commit. Source: H-4.
GENERATION_HEADER, AGE_HEADER = b"forewarn-generation", b"forewarn-age-ms"


class TokenMissing(CallerError):
    """The call has no token, but one is required."""

    code = "token-missing"
    status = 401
    message = "The operator API requires a bearer token."
    advice = (
        "Set FOREWARN_TOKEN, or send `Authorization: Bearer TOKEN`. On the service's machine, "
        "root needs no token at the Unix socket: --server unix:/run/forewarn/operator.sock."
    )


class HostRefused(CallerError):
    """The call has no token, and its `Host` header is not a loopback name."""

    code = "host-refused"
    status = 403
    message = "Calls without a token must name this machine as localhost, not as {host!r}."
    advice = "Use http://127.0.0.1 or http://localhost, or send a token."


class HeaderRepeated(CallerError):
    """The call has a header twice that may occur once."""

    code = "header-repeated"
    message = "The call has several headers {header}."
    advice = "Send the header once. A proxy may have added another one."


class ProxyRefused(CallerError):
    """The call has no token, and came through a proxy, whose own identity it must not use."""

    code = "proxy-refused"
    status = 403
    message = "Calls without a token must not come through a proxy, as the header {header} shows."
    advice = "Send a token through the proxy, or call the service's address directly."


class CrossSite(CallerError):
    """A browser sent the call for a page of another site."""

    code = "cross-site"
    status = 403
    message = "The operator API accepts no calls from pages of {origin!r}."
    advice = "Call the operator API from its own pages, or from programs."


class NotPermitted(CallerError):
    """The caller lacks the permission that the call requires."""

    code = "not-permitted"
    status = 403
    message = "{principal} may not do this: the permission `{permission}` is required."
    advice = "`forewarn whoami` shows your roles; an admin can grant others."


class ActiveAsked(CallerError):
    """A follower cannot forward a change, because the caller has no token."""

    code = "active-asked"
    status = 421
    message = (
        "This process is a follower and cannot forward the call of {principal} without a token."
    )
    advice = "Send the call to the active process ({url}), or use a token. Nothing was changed."


class StateOutdated(PeerError):
    """This process has not read its store in time, so its state is outdated or missing."""

    code = "state-outdated"
    status = 503
    message = (
        "This process has not reached its store for the term of a lease; its state may be outdated."
    )
    advice = "Ask another control plane, or wait until the store answers: see GET /ready."


@value
class ApiCaller:
    """An identified caller."""

    principal: Principal
    authority: Authority
    #: Whether a token or session in the call proves the identity, rather than the connection.
    in_call: bool = False
    #: Whether the caller still has the same permissions.
    still: Callable[[], bool] = lambda: True


class Principals:
    """Identifies callers by token, certificate or Unix user, and callers of an emulator."""

    def __init__(
        self,
        loop: ReadableControl,
        store: Store,
        *,
        clock: Clock,
        settings: OperatorSettings,
        oidc: Oidc | None = None,
    ) -> None:
        self.loop = loop
        self._store = store
        self.clock = clock
        self._oidc = oidc
        self.open_on_loopback = settings.open_on_loopback
        self._refused = RefusedTokens(settings.max_refused_tokens, clock.now_ms)
        #: Token id -> when its last use was last stored, ms since the epoch UTC.
        self._used_ms: dict[str, int] = {}

    def by_token(self, given: str, address: str) -> AccessToken:
        """Return the valid token of a call.

        Raises:
            TokenWrong, TooManyRefused: the token is not valid.
        """
        now_ms = self.clock.now_ms()
        token = proved(given, self.loop.token, now_ms)
        self._judge(token.principal if token else "", given, address)
        assert token is not None, "judge refuses unknown tokens"
        if now_ms - self._used_ms.get(token.id, 0) >= USE_WRITTEN_MS:
            self._used_ms[token.id] = now_ms
            write = partial(self._write_use, token.id, now_ms)
            asyncio.get_running_loop().run_in_executor(None, write)
        return token

    def bearer(self, token: AccessToken) -> ApiCaller:
        """Return the caller who sent a valid token."""
        authority = Authority(token.principal, token=token.id)
        return ApiCaller(token.bearer, authority, in_call=True, still=partial(self.is_good, token))

    def _judge(
        self, principal: str, secret: str, address: str, error: TokenWrong | None = None
    ) -> None:
        """Refuse and record a call without a principal.

        Raises:
            StateOutdated: this process cannot know whether the principal exists.
            TooManyRefused: the source has sent too many unknown tokens.
            TokenWrong: the principal is empty; `error` if that is given.
        """
        if not principal and not self.loop.knows_callers:
            raise StateOutdated
        try:
            self._refused.judge(principal, address)
        except TokenWrong as wrong:
            shown = error or wrong
            now_ms = self.clock.now_ms()
            # A token that has expired, or whose secret is wrong, has a known id.
            token = self.loop.token(id_of(secret))
            call = CallRecord(now_ms, "", address, "", secret[:TOKEN_SHOWN], shown.code)
            call = replace(call, token=token.id if token else "")
            if self.loop.may_record(call):
                self.loop.record(call)
            raise shown from None

    async def by_login(self, token: str, address: str) -> Login:
        """Return the login of a call with a token of the issuer.

        Raises:
            TokenWrong, TooManyRefused: the token is not valid.
            IssuerUnavailable: the issuer's keys are not known.
        """
        login, error = None, None
        try:
            login = await self._oidc.login(token) if self._oidc else None
        except TokenWrong as wrong:
            error = wrong
        self._judge(login.name if login else "", token, address, error)
        assert login is not None, "judge refuses unknown tokens"
        return login

    async def by_session(self, token: str) -> Login | None:
        """Return a browser's login; None if the login has expired or cannot be checked."""
        with contextlib.suppress(IssuerUnavailable, TokenWrong):
            return await self._oidc.login(token) if self._oidc and token else None
        return None

    def signed_in(self, login: Login) -> ApiCaller:
        """Return the caller with a login of the issuer."""
        principal = self._principal_of(login)
        authority = Authority(login.name, names=(login.name, *login.groups))
        still = partial(self._is_signed_in, login, principal)
        return ApiCaller(principal, authority, in_call=True, still=still)

    def _principal_of(self, login: Login) -> Principal:
        """Return a login's principal, with its own bindings and those of its groups."""
        bindings: set[tuple[str, str]] = set()
        for name in (login.name, *login.groups):
            bindings.update(self.loop.principal(name).bindings)
        return Principal(login.name, tuple(sorted(bindings)))

    def _is_signed_in(self, login: Login, principal: Principal) -> bool:
        """Return whether a login is still valid and its principal has the same bindings."""
        current = self._oidc is not None and self._oidc.is_current(login)
        return current and self._principal_of(login) == principal

    def by_given_out(self, token_id: str, given: str, address: str) -> AccessToken:
        """Return the sent operator token, or the operator token of an issued access token.

        Raises:
            TokenWrong, TooManyRefused: the token is not valid.
        """
        token = self.loop.token(token_id)
        return token if token and self.is_good(token) else self.by_token(given, address)

    def is_good(self, token: AccessToken) -> bool:
        """Whether a token is still valid."""
        unchanged = self.loop.token(token.id) == token
        return unchanged and token.is_accepted(self.clock.now_ms())

    def _bound(self, principal: Principal) -> ApiCaller:
        """Return the caller whom the connection identifies as a principal with bindings."""
        authority = Authority(principal.name, names=(principal.name,))
        return ApiCaller(principal, authority, still=lambda: self._is_bound(principal))

    def _is_bound(self, principal: Principal) -> bool:
        return self.loop.principal(principal.name) == principal

    def _write_use(self, token_id: str, now_ms: int) -> None:
        with contextlib.suppress(ForewarnError):
            self._store.note_use(token_id, now_ms)

    def by_certificate(self, names: Sequence[str]) -> ApiCaller:
        """Return a certificate's caller: the first name with bindings, or the first name."""
        principals = [self.loop.principal(name) for name in names]
        return self._bound(next((each for each in principals if each.bindings), principals[0]))

    def by_user(self, uid: int) -> ApiCaller:
        """Return the caller at the other end of a Unix socket; the service's user is admin."""
        import pwd  # noqa: PLC0415 - there is none on Windows, nor such sockets

        try:
            name = f"user:{pwd.getpwuid(uid).pw_name}"
        except KeyError:
            name = f"user:{uid}"
        if uid in {0, os.geteuid()}:
            return built_in(name)
        return self._bound(self.loop.principal(name))


def built_in(name: str) -> ApiCaller:
    """Return a caller who is a built-in admin."""
    return ApiCaller(Principal(name, BUILT_IN), Authority(name, built_in=True))


class Authenticator:
    """Authenticates callers and adds the service's time to every response.

    `scope["state"]` contains the caller (None for callers of public routes) and the actor for
    history, `operator NAME at ADDRESS`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Principals,
        public: re.Pattern[str],
        page: frozenset[str] = frozenset(),
        forwarder: Forwarder | None = None,
    ) -> None:
        """Guard an application.

        Args:
            app: the guarded application.
            callers: identifies the caller.
            public: matches paths that need no token.
            page: paths of the page's files, which need no token.
            forwarder: forwards calls to the active process; None: this process is active.
        """
        self._app = app
        self._forwarder = forwarder
        self._callers = callers
        self._public = public
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return

        state, loop = scope.setdefault("state", {}), self._callers.loop
        fresh = loop.freshness()

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                now = timestamps.iso8601(self._callers.clock.now_ms()).encode()
                stamps = {TIME_HEADER: now}
                if state.get(CALLER):
                    state_of = fresh if scope["method"] in SAFE else loop.freshness()
                    stamps[GENERATION_HEADER] = b"%d" % state_of.generation
                    stamps[AGE_HEADER] = b"%d" % loop.age_ms(state_of)
                headers = [*message.get("headers", ())]
                present = dict(headers)  # the active process has added the headers already
                headers += ((name, text) for name, text in stamps.items() if name not in present)
                if message["status"] == 401 and scope["path"] in CALENDARS:
                    headers.append(BASIC)
                message["headers"] = headers
            await send(message)

        forwarder = self._forwarder
        forwards = forwarder is not None and forwarder.wants(scope)
        try:
            caller = await self._caller(scope)
            if forwarder and forwards and caller and not caller.in_call:
                name, url = caller.principal.name, forwarder.url or "none now"
                raise ActiveAsked(principal=name, url=url)
        except ForewarnError as error:
            may_be_known = _may_be_known(error, scope)
            if not (may_be_known and self._answers_itself(error, scope)):
                refused = forwarder if forwarder and may_be_known else refusal(error)
                await refused(scope, receive, stamped)
                return
            caller = None
        state[CALLER], state[ACTOR] = caller, ""
        if caller:
            state[ACTOR] = f"operator {caller.principal.name}{_place(scope)}"
            state[STILL_PERMITTED] = caller.still
            state.get(ADMIT, lambda: None)()
        await (forwarder if forwarder and forwards else self._app)(scope, receive, stamped)

    def _answers_itself(self, error: ForewarnError, scope: Scope) -> bool:
        """Return whether a call of an unknown caller is about this process, such as its health.

        The health of another process would deceive a load balancer. Source: H-4.
        """
        forwarder = self._forwarder
        if not self._public.fullmatch(scope["path"]) or (forwarder and forwarder.wants(scope)):
            return False
        return forwarder is not None or isinstance(error, StateOutdated)

    async def _caller(self, scope: Scope) -> ApiCaller | None:
        """Return the caller; None for a caller of a public route without credentials.

        Raises:
            ForewarnError: the caller is refused.
        """
        check_single(scope["headers"])
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if ORIGIN_HEADER in headers and proves_relay(headers, self._callers.loop.lease_token()):
            scope["client"] = (_text(headers, ORIGIN_HEADER), 0)
        if scope["path"] in self._page:
            return None
        check_site(headers)
        authorization = _text(headers, b"authorization")
        if authorization:
            token = _token_of(authorization, scope["path"])
            if token.count(".") == 2:
                login = await self._callers.by_login(token, _address(scope))
                return self._callers.signed_in(login)
            return self._callers.bearer(self._callers.by_token(token, _address(scope)))
        session = await self._callers.by_session(session_of(scope))
        if session:
            return self._callers.signed_in(session)
        caller = self._by_connection(scope, headers)
        if caller is None and not self._public.fullmatch(scope["path"]):
            raise TokenMissing
        return caller

    def _by_connection(self, scope: Scope, headers: Mapping[bytes, bytes]) -> ApiCaller | None:
        """Return the caller whom the connection identifies; None: it identifies nobody.

        The connection of another process of the store, or of a proxy on this machine, identifies
        that process and not its callers.

        Raises:
            HostRefused, ProxyRefused: the call comes from a page with a foreign name, or through a
                proxy.
        """
        state, callers = scope["state"], self._callers
        if FORWARDED_HEADER in headers:
            return None
        if NAMES in state:
            return callers.by_certificate(state[NAMES])
        is_open = callers.open_on_loopback and _is_loopback(scope)
        if not is_open and USER not in state:
            return None
        header = proxy_header(headers)
        if header:
            if self._public.fullmatch(scope["path"]):
                return None
            raise ProxyRefused(header=header)
        if not is_open:
            return callers.by_user(state[USER])
        host = host_of_header(_text(headers, b"host"))
        if not names_loopback(host):
            raise HostRefused(host=host)
        return built_in(LOCAL)


def _may_be_known(error: ForewarnError, scope: Scope) -> bool:
    """Return whether the active process may know a caller whom this process refuses."""
    unknown = isinstance(error, TokenWrong | IssuerUnavailable | StateOutdated)
    return unknown or (isinstance(error, TokenMissing) and bool(session_of(scope)))


def check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request with a repeated header that the service's readers could read differently.

    Raises:
        HeaderRepeated: the request has such a header.
    """
    counts = Counter(name for name, _ in headers if name in SINGLE)
    for name, count in counts.items():
        if count > 1:
            raise HeaderRepeated(header=name.decode().title())


def proxy_header(headers: Mapping[bytes, bytes]) -> str:
    """Return a header that shows that a request came through a proxy; empty: none."""
    return next((name.decode().title() for name in OF_PROXIES if name in headers), "")


def session_of(scope: Scope) -> str:
    """Return the token in a browser's cookie; empty without a valid cookie.

    For a change, the cookie is valid only with the header `Origin`, which `check_site` has
    compared. Browsers send `Origin` with every change, so another site's page cannot use the
    cookie.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    if scope["method"] not in {"GET", "HEAD"} and not headers.get(b"origin"):
        return ""
    cookies = cookie_parser(_text(headers, b"cookie"))
    host = host_of_header(_text(headers, b"host"))
    return cookies.get(SECURE + SESSION) or (names_loopback(host) and cookies.get(SESSION)) or ""


def cookie_name(name: str, origin: str) -> str:
    """Return a cookie's name, with a prefix against cookies of other hosts and plain HTTP."""
    return f"{SECURE}{name}" if origin.startswith("https:") else name


def _token_of(authorization: str, path: str) -> str:
    """Return the token in a header; empty if it has none of a form that the path takes."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic" and path in CALENDARS:
        with contextlib.suppress(ValueError):
            return b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
        return ""
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def check_site(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a request that a browser sent on behalf of another site's page.

    Raises:
        CrossSite: another site's page sent the request.
    """
    origin = _text(headers, b"origin")
    if origin:
        split = urlsplit(origin) if origin.count("/") == 2 else urlsplit("")
        if not split.netloc or split.netloc.lower() != _text(headers, b"host").lower():
            raise CrossSite(origin=origin)
    if headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}:
        raise CrossSite(origin=origin or "another site")


def _address(scope: Scope) -> str:
    """Return the caller's address; empty for a Unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _place(scope: Scope) -> str:
    address = _address(scope)
    return f" at {address}" if address else ""


def _is_loopback(scope: Scope) -> bool:
    address = _address(scope)  # file permissions restrict the callers of a Unix socket
    return not address or is_loopback_address(address)


def names_loopback(host: str) -> bool:
    """Return whether a `Host` header names a local host. An empty header counts as local."""
    return host in {"", "localhost"} or is_loopback_address(without_brackets(host))


@lru_cache(ADDRESSES_REMEMBERED)
def is_loopback_address(text: str) -> bool:
    """Return whether an address belongs to this machine."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
