"""Declared maintenances as notices of a namespace, whose tenants choose a start by a patch.

A notice lists the owner's VMs on each host with what stands between them and the work. The choices
in its spec are sent to the service once for each generation; all take effect, or none.
Source: T-2, K-4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.drivers.kubernetes.namespace_writer import (
    NOTICES,
    TEXT_CHARACTERS_MAX,
    NamespaceWriter,
    OwnerApi,
    Resource,
    WishAnswer,
    ask_service,
)

PREFIX = "declaration-"
#: States of declared resources, the one that a notice shows first.
STATES = (
    "displaced",
    "open",
    "waiting-for-other-work",
    "due",
    "chosen",
    "released",
    "announced",
    "started",
    "failed",
    "done",
)


class DeclaredNotices:
    """The notices of one namespace about declared maintenances."""

    def __init__(self, writer: NamespaceWriter, api: OwnerApi) -> None:
        self._writer = writer
        self._api = api

    def answer(self, notices: list[Resource]) -> None:
        """Create, answer, update and end the notices of the owner's declarations."""
        known = {each["metadata"]["name"]: each for each in notices}
        declarations = {f"{PREFIX}{each['id']}": each for each in self._api.declarations()}
        for name, declaration in declarations.items():
            notice = known.get(name) or self._writer.create_notice(name, _text(declaration))
            if notice is not None:
                self._answer(notice, declaration)
        for name in known.keys() - declarations.keys():
            self._writer.end_notice(known[name], lambda _: {"state": "ended"})

    def _answer(self, notice: Resource, declaration: Mapping[str, Any]) -> None:
        choices, before = (notice.get("spec") or {}).get("choices"), notice.get("status") or {}
        generation = notice["metadata"].get("generation", 1)
        message, observed = before.get("message", ""), before.get("observedGeneration", 0)
        if observed != generation:
            answer = WishAnswer()
            if choices:
                path = f"/v1/declarations/{declaration['id']}"
                # With its key, a choice is made once, although a crash may hide the answer.
                key = f"{notice['metadata']['uid']}-{generation}"
                answer = ask_service(self._api, f"{path}/choices", {"choices": choices}, key=key)
                declaration = self._api.get(path)["declaration"]
            # The advice has the nearest openings.
            message = f"{answer.message} {answer.advice}".strip()
            observed = generation if answer.final else observed
            if message:
                self._writer.tell(notice, "Refused" if answer.final else "Waiting", message)
        status = {
            **status_of(declaration),
            "message": message[:TEXT_CHARACTERS_MAX],
            "observedGeneration": observed,
        }
        if status == before:
            return
        self._writer.write(NOTICES, notice, status)
        if before and before.get("state") != status["state"]:
            self._writer.tell(notice, _reason(status["state"]), _text(declaration))


def status_of(declaration: Mapping[str, Any]) -> Resource:
    """Return a declaration in the form of `GET /v1/declarations` as members of a status."""
    resources: list[Mapping[str, Any]] = declaration["resources"]
    states = {each["state"] for each in resources}
    starts = [each["start"] for each in resources if each["start"]]
    status = {
        "declaration": declaration["id"],
        "type": declaration["impact"],
        "severity": declaration["severity"],
        "state": next(each for each in STATES if each in states),
        "resources": sorted({vm for each in resources for vm in each["vms"]}),
        "notBefore": min(starts, default=None),
        "handBackDeadline": declaration["hand_back_deadline"],
        "expectedInterruptionSeconds": declaration["interruption_s"],
        "description": declaration["reason"],
        "hosts": [_host(each) for each in resources],
    }
    return {key: each for key, each in status.items() if each is not None}


def _host(resource: Mapping[str, Any]) -> Resource:
    names = {
        "host": "host",
        "vms": "vms",
        "state": "state",
        "hand_back_deadline": "handBackDeadline",
        "start": "start",
        "decision": "decision",
        "chosen_start": "chosenStart",
    }
    return {new: resource[old] for old, new in names.items() if resource[old] is not None}


def _reason(state: str) -> str:
    """Return a state as the reason of a Kubernetes event, which is one word."""
    return "".join(each.capitalize() for each in state.split("-"))


def _text(declaration: Mapping[str, Any]) -> str:
    count = len(declaration["resources"])
    hosts = "1 host" if count == 1 else f"{count} hosts"
    until = declaration["hand_back_deadline"]
    return f"{declaration['impact']} of {hosts} is declared; choose a start until {until}"
