"""Notices and requests as resources of a cluster: `MaintenanceNotice` and `Maintenance`.

Each namespace belongs to one owner, because the controller acts there with one token. Its principal
is `kubernetes:CLUSTER:NAMESPACE`, and the service decides what this principal may see and do. Each
turn compares the resources with the service's answers, and writes the differences. A spec is asked
for once: `status.observedGeneration` is the generation of the last answered spec. Source: K-4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from forewarn.access.roles import CLUSTER_PRINCIPAL
from forewarn.clock import Clock
from forewarn.drivers.kubernetes.client import CONFLICT, MISSING, Kubernetes, KubernetesRefused
from forewarn.drivers.kubernetes.config import KubernetesConfig
from forewarn.drivers.kubernetes.discovery import Watched
from forewarn.errors import CallerError, ForewarnError
from forewarn.protocol.timestamps import iso8601, parse
from forewarn.values import value

VERSION = "forewarn.io/v1alpha1"
GROUP = f"/apis/{VERSION}"
NOTICES, REQUESTS = "maintenancenotices", "maintenances"
FINALIZER = "forewarn.io/cancel"
#: How long a notice stays after its event, in ms: a day.
KEPT_MS = 86_400_000
TEXT_CHARACTERS_MAX = 1000
#: States of a request's operations, the one that its status shows first.
STATES = ("running", "announced", "planned", "failed", "cancelled", "succeeded")

Resource = dict[str, Any]


class NamespaceNotBound(CallerError):
    """The token of a namespace belongs to another principal."""

    code = "namespace-not-bound"
    status = 403
    message = "The token of namespace {namespace} is of {found}, not of {principal}."
    advice = "Create one: forewarn access token create {principal} --role owner --owner NAME."


class OwnerApi(Protocol):
    """The operator API, with the token of one namespace."""

    def whoami(self) -> str:
        """Return the principal of the token."""

    def events(self) -> list[Mapping[str, Any]]:
        """Return the events that have not ended."""

    def get(self, path: str, **query: object) -> Mapping[str, Any]:
        """Return the answer to a GET."""

    def post(
        self, path: str, form: Mapping[str, object] | None = None, *, key: str = ""
    ) -> Mapping[str, Any]:
        """Return the answer to a POST; requests with the same key are carried out once."""


@value
class _Answer:
    """What the service has said about a spec."""

    message: str = ""
    #: Whether the service has answered, so that the same spec is not asked again.
    final: bool = True


class TenantResources:
    """The resources of one cluster."""

    #: Interval of turns without a change in the cluster, in seconds.
    every_s = 10.0

    def __init__(self, config: KubernetesConfig, cluster: str, clock: Clock) -> None:
        self._kubernetes = Kubernetes(config)
        self._cluster = cluster
        self._clock = clock
        self._watched: dict[str, Watched[Resource]] = {}

    def watch(self) -> threading.Event:
        """Follow the resources; return an event that is set when one of them changes."""
        changed = threading.Event()
        for plural in (NOTICES, REQUESTS):
            path = f"{GROUP}/{plural}"
            watched = Watched(self._kubernetes, path, lambda each: each, changed=changed)
            self._watched[plural] = watched
            watched.start()
        return changed

    def close(self) -> None:
        """Stop following the resources."""
        for watched in self._watched.values():
            watched.close()

    def turn(self, apis: Mapping[str, OwnerApi]) -> tuple[list[str], list[str]]:
        """Bring all namespaces up to date; return the changed resources, and the problems.

        `apis` has the operator API of each namespace.

        Raises:
            ForewarnError: the resources are unknown.
        """
        notices, requests = self._listed(NOTICES), self._listed(REQUESTS)
        changed: list[str] = []
        problems: list[str] = []
        for namespace, api in sorted(apis.items()):
            one = _Namespace(
                self._kubernetes, namespace, api, clock=self._clock, changed=changed.append
            )
            try:
                one.check(f"{CLUSTER_PRINCIPAL}{self._cluster}:{namespace}")
                one.answer_notices(_of(namespace, notices))
                one.answer_requests(_of(namespace, requests))
            except ForewarnError as error:
                problems.append(f"namespace {namespace}: {error}")
        return changed, problems

    def _listed(self, plural: str) -> list[Resource]:
        if plural in self._watched:
            return self._watched[plural].facts()
        return list(self._kubernetes.all(f"{GROUP}/{plural}"))


def _of(namespace: str, resources: Iterable[Resource]) -> list[Resource]:
    return [each for each in resources if each["metadata"]["namespace"] == namespace]


class _Namespace:
    """One turn of one namespace."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        api: OwnerApi,
        *,
        clock: Clock,
        changed: Callable[[str], None],
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._api = api
        self._clock = clock
        self._changed = changed

    def check(self, principal: str) -> None:
        """Check that the token is of this namespace.

        Raises:
            NamespaceNotBound: it is of another principal.
        """
        holder = self._api.whoami()
        if holder != principal:
            raise NamespaceNotBound(namespace=self._namespace, found=holder, principal=principal)

    # --- notices ----------------------------------------------------------------------------

    def answer_notices(self, notices: list[Resource]) -> None:
        """Create, answer, update and remove the notices of the owner's events."""
        known = {each["metadata"]["name"]: each for each in notices}
        events = {_notice_name(each["id"]): each for each in self._api.events()}
        for name, event in events.items():
            notice = known.get(name) or self._create(name, event)
            if notice is not None:
                self._answer_notice(notice, event)
        for name in known.keys() - events.keys():
            self._end(known[name])

    def _create(self, name: str, event: Mapping[str, Any]) -> Resource | None:
        meta = {"name": name, "namespace": self._namespace}
        form = {"apiVersion": VERSION, "kind": "MaintenanceNotice", "metadata": meta, "spec": {}}
        try:
            notice = self._kubernetes.ask("POST", self._path(NOTICES), form)
        except KubernetesRefused as error:
            if error.number != CONFLICT:
                raise
            return None  # the watch has not shown it yet
        self._tell(notice, "Announced", f"{event['type']} of {', '.join(event['resources'])}")
        return notice

    def _answer_notice(self, notice: Resource, event: Mapping[str, Any]) -> None:
        spec, before = notice.get("spec") or {}, notice.get("status") or {}
        generation = notice["metadata"].get("generation", 1)
        message, observed = before.get("message", ""), before.get("observedGeneration", 0)
        if observed != generation:
            answer = self._approve(event) if spec.get("approve") else _Answer()
            if answer.final and spec.get("postpone"):
                answer = self._postpone(spec["postpone"], event)
            message, observed = answer.message, generation if answer.final else observed
            if answer.message:
                self._tell(notice, "Refused" if answer.final else "Waiting", answer.message)
            if spec:
                event = self._api.get(f"/v1/events/{event['id']}")
        status = {
            "event": event["id"],
            "type": event["type"],
            "state": event["state"],
            "source": event["source"],
            "resources": event["resources"],
            "notBefore": event["not_before"],
            "expectedInterruptionSeconds": event["duration_s"],
            "description": event["description"],
            "operation": event["operation"],
            "approvedBy": event["approved_by"],
            "message": message[:TEXT_CHARACTERS_MAX],
            "observedGeneration": observed,
        }
        if status != before:
            self._write(NOTICES, notice, status)
            if before and before.get("state") != status["state"]:
                self._tell(notice, str(status["state"]).capitalize(), str(status["description"]))

    def _approve(self, event: Mapping[str, Any]) -> _Answer:
        if event["state"] != "scheduled":
            return _Answer()
        return self._ask(f"/v1/operations/{event['id']}/approve", {})

    def _postpone(self, wish: Mapping[str, Any], event: Mapping[str, Any]) -> _Answer:
        form = {"until": wish.get("until"), "reason": wish.get("reason")}
        return self._ask(f"/v1/events/{event['id']}/postpone", form)

    def _ask(self, path: str, form: Mapping[str, object]) -> _Answer:
        """Send a tenant's wish; a refusal of the service is final."""
        try:
            self._api.post(path, form)
        except CallerError as error:
            return _Answer(str(error))
        except ForewarnError as error:
            return _Answer(str(error), final=False)
        return _Answer()

    def _end(self, notice: Resource) -> None:
        """Record the outcome of a notice's event; remove the notice a day later."""
        status, now_ms = dict(notice.get("status") or {}), self._clock.now_ms()
        ended = status.get("endedAt")
        if ended and now_ms >= parse(str(ended)) + KEPT_MS:
            self._kubernetes.ask("DELETE", self._path(NOTICES, notice["metadata"]["name"]))
            self._changed(f"- {NOTICES} {self._namespace}/{notice['metadata']['name']}")
        if ended:
            return
        try:
            outcome = self._api.get(f"/v1/events/{status.get('event', '')}/outcome")
        except CallerError:  # history has dropped it, or it is another owner's now
            outcome = {"result": "unknown", "reason": "", "approved_by": []}
        status |= {"state": outcome["result"], "approvedBy": outcome["approved_by"]}
        status["endedAt"] = iso8601(now_ms - now_ms % 1000)
        self._write(NOTICES, notice, status)
        self._tell(notice, str(outcome["result"]).capitalize(), str(outcome["reason"]))

    # --- requests ---------------------------------------------------------------------------

    def answer_requests(self, requests: list[Resource]) -> None:
        """Carry requests for work out, and show their state and what they wait for."""
        for request in requests:
            deleted = "deletionTimestamp" in request["metadata"]
            if deleted and FINALIZER in (request["metadata"].get("finalizers") or ()):
                self._cancel(request)
            elif not deleted:
                self._answer_request(request)

    def _answer_request(self, request: Resource) -> None:
        before = request.get("status") or {}
        if before.get("state") in {"refused", "failed", "cancelled", "succeeded"}:
            return
        if not before.get("operations"):
            self._hold(request)
            status = self._begin(request)
        else:
            status = self._state(before["operations"])
        if status != before:
            self._write(REQUESTS, request, status)
            if before.get("state") != status["state"]:
                text = status["message"] or ", ".join(status.get("operations", ()))
                self._tell(request, str(status["state"]).capitalize(), text)

    def _begin(self, request: Resource) -> Resource:
        spec = request.get("spec") or {}
        form = {
            "cause": spec.get("cause"),
            "targets": spec.get("targets"),
            "description": spec.get("description"),
            "not_before": spec.get("notBefore"),
        }
        try:
            # With its uid as the key, a request is carried out once, whatever crashes.
            answer = self._api.post("/v1/operations", form, key=request["metadata"]["uid"])
        except CallerError as error:
            return {"state": "refused", "message": str(error)[:TEXT_CHARACTERS_MAX]}
        return self._state([each["id"] for each in answer["operations"]])

    def _state(self, ids: list[str]) -> Resource:
        operations = [self._api.get(f"/v1/operations/{each}")["operation"] for each in ids]
        states = {each["state"] for each in operations}
        state = next((each for each in STATES if each in states), "unknown")
        waits: list[str] = []
        if state in {"planned", "announced"}:
            for each in ids:
                blockers = self._api.get("/v1/why", id=each)["blockers"]
                waits += [str(blocker["text"]) for blocker in blockers]
        message = " ".join(dict.fromkeys(waits)) or " ".join(each["reason"] for each in operations)
        return {"state": state, "operations": ids, "message": message.strip()[:TEXT_CHARACTERS_MAX]}

    def _hold(self, request: Resource) -> None:
        """Add the finalizer, so that the deletion of the request cancels its work."""
        if FINALIZER not in (request["metadata"].get("finalizers") or ()):
            finalizers = [*(request["metadata"].get("finalizers") or ()), FINALIZER]
            self._patch(request, {"finalizers": finalizers})

    def _cancel(self, request: Resource) -> None:
        """Cancel the work of a deleted request, as far as it has not started."""
        for each in (request.get("status") or {}).get("operations") or ():
            path = f"/v1/operations/{each}/cancel"
            answer = self._ask(path, {"reason": "the Maintenance was deleted"})
            if not answer.final:
                return
        finalizers = [each for each in request["metadata"]["finalizers"] if each != FINALIZER]
        self._patch(request, {"finalizers": finalizers})
        self._changed(f"- {REQUESTS} {self._namespace}/{request['metadata']['name']}")

    # --- writes -----------------------------------------------------------------------------

    def _patch(self, resource: Resource, meta: Mapping[str, object]) -> None:
        version = resource["metadata"].get("resourceVersion")
        form = {"metadata": {**meta, "resourceVersion": version}}
        path = self._path(REQUESTS, resource["metadata"]["name"])
        self._settled(lambda: self._kubernetes.patch(path, form))

    def _write(self, plural: str, resource: Resource, status: Resource) -> None:
        name = resource["metadata"]["name"]
        old = dict.fromkeys((resource.get("status") or {}).keys() - status.keys())
        path = f"{self._path(plural, name)}/status"
        self._settled(lambda: self._kubernetes.patch(path, {"status": {**old, **status}}))
        self._changed(f"~ {plural} {self._namespace}/{name}")

    def _settled(self, write: Callable[[], object]) -> None:
        """Write; a resource that has changed or gone meanwhile is for the next turn."""
        try:
            write()
        except KubernetesRefused as error:
            if error.number not in {CONFLICT, MISSING}:
                raise

    def _tell(self, resource: Resource, reason: str, text: str) -> None:
        """Record a Kubernetes event about a resource."""
        now_ms, meta = self._clock.now_ms(), resource["metadata"]
        now = iso8601(now_ms - now_ms % 1000)
        form = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": VERSION,
                "kind": resource.get("kind", "MaintenanceNotice"),
                "name": meta["name"],
                "namespace": self._namespace,
                "uid": meta.get("uid"),
            },
            "reason": reason,
            "message": text[:TEXT_CHARACTERS_MAX] or reason,
            "type": "Warning" if reason in {"Refused", "Failed"} else "Normal",
            "source": {"component": "forewarn"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._kubernetes.ask("POST", f"/api/v1/namespaces/{self._namespace}/events", form)

    def _path(self, plural: str, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self._namespace}/{plural}{'/' if name else ''}{name}"


def _notice_name(event: str) -> str:
    return f"event-{event.lower()}"
