"""Requests for work on hosts that is declared to the owners of their VMs first.

A request becomes a maintenance, which is created and declared once; its status has what the
operator of the request sees of the declaration: hosts with choices, deferrals and openings.
Source: K-4, T-1.
"""

from __future__ import annotations

from typing import Any

from forewarn_base.errors import CallerError
from forewarn_kubernetes.declared_notices import DeclaredNotices, status_of
from forewarn_kubernetes.namespace_writer import (
    TEXT_CHARACTERS_MAX,
    OwnerApi,
    Resource,
    is_temporary,
)

#: Code of the answer to a call that a second person must confirm.
AWAITED = "confirmation-awaited"
#: States of a maintenance in which its declaration is shown.
LIVE = frozenset({"running", "paused", "stopped"})


class DeclaredRequests:
    """The requests of one namespace for declared work."""

    def __init__(self, api: OwnerApi, notices: DeclaredNotices) -> None:
        self._api = api
        self._notices = notices

    def status(self, request: Resource) -> Resource:
        """Create and declare the maintenance of a new request; return the status of a request.

        Raises:
            CallerError: the service refuses the request.
        """
        before = request.get("status") or {}
        number, message = before.get("maintenance"), str(before.get("message", ""))
        if not number:
            number, message = self._declare(request)
        maintenance = self._api.get(f"/v1/maintenances/{number}")["maintenance"]
        state = maintenance["state"]
        if state != "draft":
            blocker = maintenance["waits_for"]
            message = maintenance["halt_reason"] or (blocker["text"] if blocker else "")
        members: Resource = {}
        if state in LIVE:
            members = self._declared(number, before, request["metadata"].get("generation", 1))
        if state == "running":
            state = members.get("state", state)
        message = message[:TEXT_CHARACTERS_MAX]
        return {**members, "maintenance": number, "state": state, "message": message}

    def _declare(self, request: Resource) -> tuple[str, str]:
        """Create a maintenance and declare it; return its id, and what it waits for.

        With the request's uid as the key it is created once, whatever crashes.
        """
        spec, key = request["spec"], request["metadata"]["uid"]
        form: dict[str, Any] = {
            "cause": spec["cause"],
            "hosts": spec["targets"],
            "duration": spec.get("duration"),
            "reason": spec.get("description"),
            "description": spec.get("description"),
            "earliest_start": spec.get("notBefore"),
        }
        maintenance = self._api.post("/v1/maintenances", form, key=key)["maintenance"]
        number, declare = str(maintenance["id"]), spec["declare"]
        if self._api.get(f"/v1/maintenances/{number}")["maintenance"]["state"] != "draft":
            return number, ""
        form = {"hand_back": declare.get("handBack"), "severity": declare.get("severity")}
        try:
            self._api.post(f"/v1/maintenances/{number}/declare", form)
        except CallerError as error:
            if error.code == AWAITED:
                return number, str(error)
            if is_temporary(error):
                raise  # declared or not, the next turn asks again
            self._api.post(f"/v1/maintenances/{number}/cancel", {"reason": str(error)[:200]})
            raise
        return number, ""

    def _declared(self, number: str, before: Resource, generation: int) -> Resource:
        """Return the declaration as members of a status; empty if no host has a VM."""
        try:
            declaration = self._api.get(f"/v1/declarations/{number}")["declaration"]
        except CallerError:
            return {}
        status = self._notices.with_openings(status_of(declaration), before, generation)
        return {**status, "observedGeneration": generation}
