"""Consul: puts the node or a service into maintenance; leaves other maintenances unchanged."""

from __future__ import annotations

import os
from urllib.parse import quote

from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import call, expect, secret
from forewarn.agent.preparations.wait_until import persist

ADDRESS = "http://127.0.0.1:8500"
NODE_CHECK = "_node_maintenance"


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Put the node, or the service in the settings, into maintenance."""
    if _in_maintenance(settings):
        return "already in maintenance, set by another program or an earlier attempt"
    step_state.write({"entered": True})
    _maintain(settings, enable=True, reason=str(settings.get("reason", _reason(hook))))
    return f"in maintenance: {settings.get('service', 'the node')}"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """End the maintenance that `prepare` began."""
    if not step_state.read().get("entered"):
        return "the maintenance belongs to another program"
    _maintain(settings, enable=False, reason="")
    step_state.clear()
    return f"maintenance ended: {settings.get('service', 'the node')}"


def _maintain(settings: dict[str, object], *, enable: bool, reason: str) -> None:
    service = settings.get("service")
    place = f"service/maintenance/{quote(str(service), safe='')}" if service else "maintenance"
    url = f"{_address(settings)}/v1/agent/{place}?enable={str(enable).lower()}"
    url += f"&reason={quote(reason, safe='')}" if reason else ""
    headers = _headers(settings)
    persist(lambda: expect(call("PUT", url, headers=headers), "PUT", url=url, statuses=(200,)))


def _in_maintenance(settings: dict[str, object]) -> bool:
    url = f"{_address(settings)}/v1/agent/checks"
    headers = _headers(settings)
    response = persist(
        lambda: expect(call("GET", url, headers=headers), "GET", url=url, statuses=(200,))
    )
    service = settings.get("service")
    wanted = f"_service_maintenance:{service}" if service else NODE_CHECK
    return wanted in response.form()


def _address(settings: dict[str, object]) -> str:
    return str(settings.get("address") or os.environ.get("CONSUL_HTTP_ADDR") or ADDRESS).rstrip("/")


def _headers(settings: dict[str, object]) -> dict[str, str]:
    token = secret(settings.get("token_file"))
    return {"X-Consul-Token": token} if token else {}


def _reason(hook: dict[str, object]) -> str:
    event = hook.get("event")
    kind = event.get("event_type", "") if isinstance(event, dict) else ""
    return f"scheduled event {kind}".strip()
