"""Writes of the controller in one namespace: resources, their status, and events about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_base.values import value
from forewarn_kubernetes.client import CONFLICT, MISSING, Kubernetes, KubernetesRefused

VERSION = "forewarn.io/v1alpha1"
GROUP = f"/apis/{VERSION}"
NOTICES, REQUESTS = "maintenancenotices", "maintenances"
#: How long a notice stays after its event, in ms: a day.
KEPT_MS = 86_400_000
TEXT_CHARACTERS_MAX = 1000

Resource = dict[str, Any]


class OwnerApi(Protocol):
    """The operator API, with the token of one namespace."""

    def whoami(self) -> str:
        """Return the principal of the token."""

    def events(self) -> list[Mapping[str, Any]]:
        """Return the events that have not ended."""

    def declarations(self) -> list[Mapping[str, Any]]:
        """Return the declared maintenances that concern the owner's VMs."""

    def get(self, path: str, **query: object) -> Mapping[str, Any]:
        """Return the answer to a GET."""

    def post(
        self, path: str, form: Mapping[str, object] | None = None, *, key: str = ""
    ) -> Mapping[str, Any]:
        """Return the answer to a POST; requests with the same key are carried out once."""


@value
class WishAnswer:
    """What the service has said about a spec."""

    message: str = ""
    #: What to do next after a refusal.
    advice: str = ""
    #: Whether the service has answered, so that the same spec is not asked again.
    final: bool = True


def is_temporary(error: CallerError) -> bool:
    """Whether the service's answer is about now, so that the next turn must ask again."""
    return error.status >= 500 or error.status == HTTPStatus.TOO_MANY_REQUESTS


def ask_service(
    api: OwnerApi, path: str, form: Mapping[str, object], *, key: str = ""
) -> WishAnswer:
    """Send a tenant's wish; a refusal of the service is final."""
    try:
        api.post(path, form, key=key)
    except CallerError as error:
        return WishAnswer(str(error), error.advice_text(), final=not is_temporary(error))
    except ForewarnError as error:
        return WishAnswer(str(error), final=False)
    return WishAnswer()


class NamespaceWriter:
    """Changes the resources of one namespace, and reports each change."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        *,
        clock: Clock,
        changed: Callable[[str], None],
    ) -> None:
        self.namespace = namespace
        self._kubernetes = kubernetes
        self._clock = clock
        self._changed = changed

    @property
    def now_ms(self) -> int:
        """The time now, ms since the epoch UTC."""
        return self._clock.now_ms()

    def create_notice(self, name: str, text: str) -> Resource | None:
        """Create a notice; None if it exists, and the watch has not shown it yet."""
        meta = {"name": name, "namespace": self.namespace}
        form = {"apiVersion": VERSION, "kind": "MaintenanceNotice", "metadata": meta, "spec": {}}
        try:
            notice = self._kubernetes.ask("POST", self._path(NOTICES), form)
        except KubernetesRefused as error:
            if error.number != CONFLICT:
                raise
            return None
        self.record_event(notice, "Announced", text)
        return notice

    def end_notice(self, notice: Resource, outcome: Callable[[Resource], Resource]) -> None:
        """Record the outcome of a notice; remove the notice a day later.

        `outcome` returns members of the status, and a `reason` for the event.
        """
        status, now_ms = dict(notice.get("status") or {}), self._clock.now_ms()
        ended = status.get("endedAt")
        if ended and now_ms >= parse(str(ended)) + KEPT_MS:
            self._kubernetes.ask("DELETE", self._path(NOTICES, notice["metadata"]["name"]))
            self._changed(f"- {NOTICES} {self.namespace}/{notice['metadata']['name']}")
        if ended:
            return
        last = outcome(status)
        reason = str(last.pop("reason", ""))
        status |= {**last, "endedAt": iso8601(now_ms - now_ms % 1000)}
        self.write(NOTICES, notice, status)
        self.record_event(notice, str(status["state"]).capitalize(), reason)

    def write(self, plural: str, resource: Resource, status: Resource) -> None:
        """Replace the status of a resource. A merge patch removes members that are None."""
        name = resource["metadata"]["name"]
        old = dict.fromkeys((resource.get("status") or {}).keys() - status.keys())
        path = f"{self._path(plural, name)}/status"
        self._write(lambda: self._kubernetes.patch(path, {"status": {**old, **status}}))
        self._changed(f"~ {plural} {self.namespace}/{name}")

    def patch(self, request: Resource, meta: Mapping[str, object]) -> bool:
        """Change a request's metadata, unless the request has changed meanwhile."""
        version = request["metadata"].get("resourceVersion")
        form = {"metadata": {**meta, "resourceVersion": version}}
        path = self._path(REQUESTS, request["metadata"]["name"])
        return self._write(lambda: self._kubernetes.patch(path, form))

    def _write(self, write: Callable[[], object]) -> bool:
        """Write; a resource that has changed or gone meanwhile is for the next turn."""
        try:
            write()
            return True
        except KubernetesRefused as error:
            if error.number not in {CONFLICT, MISSING}:
                raise
            return False

    def released(self, request: Resource) -> None:
        """Report that a deleted request is gone."""
        self._changed(f"- {REQUESTS} {self.namespace}/{request['metadata']['name']}")

    def record_event(self, resource: Resource, reason: str, text: str) -> None:
        """Record a Kubernetes event about a resource."""
        now_ms, meta = self._clock.now_ms(), resource["metadata"]
        now = iso8601(now_ms - now_ms % 1000)
        form = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": VERSION,
                "kind": resource.get("kind", "MaintenanceNotice"),
                "name": meta["name"],
                "namespace": self.namespace,
                "uid": meta.get("uid"),
            },
            "reason": reason,
            "message": text[:TEXT_CHARACTERS_MAX] or reason,
            "type": "Warning" if reason.endswith(("Refused", "Failed")) else "Normal",
            "source": {"component": "forewarn"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._kubernetes.ask("POST", f"/api/v1/namespaces/{self.namespace}/events", form)

    def _path(self, plural: str, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/{plural}{'/' if name else ''}{name}"
