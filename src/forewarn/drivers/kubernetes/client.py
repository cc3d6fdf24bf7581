"""Requests to the API server, and what it says to them; each on a connection of its own.

Nothing that knows what a task is may go in here.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.drivers.webhook.request import ANSWER_BYTES_MAX, HttpRequest, exchange
from forewarn.errors import PeerError
from forewarn.validation.json_reader import BodyUnreadable, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.drivers.kubernetes.config import KubernetesConfig

#: Objects of one page of a list.
PAGE_MAX = 100
MISSING, CONFLICT, BUDGET = 404, 409, 429
#: Statuses that may be otherwise later: a token that has expired is replaced in its file.
LATER = frozenset({401, 408, 429, 500, 502, 503, 504})


class KubernetesUnreachable(PeerError):
    """The API server does not answer, or cannot just now."""

    code = "kubernetes-unreachable"
    message = "The API server does not answer: {reason}."
    advice = "Look at the API server and the driver's token; the work goes on when it answers."


class KubernetesRefused(PeerError):
    """The API server does not do what it is asked."""

    code = "kubernetes-refused"
    message = "Kubernetes refuses {verb} {path}: {reason} ({number})."
    advice = "Look at the object and the driver's rights; then retry, complete or fail it."

    @property
    def number(self) -> int:
        """The status of its answer."""
        return int(str(self.facts["number"]))


class Kubernetes:
    """An API server. Safe between threads."""

    def __init__(self, config: KubernetesConfig) -> None:
        """Ask nothing yet."""
        self._config = config

    def ask(
        self, verb: str, path: str, form: object = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """Send one request and return its answer; one that has no body is empty.

        Raises:
            KubernetesUnreachable: there was no answer, or it may be another one later.
            KubernetesRefused: it was refused.
        """
        try:
            token = Path(self._config.token_file).read_text("utf-8").strip()
            headers = {"accept": "application/json", "authorization": f"Bearer {token}"}
            body = b""
            if form is not None:
                headers["content-type"], body = kind, json.dumps(form).encode()
            request = HttpRequest(verb, self._config.server.rstrip("/") + path, headers, body)
            answer = exchange(
                request, timeout_s=self._config.timeout_s, ca_file=self._config.ca_file
            )
        except (OSError, http.client.HTTPException) as error:
            raise KubernetesUnreachable(reason=error) from error
        said = _read(answer.body) if answer.body else {}
        if 200 <= answer.status < 300:
            return said
        reason = str(said.get("message", ""))[:200].removesuffix(".") or "no reason"
        refusal = KubernetesRefused(verb=verb, path=path, reason=reason, number=answer.status)
        # To an eviction, 429 is the answer of a disruption budget, and 500 means two of them.
        if answer.status in LATER and not (
            path.endswith("/eviction") and answer.status in {BUDGET, 500}
        ):
            raise KubernetesUnreachable(reason=f"{reason} ({answer.status})") from refusal
        raise refusal

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None where there is none."""
        try:
            return self.ask("GET", path)
        except KubernetesRefused as error:
            if error.number == MISSING:
                return None
            raise

    def all(self, path: str, query: str = "") -> Iterator[dict[str, Any]]:
        """Go through a list, page by page."""
        more = ""
        while True:
            page = self.ask("GET", f"{path}?limit={PAGE_MAX}{query}{more}")
            yield from page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            more = f"&continue={token}"

    def patch(self, path: str, form: object) -> dict[str, Any]:
        """Change members of an object; those that are None are removed."""
        return self.ask("PATCH", path, form, kind="application/merge-patch+json")


def _read(body: bytes) -> dict[str, Any]:
    if len(body) > ANSWER_BYTES_MAX:
        raise KubernetesUnreachable(reason=f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    try:
        said = read_json(body)
    except BodyUnreadable:
        said = {"message": body[:200].decode("utf-8", "replace").strip()}
    return said if isinstance(said, dict) else {}
