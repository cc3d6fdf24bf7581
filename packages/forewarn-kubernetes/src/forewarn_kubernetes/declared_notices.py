"""Declared maintenances as notices of a namespace, whose tenants choose a start by a patch.

A notice lists the owner's VMs on each host with what stands between them and the work, and the
openings from which the owner may choose. Choices and requests for later deadlines in its spec are
sent to the service once for each generation, as far as they have changed. All choices take effect,
or none. Source: T-2, T-4, K-4.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_kubernetes.namespace_writer import (
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
    "held",
    "due",
    "chosen",
    "released",
    "announced",
    "started",
    "failed",
    "done",
)
#: States in which the owner may still choose, so that the notice lists openings.
CHOOSABLE = frozenset((*STATES[:3], "chosen", "released"))
#: Hosts of a notice with openings, and openings of a host; `declaration openings` lists all.
OPENING_HOSTS_MAX, OPENINGS_MAX = 20, 10
#: How long the openings of a notice stay as they are if nothing else changes, in ms.
OPENINGS_MS = 900_000
#: Part of a spec -> the member of the status with a digest of what was answered last. Deferrals
#: are sent first, because a granted one withdraws the choices that were made before it.
OBSERVED = {"deferrals": "observedDeferrals", "choices": "observedChoices"}


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
        before = notice.get("status") or {}
        generation = notice["metadata"].get("generation", 1)
        message, observed = before.get("message", ""), before.get("observedGeneration", 0)
        marks = {each: before[each] for each in OBSERVED.values() if each in before}
        if observed != generation:
            answer, marks = self._ask(notice, declaration["id"], marks)
            declaration = self._api.get(f"/v1/declarations/{declaration['id']}")["declaration"]
            # The advice has the nearest openings.
            message = f"{answer.message} {answer.advice}".strip()
            observed = generation if answer.final else observed
            if message:
                self._writer.record_event(notice, "Refused" if answer.final else "Waiting", message)
        status = {
            **self.with_openings(status_of(declaration), before, generation),
            **marks,
            "message": message[:TEXT_CHARACTERS_MAX],
            "observedGeneration": observed,
        }
        if status == before:
            return
        self._writer.write(NOTICES, notice, status)
        if before and before.get("state") != status["state"]:
            self._writer.record_event(notice, _reason(status["state"]), _text(declaration))
        for state, text in _answered_deferrals(before, status):
            self._writer.record_event(notice, f"Deferral{state.capitalize()}", text)

    def _ask(
        self, notice: Resource, number: str, before: Mapping[str, str]
    ) -> tuple[WishAnswer, dict[str, str]]:
        """Send the changed parts of a spec; return the answer, and digests of what it answers."""
        spec, meta = notice.get("spec") or {}, notice["metadata"]
        answer, marks = WishAnswer(), {}
        for part, mark in OBSERVED.items():
            wishes = spec.get(part) or []
            digest = hashlib.sha256(json.dumps(wishes, sort_keys=True).encode()).hexdigest()[:16]
            if wishes and before.get(mark) != digest and answer.final:
                path = f"/v1/declarations/{number}/{part}"
                forms = [{"choices": wishes}] if part == "choices" else wishes
                for index, form in enumerate(forms):
                    # With its key, a wish is sent once, although a crash may hide the answer.
                    key = f"{meta['uid']}-{meta.get('generation', 1)}-{part}-{index}"
                    one = ask_service(self._api, path, form, key=key)
                    answer = one if one.message and answer.final else answer
            if wishes and (answer.final or before.get(mark) == digest):
                marks[mark] = digest
        return answer, marks

    def with_openings(self, status: Resource, before: Resource, generation: int) -> Resource:
        """Return a status with the openings of its hosts; keep those of the notice for a while."""
        known = {each["host"]: each for each in before.get("hosts") or ()}
        now_ms = self._writer.now_ms
        checked = before.get("openingsAt")
        kept = (
            checked is not None
            and before.get("observedGeneration") == generation
            and now_ms < parse(str(checked)) + OPENINGS_MS
            and _openings_depend_on(before) == _openings_depend_on(status)
        )
        hosts, count = [], 0
        for host in status["hosts"]:
            openings = known.get(host["host"], {}).get("openings", ())
            if host["state"] not in CHOOSABLE or count == OPENING_HOSTS_MAX:
                openings = ()
            elif not kept:
                count += 1
                openings = self._openings(status["declaration"], host["host"])
            hosts.append({**host, "openings": openings} if openings else host)
        if not any("openings" in each for each in hosts):
            return status
        checked = checked if kept else iso8601(now_ms - now_ms % 1000)
        return {**status, "hosts": hosts, "openingsAt": checked}

    def _openings(self, number: str, host: str) -> list[Resource]:
        try:
            answer = self._api.get(f"/v1/declarations/{number}/openings", host=host)
        except CallerError:  # the declaration or the VMs have changed; the next turn shows it
            return []
        return [
            {key: each for key, each in opening.items() if each is not None}
            for opening in answer["openings"][:OPENINGS_MAX]
        ]


def _openings_depend_on(status: Resource) -> tuple[object, ...]:
    """Return the parts of a status whose change also changes openings."""
    hosts = status.get("hosts") or ()
    bare = [{key: host[key] for key in host if key != "openings"} for host in hosts]
    return bare, status.get("testGroups")


def _answered_deferrals(before: Resource, status: Resource) -> list[tuple[str, str]]:
    """Return the state and a sentence of each request for a later deadline that has changed."""
    known = {each["host"]: each.get("deferral") for each in before.get("hosts") or ()}
    changed = []
    for host in status["hosts"]:
        deferral = host.get("deferral")
        if deferral and deferral != known.get(host["host"]):
            reason = deferral.get("answer", "")
            text = f"{host['host']} until {deferral['until']}{f': {reason}' if reason else ''}"
            changed.append((str(deferral["state"]), text))
    return changed


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
        "testGroups": [_test_group(each) for each in declaration["first_groups"]] or None,
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
    host = {new: resource[old] for old, new in names.items() if resource[old] is not None}
    if resource["order"] != "any":
        host["order"] = resource["order"]
    if resource["deferral"]:
        names = {
            "state": "state",
            "until": "until",
            "reason": "reason",
            "decide_by": "decideBy",
            "answer": "answer",
        }
        deferral = resource["deferral"]
        host["deferral"] = {new: deferral[old] for old, new in names.items() if deferral[old]}
    return host


def _test_group(order: Mapping[str, Any]) -> Resource:
    group = {"group": order["group"], "observationSeconds": order["observation_s"]}
    return group | {key: order[key] for key in ("held", "problem") if order[key]}


def _reason(state: str) -> str:
    """Return a state as the reason of a Kubernetes event, which is one word."""
    return "".join(each.capitalize() for each in state.split("-"))


def _text(declaration: Mapping[str, Any]) -> str:
    count = len(declaration["resources"])
    hosts = "1 host" if count == 1 else f"{count} hosts"
    until = declaration["hand_back_deadline"]
    return f"{declaration['impact']} of {hosts} is declared; choose a start until {until}"
