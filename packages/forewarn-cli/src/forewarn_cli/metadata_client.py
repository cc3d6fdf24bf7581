"""Client of a metadata service that reads the document of a VM.

The agent has its own client, because the agent also approves events.
"""

from __future__ import annotations

from http.client import HTTPException
from urllib.parse import parse_qsl, urlencode, urlsplit

from forewarn_base.errors import CallerError, PeerError, reason_of
from forewarn_base.http_client import ClientRequest, exchange
from forewarn_base.protocol import timestamps
from forewarn_base.protocol.documents import DOCUMENT_BYTES_MAX
from forewarn_base.protocol.versions import EVENTS_PATH, HOLD_S_MAX
from forewarn_base.urls import shown_url
from forewarn_server.cli.api_client import local_now_ms

#: Longest wait for the first answer, in seconds. Source: B-1, C-1.
ANSWER_TIMEOUT_S = HOLD_S_MAX + 5.0


class MetadataAddressInvalid(CallerError):
    """The address of the metadata service is malformed."""

    code = "metadata-address-invalid"
    message = "{url!r} is not an address of a metadata service."
    advice = "Use http://HOST:PORT, with or without /metadata/scheduledevents."


class MetadataRefused(PeerError):
    """The metadata service refused the request for its document."""

    code = "metadata-refused"
    message = "The metadata service at {url} answered {status}: {text}"
    advice = "Check the address and --api-version. A service answers only VMs of its fleet."


class MetadataUnreachable(PeerError):
    """The metadata service does not answer."""

    code = "metadata-unreachable"
    message = "The metadata service at {url} cannot be reached: {reason}."
    advice = "Check the address; `forewarn emulate` runs one on this machine."


def get_document(url: str, api_version: str) -> tuple[bytes, int]:
    """Return this machine's document from a metadata service, never through a proxy.

    Returns:
        The document, and the time by the service's clock, ms since the epoch UTC.

    Raises:
        MetadataAddressInvalid: the address is malformed.
        MetadataUnreachable: the service did not answer.
        MetadataRefused: the answer is not a document.
    """
    base = shown_url(url)
    if not base.startswith("http://"):
        raise MetadataAddressInvalid(url=url)
    split = urlsplit(url)
    query = {"api-version": api_version, **dict(parse_qsl(split.query))}
    path = split.path if split.path.strip("/") else EVENTS_PATH
    request = ClientRequest("GET", f"{base}{path}?{urlencode(query)}", {"Metadata": "true"})
    try:
        answer = exchange(request, timeout_s=ANSWER_TIMEOUT_S, bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise MetadataUnreachable(url=url, reason=reason_of(error)) from error
    if answer.status != 200:
        text = answer.body.decode("utf-8", "replace")[:200]
        raise MetadataRefused(url=url, status=answer.status, text=text)
    try:
        return answer.body, timestamps.parse(answer.headers.get("date", ""))
    except ValueError:
        return answer.body, local_now_ms()
