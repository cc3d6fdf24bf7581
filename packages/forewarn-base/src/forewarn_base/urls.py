"""The parts of URLs and requests that may appear in reasons and logs."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from forewarn_base.errors import reason_of
from forewarn_base.host_port import joined_address

#: Why a request cannot be sent, without the text, which may be a secret.
MALFORMED = "its URL or a header has characters that HTTP does not allow"


def shown_url(url: str, *, path: bool = False) -> str:
    """Return the scheme, host and port of a URL, because the path may contain a secret.

    Args:
        url: the URL to show.
        path: whether its path is shown, too.

    Returns:
        Empty if the text is not a URL with a host.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if not parts.hostname:
        return ""
    shown = f"{parts.scheme}://{joined_address(parts.hostname, port)}"
    return shown + parts.path if path else shown


def is_protected(url: str) -> bool:
    """Whether requests are protected on the network: TLS, or a loopback address."""
    parts = urlsplit(shown_url(url))
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def shown_reason(error: BaseException) -> str:
    """Return why a request failed; never shows a malformed URL or header."""
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return MALFORMED  # errors of certificates have both types
    return reason_of(error)
