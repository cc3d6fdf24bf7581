"""Maps a request and the settings to an action; pure.

Requests with the same bytes have the same action.
"""

from __future__ import annotations

import math

from forewarn_base.errors import CallerError
from forewarn_base.host_port import host_of_header, is_domain
from forewarn_base.protocol.versions import (
    EVENTS_PATH,
    PREVIEW_VERSION,
    UNDERSCORE_VERSION,
    VERSIONS,
)
from forewarn_base.settings import MetadataSettings
from forewarn_base.values import replace, value
from forewarn_metadata.endpoint import instance
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import Response, compact, refusal
from forewarn_metadata.endpoint.instance_fields import INSTANCE_VERSIONS

INSTANCE_PATH = "/metadata/instance"
VERSIONS_PATH = "/metadata/versions"
ATTESTED_PATH = "/metadata/attested/document"
OUTCOMES_PATH = "/forewarn/outcomes/"
TOKEN_PATH = "/metadata/identity/oauth2/token"  # noqa: S105 - a path

#: Api-versions of the year that introduced the header `Metadata`; clients of these versions may
#: omit the header. Source: E-2.
HEADERLESS_YEAR = "2017-"
ATTESTED_SINCE = "2018-10-01"
NONCE_DIGITS_MAX = 10

HEADER_MISSING = "Bad request. Required metadata header not specified"
VERSION_INVALID = (
    "Bad request. api-version is invalid or was not specified in the request. "
    "For more information refer to aka.ms/azureimds"
)
VERSION_NOT_FOUND = (
    b'{ "error": "Not found. Invalid version requested" }'  # spaces as in the public service
)

NOT_FOUND = refusal(404, "Not found")
#: Text of the public service. After a 404, Azure's SDKs retry for 20 s and longer.
NO_IDENTITY = Response(
    400, compact({"error": "invalid_request", "error_description": "Identity not found"})
)
HOST_REFUSED = refusal(
    400, "Bad request. The Host header names another host; [metadata] allowed_hosts permits names"
)


class MetadataQueryInvalid(CallerError):
    """A query parameter is invalid or occurs twice. Source: E-8, E-9."""

    code = "metadata-query-invalid"
    message = "Bad request. {reason}"
    advice = "Give each query parameter once, in its documented form."


@value
class RefuseRequest:
    """Send the same refusal to every caller."""

    answer: Response


@value
class ShowDocument:
    """Send the VM's document, immediately or after a change."""

    version: str
    #: Value of the header `If-None-Match`. Source: E-7.
    unless: str = ""
    #: Time limit of the wait for an incarnation other than `incarnation`. Source: E-9.
    wait_s: float = 0.0
    incarnation: int = 0


@value
class ApproveEvents:
    """Approve those of the VM's events whose ids are in the body."""


@value
class DescribeInstance:
    """Send a part of the VM's instance metadata. Source: I-1, I-2."""

    version: str
    path: str
    form: str


@value
class GiveToken:
    """Send an access token for a resource to a VM with an identity. Source: Z-3."""

    resource: str
    #: Error in the request; empty for a valid request.
    refusal: Response | None


@value
class AttestInstance:
    """Send a signed document about the VM, if a signer exists. I-1."""

    version: str
    nonce: str
    #: Error in the request, reported if a signer exists.
    refusal: Response | None


@value
class ShowOutcome:
    """Send the outcome of one of the VM's events. Source: X-1."""

    event_id: str


RequestAction = (
    RefuseRequest
    | ShowDocument
    | ApproveEvents
    | DescribeInstance
    | GiveToken
    | AttestInstance
    | ShowOutcome
)


@value
class RoutedRequest:
    """An action, and the required properties of its caller."""

    action: RequestAction
    #: Whether the request came through a proxy, which must sign the request. Source: E-4, S-6.
    forwarded: bool
    #: Action for a request with a valid proxy signature; the proxy removes the VM's headers.
    if_signed: RequestAction | None = None


def route(request: HttpRequest, settings: MetadataSettings) -> RoutedRequest:
    """Return the action for a request from a known VM."""
    forwarded = "x-forwarded-for" in request.headers
    host = host_of_header(request.headers.get("host", ""))
    if not _is_allowed(host, settings):
        return RoutedRequest(RefuseRequest(HOST_REFUSED), forwarded)
    try:
        action = _action(request, settings)
        if settings.proxy_without_header and "metadata" not in request.headers:
            given = replace(request, headers={**request.headers, "metadata": "true"})
            return RoutedRequest(action, forwarded, _action(given, settings))
        return RoutedRequest(action, forwarded)
    except CallerError as error:
        return RoutedRequest(RefuseRequest(refused(error)), forwarded)


def _is_allowed(host: str, settings: MetadataSettings) -> bool:
    if host in settings.allowed_hosts:
        return True
    if settings.domains_allowed:
        return not settings.allowed_hosts
    return not is_domain(host)


def refused(error: CallerError) -> Response:
    """Return the response for an error of the caller."""
    return refusal(error.status, str(error))


def event_versions(settings: MetadataSettings) -> tuple[str, ...]:
    """Return the supported api-versions of Scheduled Events, ascending. Source: V-4."""
    versions = (*VERSIONS, PREVIEW_VERSION) if settings.preview else VERSIONS
    return tuple(each for each in versions if each >= settings.min_api_version)


def _action(request: HttpRequest, settings: MetadataSettings) -> RequestAction:
    path = request.path
    if path == EVENTS_PATH:
        return _events(request, settings)
    if path == VERSIONS_PATH:
        refusal_or_none = _not_get(request) or _without_header(request)
        return RefuseRequest(refusal_or_none or Response(body=instance.versions_body()))
    if path == INSTANCE_PATH or (path.startswith(INSTANCE_PATH + "/") and "/." not in path):
        return _instance(request, settings)
    if path == TOKEN_PATH and request.method == "GET":
        resource = request.query.get("resource", "")
        missing = None if resource else refusal(400, "invalid_request")
        return GiveToken(resource, _without_header(request) or missing)
    if settings.outcomes and path.startswith(OUTCOMES_PATH):
        refusal_or_none = _not_get(request) or _without_header(request)
        event_id = path.removeprefix(OUTCOMES_PATH).upper()
        return RefuseRequest(refusal_or_none) if refusal_or_none else ShowOutcome(event_id)
    if path == ATTESTED_PATH:
        return _attested(request, settings)
    if request.method in ("OPTIONS", "CONNECT") and not path.startswith("/"):
        return RefuseRequest(_not_allowed("GET, HEAD, POST"))
    return RefuseRequest(NOT_FOUND)


def _events(request: HttpRequest, settings: MetadataSettings) -> RequestAction:
    if request.method not in ("GET", "HEAD", "POST"):
        return RefuseRequest(_not_allowed("GET, HEAD, POST"))
    version = request.query.get("api-version", "")
    versions = event_versions(settings)
    if not _may_lack_header(request, versions, settings):
        refusal_or_none = _without_header(request)
        if refusal_or_none:
            return RefuseRequest(refusal_or_none)
    wrong = _wrong_version(request, versions, settings.scheduledevents_unknown_version_status)
    if wrong:
        return RefuseRequest(wrong)
    if request.method == "POST":
        return ApproveEvents()
    return _show(request, version, settings)


def _show(request: HttpRequest, version: str, settings: MetadataSettings) -> ShowDocument:
    unless = request.headers.get("if-none-match", "")
    wait = request.query.get("wait")
    if wait is None:
        return ShowDocument(version, unless)
    incarnation = request.query.get("incarnation", "")
    if not _is_number(incarnation):
        raise MetadataQueryInvalid(
            reason="The parameter wait requires incarnation, a whole number."
        )
    whole, _, fraction = wait.partition(".")
    if not _is_number(whole) or not _is_number(fraction or "0"):
        raise MetadataQueryInvalid(reason="The parameter wait must be a number of seconds.")
    wait_s = min(float(wait), settings.wait_timeout_s)
    assert math.isfinite(wait_s)
    return ShowDocument(version, unless, wait_s, int(incarnation))


def _instance(request: HttpRequest, settings: MetadataSettings) -> RequestAction:
    refusal_or_none = (
        _not_get(request)
        or _without_header(request)
        or _wrong_version(request, INSTANCE_VERSIONS, settings.instance_unknown_version_status)
    )
    if refusal_or_none:
        return RefuseRequest(refusal_or_none)
    path = request.exact_path[len(INSTANCE_PATH) :]
    return DescribeInstance(request.query["api-version"], path, request.query.get("format", ""))


def _attested(request: HttpRequest, settings: MetadataSettings) -> AttestInstance:
    versions = tuple(each for each in INSTANCE_VERSIONS if each >= ATTESTED_SINCE)
    nonce = request.query.get("nonce", "")
    wrong = (
        _not_get(request)
        or _without_header(request)
        or _wrong_version(request, versions, settings.instance_unknown_version_status)
    )
    if not wrong and nonce and not (_is_number(nonce) and len(nonce) <= NONCE_DIGITS_MAX):
        wrong = refusal(400, "Bad request. nonce must be a number of at most 10 digits")
    return AttestInstance(request.query.get("api-version", ""), nonce, wrong)


def _not_get(request: HttpRequest) -> Response | None:
    return None if request.method in ("GET", "HEAD") else _not_allowed("GET, HEAD")


def _not_allowed(allow: str) -> Response:
    return refusal(405, "Method not allowed", ("Allow", allow))


def _may_lack_header(
    request: HttpRequest, versions: tuple[str, ...], settings: MetadataSettings
) -> bool:
    """Return whether the request's api-version does not require the header `Metadata`.

    Source: E-2.
    """
    version = request.query.get("api-version", "")
    if version not in versions or request.repeated == "api-version":
        return False
    if request.method == "POST":
        return settings.post_without_header and version.startswith(HEADERLESS_YEAR)
    return version == UNDERSCORE_VERSION


def _without_header(request: HttpRequest) -> Response | None:
    if request.headers.get("metadata", "").lower() == "true":
        return None
    return refusal(400, HEADER_MISSING)


def _wrong_version(
    request: HttpRequest, versions: tuple[str, ...], unknown_status: int
) -> Response | None:
    version = request.query.get("api-version", "")
    if request.repeated and request.repeated != "api-version":
        raise MetadataQueryInvalid(reason=f"The query parameter {request.repeated} occurs twice.")
    if version in versions and not request.repeated:
        return None
    unknown = version and version != "latest" and not request.repeated
    if unknown and unknown_status == 404:
        return Response(404, VERSION_NOT_FOUND)
    newest = list(reversed(versions[-3:]))
    return Response(400, compact({"error": VERSION_INVALID, "newest-versions": newest}))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
