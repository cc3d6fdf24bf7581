"""The command line's client of the operator API.

The client uses only the standard library. The client ignores proxy settings, because the operator
API has a private address.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
    RemoteDisconnected,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from forewarn_base.clock import SystemClock
from forewarn_base.errors import CallerError, PeerError, reason_of
from forewarn_base.host_port import host_of_url
from forewarn_base.http_client import UnixConnection
from forewarn_base.ids import Ids
from forewarn_base.protocol import timestamps
from forewarn_base.urls import is_protected, shown_url
from forewarn_server.cli.defaults import DEFAULT_SERVER

if TYPE_CHECKING:
    import socket
    import ssl

    from forewarn_base.settings import Settings
    from forewarn_server.cli.named_servers_file import NamedServer
    from forewarn_server.cli.parameters import ServerOptions

#: Parsed JSON of the schemas at /v1/docs.
Answer: TypeAlias = Any

#: Longest wait for an answer, in seconds; longer than the server's limit.
ANSWER_TIMEOUT_S = 60.0
#: Longest silence of a stream, in seconds; the server sends a keep-alive every 15 s.
SILENCE_S_MAX = 60.0
#: Largest answer read, in bytes.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
#: Longest line of a stream, in bytes.
LINE_BYTES_MAX = 16 * 1024 * 1024
#: Time limit for asking whether a port speaks TLS, in seconds.
TLS_PROBE_S_MAX = 2.0
#: Attempts for a changing request whose connection breaks.
ATTEMPTS_MAX = 3
#: Failures after which the server may have executed the request.
_BROKEN_OFF = (ConnectionResetError, BrokenPipeError, RemoteDisconnected, IncompleteRead)
#: Statuses of refusals for lack of an identity or a permission.
_UNAUTHORISED = frozenset({401, 403})
_UNAUTHENTICATED = 401
_LOGIN_AGAIN = "Your login has ended: sign in again with `forewarn login`."
#: End of the advice of such a refusal at a Unix socket, which also identifies its callers.
_IDENTITY_REPLACED = (
    " The token (FOREWARN_TOKEN or --token-file) replaces your identity as a user of this machine;"
    " leave it out to use that identity."
)
#: Warning before a token is sent to another machine without TLS.
_EXPOSED = (
    "warning: your token goes to {server} unencrypted, where others on the network can read it;"
    " use https:// (`[operator] certificate`), or a tunnel to the Unix socket"
)
#: An address without its scheme, such as localhost:8470.
_BARE_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}/?")
#: Servers about which this process has already warned.
_WARNED: set[str] = set()
#: Response headers with the server's time, and with the last commit that the response includes.
TIME_HEADER, GENERATION_HEADER = "Forewarn-Time", "Forewarn-Generation"


class ServerAddressInvalid(CallerError):
    """The server address is malformed."""

    code = "server-address-invalid"
    message = "{address!r} is not an address of an operator API."
    advice = "Use http://HOST:PORT, https://HOST:PORT or unix:PATH."


class TokenUnreadable(CallerError):
    """The token file cannot be read."""

    code = "token-unreadable"
    message = "The token in {path} cannot be read: {reason}."
    advice = "Name a file that contains only the token."


class CertificateUnreadable(CallerError):
    """A TLS certificate or key is unusable."""

    code = "certificate-unreadable"
    message = (
        "A file of FOREWARN_CA, FOREWARN_CERTIFICATE or FOREWARN_KEY cannot be used: {reason}."
    )
    advice = "Name files in PEM format."


class ServerUnreachable(PeerError):
    """The server does not answer."""

    code = "server-unreachable"
    message = "The operator API at {server} cannot be reached: {reason}."
    advice = (
        "Start it (`forewarn emulate` or `forewarn serve`), or set its address with --server,"
        " FOREWARN_SERVER or `forewarn context use`."
    )


class ServerUntrusted(ServerUnreachable):
    """The server's TLS certificate is not signed by a trusted CA, or names another host."""

    code = "server-untrusted"
    message = "The certificate of the operator API at {server} is not trusted: {reason}."
    advice = "Set FOREWARN_CA to the file of the CA certificate that signed it."


class ServerForeign(PeerError):
    """The server at the address is not an operator API."""

    code = "server-foreign"
    message = "The server at {server} is not Forewarn's operator API: {reason}."
    advice = "Check the address; the metadata service for VMs has another port."


class ApiRefused(CallerError):
    """The server refused the call, with its code, message and advice."""

    code = "server-refused"
    message = "{message}"
    advice = "{advice}"

    def __init__(self, *, status: int, code: str, message: str, advice: str) -> None:
        super().__init__(message=message, advice=advice)
        self.status = status
        self.code = code


class NameEmpty(CallerError):
    """A name or id is empty."""

    code = "name-empty"
    message = "A name or id is empty."
    advice = "Name the object, and check that your shell variables are set."


class ApiClient:
    """A client of one operator API that opens a new connection for each request."""

    def __init__(self, server: str = DEFAULT_SERVER, token: str = "") -> None:
        """Create a client that has no connection yet.

        Args:
            server: `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
            token: bearer token; empty: none.

        Raises:
            ServerAddressInvalid: the address of the server is malformed.
        """
        self.server = server
        #: Time of the server's last answer by the server's clock, ms since the epoch UTC.
        self.now_ms = 0
        #: Newest commit in any answer; later reads return this commit or a newer one. Source: H-4.
        self._generation = 0
        self._token = token
        #: File with the CA certificate of the server; empty: FOREWARN_CA.
        self.ca = ""
        #: Whether the token is that of `forewarn login`.
        self.is_login = False
        #: Longest wait for an answer, in seconds.
        self.timeout_s = ANSWER_TIMEOUT_S
        unix = server.startswith("unix:") and sys.platform != "win32"
        if not unix and not shown_url(server).startswith(("http://", "https://")):
            raise ServerAddressInvalid(address=server)
        self._split = urlsplit(server)

    @property
    def is_exposed(self) -> bool:
        """Whether requests cross a network unencrypted."""
        return self._split.scheme == "http" and not is_protected(self.server)

    def get(self, path: str, **query: object) -> Answer:
        """Send a GET and return the answer; omit query values that are None or empty."""
        return self._answer("GET", path + _query(query))

    def health(self) -> Answer:
        """Return the service's health; its status is 503 while it is not ready.

        Raises:
            ServerUnreachable: the server did not answer.
            ServerForeign: another program answered.
        """
        status, content = self._read("GET", "/v1/health", body=b"", kind="", key="")
        try:
            health = json.loads(content)
            health["ready"], health["state"]  # another program returns neither member
        except (ValueError, LookupError, TypeError) as error:
            reason = f"it answered {status}"
            raise ServerForeign(server=self.server, reason=reason) from error
        return health

    def history_end(self) -> int:
        """Return the sequence number of the last entry of history; 0 if history is empty."""
        entries = self.get("/v1/history", order="newest", limit=1)["entries"]
        return int(entries[0]["sequence"]) if entries else 0

    def post(self, path: str, form: Mapping[str, object] | None = None, *, key: str = "") -> Answer:
        """POST a form and return the answer; omit members that are None.

        Requests with the same `key` take effect once; empty: this request has a key of its own.
        """
        return self._answer("POST", path, _body(form or {}), key=key)

    def put(self, path: str, form: Mapping[str, object]) -> Answer:
        """PUT a form and return the answer; omit members that are None."""
        return self._answer("PUT", path, _body(form))

    def delete(self, path: str) -> Answer:
        """Send a DELETE and return the answer."""
        return self._answer("DELETE", path)

    def send(
        self, method: str, path: str, *, body: bytes = b"", kind: str = "", key: str = ""
    ) -> bytes:
        """Send a request and return the body of the answer.

        Args:
            method: the HTTP method.
            path: the path with its query.
            body: the request body.
            kind: media type of the body; for a GET, the accepted media type.
            key: idempotency key of a POST; empty: a new one.

        Raises:
            ApiRefused: the server refused.
            ServerUnreachable: the server did not answer.
            ServerForeign: another program answered.
        """
        if method == "POST":
            key = key or Ids().token("idempotency")
        left = ATTEMPTS_MAX if key else 1
        while True:
            left -= 1
            try:
                status, content = self._read(method, path, body=body, kind=kind, key=key)
            except ServerUnreachable as error:
                if left and isinstance(error.__cause__, _BROKEN_OFF):
                    continue  # an idempotency key ensures a single execution
                if isinstance(error.__cause__, ConnectionRefusedError) or not self._speaks_tls():
                    raise
                reason = f"the port speaks TLS: use https://{self._split.netloc}"
                raise ServerUnreachable(server=self.server, reason=reason) from error
            if status >= 300:
                self._refuse(status, content)
            return content

    def _read(
        self, method: str, path: str, *, body: bytes, kind: str, key: str
    ) -> tuple[int, bytes]:
        answer, channel = self._ask(method, path, body, kind, key=key)
        try:
            return answer.status, answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(server=self.server, reason=reason_of(error)) from error
        finally:
            _close(answer, channel)

    def lines(
        self, path: str, *, until_ms: int = 0, **query: object
    ) -> Iterator[dict[str, Any] | None]:
        """Yield the lines of a stream as they arrive, and None for each keep-alive.

        The last line gives the reason why the stream ended.

        Args:
            path: the path of the stream.
            until_ms: time to stop, by this machine's clock, ms since the epoch UTC; 0: never.
            query: see `get`.
        """
        answer, channel = self._ask("GET", path + _query(query), b"", "application/jsonl")
        try:
            if answer.status >= 300:
                self._refuse(answer.status, answer.read(ANSWER_BYTES_MAX))
            while not answer.isclosed():  # Python 3.14 closes the response after the last byte
                left_s = (until_ms - local_now_ms()) / 1000 if until_ms else SILENCE_S_MAX
                if left_s <= 0:
                    return
                channel.settimeout(min(left_s, SILENCE_S_MAX))
                line = answer.readline(LINE_BYTES_MAX)
                if not line:
                    break
                yield json.loads(line) if line.strip() else None
            raise ServerUnreachable(server=self.server, reason="it broke off")
        except TimeoutError as error:
            if not until_ms or local_now_ms() < until_ms:
                raise ServerUnreachable(server=self.server, reason="it fell silent") from error
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(server=self.server, reason=reason_of(error)) from error
        except ValueError as error:
            raise ServerForeign(server=self.server, reason="its answer is not JSON") from error
        finally:
            _close(answer, channel)

    def _ask(
        self, method: str, path: str, body: bytes, kind: str, *, key: str = ""
    ) -> tuple[HTTPResponse, socket.socket]:
        """Send a request; return the response, and the socket for setting timeouts."""
        headers = {"Connection": "close", "User-Agent": "forewarn"}
        if kind:
            headers["Content-Type" if body else "Accept"] = kind
        if key:
            headers["Idempotency-Key"] = key
        if self._generation:
            headers[GENERATION_HEADER] = str(self._generation)
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request(method, path, body or None, headers)
            channel: socket.socket = connection.sock
            answer = connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            # ssl.SSLCertVerificationError, without importing ssl
            if verification := getattr(error, "verify_message", ""):
                raise ServerUntrusted(server=self.server, reason=verification) from error
            raise ServerUnreachable(server=self.server, reason=reason_of(error)) from error
        except BaseException:
            connection.close()
            raise
        try:
            self.now_ms = timestamps.parse(answer.headers.get(TIME_HEADER, ""))
        except ValueError as error:
            _close(answer, channel)
            reason = f"it answered {answer.status}"
            raise ServerForeign(server=self.server, reason=reason) from error
        seen = answer.headers.get(GENERATION_HEADER, "0")
        self._generation = max(self._generation, int(seen) if seen.isdecimal() else 0)
        return answer, channel

    def _connection(self) -> HTTPConnection:
        split = self._split
        if split.scheme == "unix":
            return UnixConnection(split.path, self.timeout_s)
        assert split.hostname is not None
        host = host_of_url(split.hostname)
        if split.scheme == "https":
            return HTTPSConnection(host, split.port, timeout=self.timeout_s, context=_tls(self.ca))
        return HTTPConnection(host, split.port, timeout=self.timeout_s)

    def _speaks_tls(self) -> bool:
        """Whether the port of an http:// address completes a TLS handshake."""
        import ssl  # noqa: PLC0415 - http.client has it loaded

        if self._split.scheme != "http" or self._split.hostname is None:
            return False
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # nothing is sent
        host = host_of_url(self._split.hostname)
        connection = HTTPSConnection(host, self._split.port, timeout=TLS_PROBE_S_MAX, context=tls)
        try:
            connection.connect()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        return True

    def _answer(self, method: str, path: str, body: bytes = b"", *, key: str = "") -> Answer:
        kind = "application/json" if body else ""
        content = self.send(method, path, body=body, kind=kind, key=key)
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise ServerForeign(server=self.server, reason="its answer is not JSON") from error

    def _refuse(self, status: int, content: bytes) -> NoReturn:
        try:
            error = json.loads(content)["error"]
            by_token = status in _UNAUTHORISED and self._token and self._split.scheme == "unix"
            refusal = ApiRefused(
                status=status,
                code=str(error["code"]),
                message=str(error["message"]),
                advice=_LOGIN_AGAIN
                if self.is_login and status == _UNAUTHENTICATED
                else f"{error['advice']}{_IDENTITY_REPLACED if by_token else ''}",
            )
        except (ValueError, LookupError, TypeError) as problem:
            raise ServerForeign(server=self.server, reason=f"it answered {status}") from problem
        raise refusal


def client_of(common: ServerOptions, kind: type[ApiClient] | None = None) -> ApiClient:
    """Return a client from a command's options, the environment, or the current context.

    A context's token and certificate are used only for the context's own server.

    Raises:
        ServerAddressInvalid: the address is malformed.
        TokenUnreadable: the token file cannot be read.
    """
    server = common.server or os.environ.get("FOREWARN_SERVER", "")
    if not server and (context := _current_context()):
        server = context.server
        if not (common.token_file or os.environ.get("FOREWARN_TOKEN")):
            common = replace(common, token_file=context.token_file)
        if not (common.ca or os.environ.get("FOREWARN_CA")):
            common = replace(common, ca=context.ca)
    server = server or DEFAULT_SERVER
    if _BARE_ADDRESS.fullmatch(server):
        server = f"http://{server}"
    token = os.environ.get("FOREWARN_TOKEN", "")
    if common.token_file:
        try:
            token = Path(common.token_file).read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TokenUnreadable(path=common.token_file, reason=reason) from error
    token = token.strip()
    if common.token_file and not token:  # without it, the server may take the caller for another
        raise TokenUnreadable(path=common.token_file, reason="the file is empty")
    if not (token.isascii() and (token.isprintable())):
        raise TokenUnreadable(path=common.token_file or "FOREWARN_TOKEN", reason="it is not text")
    server = server.rstrip("/")
    login = "" if token else _login_at(server)
    client = (kind or ApiClient)(server, token or login)
    client.ca = common.ca
    client.is_login = bool(login)
    token = token or login
    if token and client.is_exposed and server not in _WARNED:
        _WARNED.add(server)
        print(_EXPOSED.format(server=shown_url(client.server)), file=sys.stderr, flush=True)
    return client


def _login_at(server: str) -> str:
    """Return the issuer's token of `forewarn login` for a server; empty: none."""
    from forewarn_server.cli.logins_file import read_logins  # noqa: PLC0415 - without a token only

    return read_logins().get(server, "").strip()


def _current_context() -> NamedServer | None:
    from forewarn_server.cli.named_servers_file import read_contexts  # noqa: PLC0415 - without --server only

    contexts = read_contexts()
    return contexts.by_name.get(contexts.current)


def client_of_settings(common: ServerOptions, settings: Settings) -> ApiClient:
    """Return a client of the service named in the options, or else in the settings.

    Raises:
        ServerAddressInvalid, TokenUnreadable: as `client_of`.
    """
    if not (common.server or os.environ.get("FOREWARN_SERVER")):
        scheme = "https" if settings.operator.certificate else "http"
        local, operator = settings.listen.local, settings.listen.operator
        server = local or (f"{scheme}://{operator}" if operator else "")
        common = replace(common, server=server)
    return client_of(common)


def part(name: str) -> str:
    """Encode a name as one segment of a URL path.

    Raises:
        NameEmpty: the name is empty.
    """
    if not name:
        raise NameEmpty
    return quote(name, safe="")


def local_now_ms() -> int:
    """Return this machine's time, for answers of programs other than the service."""
    return SystemClock().now_ms()


def _tls(ca: str) -> ssl.SSLContext:
    """Return a TLS context with the trusted CA certificates and the client's certificate.

    Raises:
        CertificateUnreadable: a file named in the environment is unusable.
    """
    import ssl  # noqa: PLC0415 - http.client has it loaded

    files = {name: os.environ.get(f"FOREWARN_{name}", "") for name in ("CA", "CERTIFICATE", "KEY")}
    try:
        context = ssl.create_default_context(cafile=ca or files["CA"] or None)
        if files["CERTIFICATE"]:
            context.load_cert_chain(files["CERTIFICATE"], files["KEY"] or None)
    except OSError as error:
        reason = error.strerror or error
        raise CertificateUnreadable(reason=reason) from error
    return context


def _close(answer: HTTPResponse, channel: socket.socket) -> None:
    answer.close()
    channel.close()


def _query(query: Mapping[str, object]) -> str:
    given: list[tuple[str, str]] = []
    for name, value in query.items():
        values = value if isinstance(value, list | tuple) else [value]
        for each in values:
            if each is True or each is False:
                given += [(name, "true")] if each else []
            elif each is not None and each != "":
                given.append((name, str(each)))
    return f"?{urlencode(given)}" if given else ""


def _body(form: Mapping[str, object]) -> bytes:
    return json.dumps({name: value for name, value in form.items() if value is not None}).encode()
