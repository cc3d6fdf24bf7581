"""The page's files, compressed once and sent with a strict content security policy.

The files are public, but their data requires a token.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from forewarn_base.host_port import host_of_header
from forewarn_base.values import value

FOLDER = Path(__file__).parent
#: URL paths of the page itself, and of its other files.
ROOT, BESIDE = "/", "/web/"
_PAGE = "index.html"
#: File name extension -> media type; files with other extensions are not served.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # browsers check the file on each use, and receive 304
    "Vary": "Accept-Encoding",
}


#: Header over TLS: for a year, browsers use no plain HTTP for this host, on any port.
TLS_ONLY = {"Strict-Transport-Security": "max-age=31536000"}


def _is_localhost(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser addresses its own machine, whose other servers have no TLS."""
    return host_of_header(headers.get(b"host", b"").decode("latin-1")) == "localhost"


@value
class WebFile:
    """One file of the page, uncompressed and compressed."""

    media: str
    plain: bytes
    small: bytes
    etag: str


@cache
def web_files() -> dict[str, WebFile]:
    """Return the page's files by path."""
    files = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _TYPES:
            plain = path.read_bytes()
            small = gzip.compress(plain, 9, mtime=0)
            etag = f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
            where = ROOT if path.name == _PAGE else BESIDE + path.name
            files[where] = WebFile(_TYPES[path.suffix], plain, small, etag)
    return files


class WebPage(BaseRoute):
    """The page's files as routes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Find the file of a GET or HEAD request."""
        if scope["path"] in web_files() and scope["method"] in {"GET", "HEAD"}:
            return Match.FULL, {}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a file, or 304 if the browser has it."""
        file = web_files()[scope["path"]]
        headers_in = dict(scope["headers"])
        headers = {**HEADERS, "ETag": file.etag}
        if scope["scheme"] == "https" and not _is_localhost(headers_in):
            headers |= TLS_ONLY
        if headers_in.get(b"if-none-match", b"").decode("latin-1") == file.etag:
            await Response(None, 304, headers)(scope, receive, send)
            return
        body = file.plain
        if b"gzip" in headers_in.get(b"accept-encoding", b""):
            headers["Content-Encoding"] = "gzip"
            body = file.small
        await Response(body, 200, headers, media_type=file.media)(scope, receive, send)
