"""The steps, by name, and the tenant that asks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, TypeAlias
from urllib.parse import urlencode

from forewarn_base.errors import PeerError
from forewarn_base.http_client import ClientRequest, exchange
from forewarn_base.values import value

Answer: TypeAlias = dict[str, Any]
#: Time limit of one call, in seconds.
CALL_TIMEOUT_S = 30.0
#: Largest answer that is read, in bytes.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
#: Causes of operations that are failures.
FAILURES = frozenset({"hardware-failure", "host-lost", "hardware-degraded"})
#: States of declared work that has an operation.
ANNOUNCED = frozenset({"announced", "started", "done", "failed"})
_NO_CORDON = "Forewarn has no cordon: an operator decides about new VMs on a host"
_NO_REPLACEMENT = "Forewarn has no spare pool: an operator decides about a report (`ticket open`)"


class StepRefused(PeerError):
    """The service has refused a call of a step."""

    code = "step-refused"
    message = "The service answered {status} to {path}: {reason}."
    advice = "Check FOREWARN_SERVER, FOREWARN_TOKEN, and the names in the options."


@value
class Tenant:
    """A tenant's access to a service, and the machine or rack that a step is about."""

    server: str
    token: str
    machine: str = ""
    rack: str = ""

    def get(self, path: str, **query: str) -> Answer:
        """Return the answer to a GET; raises `StepRefused`."""
        filled = {name: each for name, each in query.items() if each}
        return self._call("GET", f"{path}?{urlencode(filled)}" if filled else path)

    def post(self, path: str, form: Mapping[str, object]) -> Answer:
        """Return the answer to a POST; raises `StepRefused`."""
        return self._call("POST", path, json.dumps(form).encode())

    def _call(self, method: str, path: str, body: bytes = b"") -> Answer:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body:
            headers["Content-Type"] = "application/json"
        request = ClientRequest(method, f"{self.server.rstrip('/')}{path}", headers, body)
        try:
            response = exchange(
                request, timeout_s=CALL_TIMEOUT_S, ca_file="", bytes_max=ANSWER_BYTES_MAX
            )
            answer: Answer = json.loads(response.body)
        except (OSError, HTTPException, ValueError) as error:
            raise StepRefused(status="nothing", path=path, reason=error) from error
        if response.status >= 300:
            reason = answer.get("error", {}).get("message", "no reason").rstrip(".")
            raise StepRefused(status=response.status, path=path, reason=reason)
        return answer

    def operations(self) -> list[Answer]:
        """Return the platform's work on hosts that the tenant sees, newest first."""
        work: list[Answer] = self.get("/v1/operations", host=self.machine)["operations"]
        return [e for e in work if e["target_kind"] == "host" and e["source"] == "Platform"]

    def declared(self) -> list[tuple[Answer, Answer]]:
        """Return declared maintenances, with each resource whose work is not announced yet."""
        return [
            (each, one)
            for each in self.get("/v1/declarations")["declarations"]
            for one in each["resources"]
            if one["host"] == (self.machine or one["host"]) and one["state"] not in ANNOUNCED
        ]

    def tickets(self, kind: str = "") -> list[Answer]:
        """Return the tickets that the tenant sees, newest first."""
        tickets: list[Answer] = self.get("/v1/tickets", type=kind, host=self.machine)["tickets"]
        return tickets


def answer_of(step: str, tenant: Tenant) -> Answer:
    """Return the JSON object of a step; a refused call is a step without success."""
    try:
        return STEPS[step](tenant)
    except StepRefused as error:
        return {"success": False, "error": str(error)}


def _maintenance_events(tenant: Tenant) -> Answer:
    events = [
        {
            "machine_id": each["host"],
            "status": each["state"],
            "message": each["description"],
            "id": each["id"],
        }
        for each in tenant.operations()
    ]
    events += [
        {
            "machine_id": one["host"],
            "status": "declared",
            "message": each["reason"],
            "id": each["id"],
            "hand_back_deadline": one["hand_back_deadline"],
        }
        for each, one in tenant.declared()
    ]
    return {"success": True, "events_queryable": True, "events": events}


def _retirement_notices(tenant: Tenant) -> Answer:
    notices = [
        {
            "target_type": "rack" if each["target_kind"] == "rack" else "node",
            "target_id": each["target"],
            "notice_type": each["type"],
            "origin_kind": "provider",
            "origin": each["actor"],
            "not_before": each["due"],
            "id": each["id"],
        }
        for each in tenant.tickets("retirement")
    ]
    return {"success": True, "notices_queryable": True, "notices": notices}


def _repair_history(tenant: Tenant) -> Answer:
    machines: dict[str, list[Answer]] = {}
    for each in tenant.tickets():
        if each["type"] in {"report", "repair", "incident"} and each["host"]:
            names = ("id", "type", "state", "category", "description", "action", "external")
            entry = {name: each[name] for name in (*names, "opened", "updated", "closed")}
            machines.setdefault(each["host"], []).append(entry)
    records = [{"machine_id": name, "entries": entries} for name, entries in machines.items()]
    return {"success": True, "history_queryable": True, "records": records}


def _planned_notifications(tenant: Tenant) -> Answer:
    return _notifications(tenant, "planned")


def _failure_notifications(tenant: Tenant) -> Answer:
    return _notifications(tenant, "failure")


def _notified_at(work: Answer) -> str | None:
    """Return when VMs were notified; None: none was, or not yet. A failure is its own notice."""
    sudden: str | None = work["started"] if work["cause"] in FAILURES else None
    return work["shown"] or sudden


def _notifications(tenant: Tenant, kind: str) -> Answer:
    """Return the work of a kind that the tenant was notified of, with the time of its notice."""
    notifications = [
        {
            "machine_id": each["host"],
            "type": kind,
            "message": each["description"],
            "notified_at": _notified_at(each),
            "id": each["id"],
        }
        for each in tenant.operations()
        if (each["cause"] in FAILURES) is (kind == "failure") and _notified_at(each)
    ]
    notifications += [
        {
            "machine_id": one["host"],
            "type": kind,
            "message": each["reason"],
            "notified_at": each["declared"],
            "id": each["id"],
        }
        for each, one in (tenant.declared() if kind == "planned" else ())
    ]
    return {
        "success": True,
        "notification_channel_observable": True,
        "notifications": notifications,
    }


def _return_node(tenant: Tenant) -> Answer:
    if not tenant.machine:
        return _skip("--machine-id names the node to return")
    ticket = _return_report(tenant, "host", tenant.machine)
    works = any(each["state"] in {"announced", "running"} for each in tenant.operations())
    operation = {
        "requested": True,
        "accepted": ticket["state"] != "refused",
        "machine_id": ticket["target"],
        "maintenance_mode": works,
        "id": ticket["id"],
    }
    return {"success": operation["accepted"], "operation": operation}


def _return_rack(tenant: Tenant) -> Answer:
    if not tenant.rack:
        return _skip("--rack-id names the rack to return")
    ticket = _return_report(tenant, "rack", tenant.rack)
    operation = {
        "requested": True,
        "accepted": ticket["state"] != "refused",
        "rack_id": ticket["target"],
        "id": ticket["id"],
    }
    return {"success": operation["accepted"], "operation": operation}


def _return_report(tenant: Tenant, kind: str, name: str) -> Answer:
    """Return the live report by which the tenant returns a target; open it if there is none."""
    text = "returned for maintenance by its tenant"
    for each in tenant.get("/v1/tickets", type="report", target=name, live="true")["tickets"]:
        if each["description"] == text:
            return dict(each)
    form = {"target_kind": kind, "target": name, "description": text}
    return tenant.get(f"/v1/tickets/{tenant.post('/v1/tickets', form)['id']}")


def _skip(reason: str) -> Answer:
    return {"success": False, "skipped": True, "reason": reason}


#: The steps by their names in the suite.
STEPS: dict[str, Callable[[Tenant], Answer]] = {
    "query_maintenance_events": _maintenance_events,
    "query_retirement_notices": _retirement_notices,
    "query_repair_history": _repair_history,
    "query_planned_notifications": _planned_notifications,
    "query_failure_notifications": _failure_notifications,
    "return_node_maintenance": _return_node,
    "return_rack_maintenance": _return_rack,
    "cordon_node": lambda _: _skip(_NO_CORDON),
    "request_host_replacement": lambda _: _skip(_NO_REPLACEMENT),
}
