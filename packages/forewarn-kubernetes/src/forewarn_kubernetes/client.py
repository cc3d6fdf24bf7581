"""Client of the Kubernetes API server: a connection for each request, or a kept one."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forewarn_base.errors import ForewarnError, PeerError, reason_of
from forewarn_base.http_client import (
    ANSWER_BYTES_MAX,
    ClientRequest,
    ClientResponse,
    KeptConnection,
    exchange,
    open_request,
)
from forewarn_base.validation.json_reader import BodyUnreadable, read_json
from forewarn_drivers import PlatformUnanswered
from forewarn_kubernetes.config import KubernetesConfig

#: Objects per page of a list.
PAGE_MAX = 100
MISSING, CONFLICT, EXPIRED, BUDGET = 404, 409, 410, 429
#: Statuses after which a retry may succeed, for example with a new token from the file, or a
#: restarted list.
LATER = frozenset({401, 408, EXPIRED, 429, 500, 502, 503, 504})
#: Pause after a 429 without a usable `Retry-After`, and the longest accepted one, in seconds.
BUSY_S, BUSY_MAX_S = 1.0, 30.0
#: Lists that are begun because the version of the one before has expired.
LISTS_MAX = 5
#: Duration after which the API server ends a watch, in seconds; detects dead connections.
WATCH_S = 50


class KubernetesUnreachable(PlatformUnanswered):
    """The API server does not answer, or is temporarily unable to answer."""

    code = "kubernetes-unreachable"
    message = "The API server does not answer: {reason}."
    advice = "Check the API server and the driver's token; the driver retries automatically."


class KubernetesBusy(KubernetesUnreachable):
    """The API server sheds load (API Priority and Fairness)."""

    code = "kubernetes-busy"
    message = "The API server sheds load: {reason}."
    advice = "The request is repeated automatically; if this persists, check the API server's load."

    @property
    def retry_after_s(self) -> float:
        """After which time the API server accepts another attempt, in seconds."""
        return float(str(self.facts["retry_after_s"]))


class KubernetesRefused(PeerError):
    """The API server refuses a request."""

    code = "kubernetes-refused"
    message = "Kubernetes refuses {verb} {path}: {reason} ({number})."
    advice = (
        "Check the object and the driver's permissions; then retry, complete or fail the operation."
    )

    @property
    def number(self) -> int:
        """The HTTP status."""
        return int(str(self.facts["number"]))


class VersionExpired(Exception):
    """The API server no longer has the version of a watch or of a list's next page; list again."""


class Kubernetes:
    """A client of one API server; thread-safe."""

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config

    def ask(
        self, verb: str, path: str, form: object = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """Send a request and return the answer; empty if the answer has no body.

        Raises:
            KubernetesUnreachable: no answer, or a temporary error.
            KubernetesRefused: the request was refused.
        """
        try:
            response = self._exchange(self._request(verb, path, form, kind))
        except (OSError, http.client.HTTPException) as error:
            raise KubernetesUnreachable(reason=reason_of(error)) from error
        content = _read(response.body) if response.body else {}
        if 200 <= response.status < 300:
            return content
        raise _refusal(content, response, verb, path)

    def _exchange(self, request: ClientRequest) -> ClientResponse:
        return exchange(request, timeout_s=self._config.timeout_s, ca_file=self._config.ca_file)

    def _request(self, verb: str, path: str, form: object, kind: str) -> ClientRequest:
        try:
            token = Path(self._config.token_file).read_text("utf-8").strip()
        except OSError as error:
            reason = f"its token_file {self._config.token_file}: {reason_of(error)}"
            raise KubernetesUnreachable(reason=reason) from error
        headers = {"accept": "application/json", "authorization": f"Bearer {token}"}
        body = b""
        if form is not None:
            headers["content-type"], body = kind, json.dumps(form).encode()
        return ClientRequest(verb, self._config.server.rstrip("/") + path, headers, body)

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.ask("GET", path)
        except KubernetesRefused as error:
            if error.number == MISSING:
                return None
            raise

    def all(self, path: str, query: str = "") -> list[dict[str, Any]]:
        """Return the items of a list; begin again if its version expires meanwhile."""
        for _ in range(LISTS_MAX):
            try:
                pages = list(self.pages(path, query))
            except VersionExpired:
                continue
            return [item for page in pages for item in page.get("items") or []]
        raise KubernetesUnreachable(reason=f"the versions of {path} expire before its last page")

    def pages(self, path: str, query: str = "") -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, all from the same version.

        Raises:
            VersionExpired: the API server no longer has this version, after a compaction.
        """
        more = ""
        while True:
            try:
                page = self.ask("GET", f"{path}?limit={PAGE_MAX}{query}{more}")
            except KubernetesUnreachable as error:
                if error.facts.get("status") == EXPIRED:
                    raise VersionExpired from error
                raise
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            more = f"&continue={quote(token, safe='')}"

    def watch(self, path: str, version: str) -> Iterator[dict[str, Any]]:
        """Yield the changes of a list after a version, until the API server ends the watch.

        The first change is empty, and shows that the API server answers.

        Raises:
            VersionExpired: the API server no longer has the version.
            KubernetesUnreachable: the API server does not answer.
            KubernetesRefused: the watch was refused.
        """
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"
        target = f"{path}?{query}&resourceVersion={version}"
        try:
            yield from self._changes(target)
        except (OSError, http.client.HTTPException) as error:
            raise KubernetesUnreachable(reason=reason_of(error)) from error

    def _changes(self, target: str) -> Iterator[dict[str, Any]]:
        config = self._config
        request = self._request("GET", target, None, "")
        with contextlib.closing(
            open_request(request, timeout_s=WATCH_S + config.timeout_s, ca_file=config.ca_file)
        ) as connection:
            response = connection.getresponse()
            if response.status == EXPIRED:
                raise VersionExpired
            if response.status != 200:
                body = response.read(ANSWER_BYTES_MAX + 1)
                headers = {name.lower(): each for name, each in response.getheaders()}
                answer = ClientResponse(response.status, headers, body)
                raise _refusal(_read(body), answer, "GET", target)
            yield {}
            while line := response.readline(ANSWER_BYTES_MAX + 1):
                change = _read(line)
                if not line.endswith(b"\n") or "type" not in change:
                    raise KubernetesUnreachable(reason="a watch was interrupted")
                if change.get("type") == "ERROR":
                    status = change.get("object") or {}
                    if status.get("code") == EXPIRED:
                        raise VersionExpired
                    raise KubernetesUnreachable(reason=status.get("message", "the watch failed"))
                yield change

    def patch(self, path: str, form: object) -> dict[str, Any]:
        """Change members of an object; remove members whose new value is None."""
        return self.ask("PATCH", path, form, kind="application/merge-patch+json")


class KeptKubernetes(Kubernetes):
    """A client for many requests of one thread that are safe to repeat, on one connection."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self._kept = KeptConnection(timeout_s=config.timeout_s, ca_file=config.ca_file)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._kept.close()

    def _exchange(self, request: ClientRequest) -> ClientResponse:
        return self._kept.exchange(request)


def _refusal(form: dict[str, Any], response: ClientResponse, verb: str, path: str) -> ForewarnError:
    """Return the error for an answer with an error status."""
    status = response.status
    reason = str(form.get("message", ""))[:200].removesuffix(".") or "no reason"
    # 429 means that a disruption budget forbids an eviction, 500 that two budgets apply to the pod.
    if status not in LATER or (path.endswith("/eviction") and status in {BUDGET, 500}):
        return KubernetesRefused(verb=verb, path=path, reason=reason, number=status)
    if status == BUDGET:
        return KubernetesBusy(reason=reason, retry_after_s=_retry_after_s(response))
    return KubernetesUnreachable(reason=f"{reason} ({status})", status=status)


def _retry_after_s(response: ClientResponse) -> float:
    """Return the pause that an answer asks for; Kubernetes gives it in whole seconds."""
    text = response.headers.get("retry-after", "")
    known = text.isascii() and text.isdigit() and len(text) < 6
    return min(float(text), BUSY_MAX_S) if known else BUSY_S


def _read(body: bytes) -> dict[str, Any]:
    if len(body) > ANSWER_BYTES_MAX:
        raise KubernetesUnreachable(reason=f"the answer exceeds {ANSWER_BYTES_MAX} bytes")
    try:
        form = read_json(body)
    except BodyUnreadable:
        form = {"message": body[:200].decode("utf-8", "replace").strip()}
    return form if isinstance(form, dict) else {}
