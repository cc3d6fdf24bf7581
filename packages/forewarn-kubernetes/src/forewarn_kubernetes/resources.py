"""Notices and requests as resources of a cluster: `MaintenanceNotice` and `Maintenance`.

Each namespace belongs to one owner, because the controller acts there with one token. Its principal
is `kubernetes:CLUSTER:NAMESPACE`, and the service decides what this principal may see and do. Each
turn compares the resources with the service's answers, and writes the differences. A spec is asked
for once: `status.observedGeneration` is the generation of the last answered spec. Source: K-4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_core.access.roles import CLUSTER_PRINCIPAL
from forewarn_kubernetes.client import Kubernetes
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.declared_notices import PREFIX, DeclaredNotices
from forewarn_kubernetes.declared_requests import DeclaredRequests
from forewarn_kubernetes.discovery import Watched
from forewarn_kubernetes.namespace_writer import (
    GROUP,
    NOTICES,
    REQUESTS,
    TEXT_CHARACTERS_MAX,
    NamespaceWriter,
    OwnerApi,
    Resource,
    WishAnswer,
    ask_service,
    is_temporary,
)

FINALIZER = "forewarn.io/cancel"
#: Code of the error for a request that was never carried out.
MISSING_ANSWER = "answer-missing"
#: States of a request's operations, the one that its status shows first.
STATES = ("running", "announced", "planned", "failed", "cancelled", "succeeded")
#: States of requests that are over.
OVER = frozenset({"refused", "failed", "cancelled", "succeeded", "done"})


class NamespaceNotBound(CallerError):
    """The token of a namespace belongs to another principal."""

    code = "namespace-not-bound"
    status = 403
    message = "The token of namespace {namespace} is of {found}, not of {principal}."
    advice = "Create one: forewarn access token create {principal} --role owner --owner NAME."


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
        notices, requests = self._list(NOTICES), self._list(REQUESTS)
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

    def _list(self, plural: str) -> list[Resource]:
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
        self._namespace = namespace
        self._api = api
        self._writer = NamespaceWriter(kubernetes, namespace, clock=clock, changed=changed)
        self._declared = DeclaredNotices(self._writer, api)
        self._declared_requests = DeclaredRequests(api, self._declared)

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
        """Create, answer, update and remove the notices of the owner's events and declarations."""
        declared = [each for each in notices if each["metadata"]["name"].startswith(PREFIX)]
        self._declared.answer(declared)
        known = {each["metadata"]["name"]: each for each in notices if each not in declared}
        events = {_notice_name(each["id"]): each for each in self._api.events()}
        for name, event in events.items():
            text = f"{event['type']} of {', '.join(event['resources'])}"
            notice = known.get(name) or self._writer.create_notice(name, text)
            if notice is not None:
                self._answer_notice(notice, event)
        for name in known.keys() - events.keys():
            self._writer.end_notice(known[name], self._outcome)

    def _answer_notice(self, notice: Resource, event: Mapping[str, Any]) -> None:
        spec, before = notice.get("spec") or {}, notice.get("status") or {}
        generation = notice["metadata"].get("generation", 1)
        message, observed = before.get("message", ""), before.get("observedGeneration", 0)
        if observed != generation:
            answer = self._approve(event) if spec.get("approve") else WishAnswer()
            if answer.final and spec.get("postpone"):
                answer = self._postpone(spec["postpone"], event)
            message, observed = answer.message, generation if answer.final else observed
            if answer.message:
                self._writer.record_event(
                    notice, "Refused" if answer.final else "Waiting", answer.message
                )
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
        status = {key: each for key, each in status.items() if each is not None}
        if status != before:
            self._writer.write(NOTICES, notice, status)
            if before and before.get("state") != status["state"]:
                text = str(status["description"])
                self._writer.record_event(notice, str(status["state"]).capitalize(), text)

    def _approve(self, event: Mapping[str, Any]) -> WishAnswer:
        if event["state"] != "scheduled":
            return WishAnswer()
        return ask_service(self._api, f"/v1/operations/{event['id']}/approve", {})

    def _postpone(self, wish: Mapping[str, Any], event: Mapping[str, Any]) -> WishAnswer:
        form = {"until": wish.get("until"), "reason": wish.get("reason")}
        return ask_service(self._api, f"/v1/events/{event['id']}/postpone", form)

    def _outcome(self, status: Resource) -> Resource:
        """Return the outcome of a notice's event."""
        try:
            outcome = self._api.get(f"/v1/events/{status.get('event', '')}/outcome")
        except CallerError:  # history has dropped it, or it is another owner's now
            outcome = {"result": "unknown", "reason": "", "approved_by": []}
        return {
            "state": outcome["result"],
            "approvedBy": outcome["approved_by"],
            "reason": outcome["reason"],
        }

    # --- requests ---------------------------------------------------------------------------

    def answer_requests(self, requests: list[Resource]) -> None:
        """Carry requests for work out, and show their state and what they wait for."""
        problem: ForewarnError | None = None
        for request in requests:
            deleted = "deletionTimestamp" in request["metadata"]
            try:
                if deleted and FINALIZER in (request["metadata"].get("finalizers") or ()):
                    self._cancel(request)
                elif not deleted:
                    self._answer_request(request)
            except CallerError as error:  # of this request; the others go on
                problem = error
        if problem is not None:
            raise problem

    def _answer_request(self, request: Resource) -> None:
        before = request.get("status") or {}
        if before.get("state") in OVER:
            return
        if not before and not self._hold(request):
            return
        try:
            status = self._status(request)
        except CallerError as error:
            if before or is_temporary(error):
                raise
            status = {"state": "refused", "message": str(error)[:TEXT_CHARACTERS_MAX]}
        if status != before:
            self._writer.write(REQUESTS, request, status)
            if before.get("state") != status["state"]:
                text = status["message"] or ", ".join(status.get("operations", ()))
                self._writer.record_event(request, str(status["state"]).capitalize(), text)

    def _status(self, request: Resource) -> Resource:
        """Carry a new request out; return the status of a request.

        Raises:
            CallerError: the service refuses the request.
        """
        spec = request.get("spec") or {}
        if "declare" in spec:
            return self._declared_requests.status(request)
        known = (request.get("status") or {}).get("operations")
        return self._state(known or self._begin(spec, request["metadata"]["uid"]))

    def _begin(self, spec: Resource, key: str) -> list[str]:
        """Request operations; with a key, they are requested once, whatever crashes."""
        form = {
            "cause": spec.get("cause"),
            "targets": spec.get("targets"),
            "description": spec.get("description"),
            "not_before": spec.get("notBefore"),
        }
        answer = self._api.post("/v1/operations", form, key=key)
        return [each["id"] for each in answer["operations"]]

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

    def _hold(self, request: Resource) -> bool:
        """Add the finalizer, so that the deletion of the request cancels its work.

        Returns whether the request has it.
        """
        if FINALIZER in (request["metadata"].get("finalizers") or ()):
            return True
        finalizers = [*(request["metadata"].get("finalizers") or ()), FINALIZER]
        return self._writer.patch(request, {"finalizers": finalizers})

    def _cancel(self, request: Resource) -> None:
        """Cancel the work of a deleted request, as far as it has not started."""
        status = request.get("status") or {}
        if "maintenance" not in status and "operations" not in status:
            status = self._unwritten(request)
        paths = [f"/v1/operations/{each}/cancel" for each in status.get("operations") or ()]
        if "maintenance" in status:
            paths.append(f"/v1/maintenances/{status['maintenance']}/cancel")
        for path in paths:
            reason = {"reason": "the Maintenance was deleted"}
            answer = ask_service(self._api, path, reason)
            if not answer.final:
                return
        finalizers = [each for each in request["metadata"]["finalizers"] if each != FINALIZER]
        self._writer.patch(request, {"finalizers": finalizers})
        self._writer.released(request)

    def _unwritten(self, request: Resource) -> Resource:
        """Return the work that was requested before its ids could be written into the status."""
        try:
            answer = self._api.get("/v1/answers", key=request["metadata"]["uid"])
        except CallerError as error:
            if is_temporary(error):
                raise
            if error.code != MISSING_ANSWER:  # nobody knows the work's ids
                self._writer.record_event(request, "CancelFailed", f"{error} {error.advice_text()}")
            return {}
        if "maintenance" in answer:
            return {"maintenance": answer["maintenance"]["id"]}
        return {"operations": [each["id"] for each in answer.get("operations", ())]}


def _notice_name(event: str) -> str:
    return f"event-{event.lower()}"
