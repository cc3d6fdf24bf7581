"""Asking a metadata service for its document, as any client in a VM does.

Only a GET; following and approving is the agent's business.
"""

from __future__ import annotations

from http.client import HTTPException
from urllib.parse import parse_qsl, urlencode, urlsplit

from forewarn.cli.api_client import local_now_ms
from forewarn.errors import CallerError, PeerError, reason_of
from forewarn.http_client import ClientRequest, exchange
from forewarn.protocol import timestamps
from forewarn.protocol.documents import DOCUMENT_BYTES_MAX
from forewarn.protocol.versions import EVENTS_PATH, HOLD_S_MAX
from forewarn.urls import shown_url

#: How long the first answer may take, in seconds: up to two minutes. Source: B-1, C-1.
ANSWER_TIMEOUT_S = HOLD_S_MAX + 5.0


class MetadataAddressInvalid(CallerError):
    """An address that cannot be a metadata service's."""

    code = "metadata-address-invalid"
    message = "{url!r} is not an address of a metadata service."
    advice = "Give http://HOST:PORT, with or without /metadata/scheduledevents."


class MetadataRefused(PeerError):
    """A metadata service that does not give its document."""

    code = "metadata-refused"
    message = "The metadata service at {url} answered {status}: {text}"
    advice = "Look at the address and --api-version; it answers only VMs that it knows."


class MetadataUnreachable(PeerError):
    """Nothing answers where a metadata service should be."""

    code = "metadata-unreachable"
    message = "The metadata service at {url} cannot be reached: {reason}."
    advice = "Look at the address; `forewarn emulate` runs one on this machine."


def get_document(url: str, api_version: str) -> tuple[bytes, int]:
    """Return the document a metadata service gives to this machine, never through a proxy.

    Returns:
        The document, and the service's time, ms since the epoch UTC.

    Raises:
        MetadataAddressInvalid: the address is none.
        MetadataUnreachable: there is no answer.
        MetadataRefused: the answer is not a document.
    """
    base = shown_url(url)
    if not base.startswith("http://"):
        raise MetadataAddressInvalid(url=url)
    split = urlsplit(url)
    query = {"api-version": api_version, **dict(parse_qsl(split.query))}
    path = split.path if split.path.strip("/") else EVENTS_PATH
    asked = ClientRequest("GET", f"{base}{path}?{urlencode(query)}", {"Metadata": "true"})
    try:
        answer = exchange(asked, timeout_s=ANSWER_TIMEOUT_S, bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise MetadataUnreachable(url=url, reason=reason_of(error)) from error
    if answer.status != 200:
        text = answer.body.decode("utf-8", "replace")[:200]
        raise MetadataRefused(url=url, status=answer.status, text=text)
    try:
        return answer.body, timestamps.parse(answer.headers.get("date", ""))
    except ValueError:
        return answer.body, local_now_ms()
