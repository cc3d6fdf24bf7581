"""Compute services of hosts: disable, enable, force down, and check.

The reason of a disabled service names the operation. Only the named operation enables the service
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.errors import PeerError

if TYPE_CHECKING:
    from forewarn.drivers.nova.client import Nova

#: Maximum length of a disabled service's reason in Nova, in characters.
REASON_MAX = 255
ENABLED, DISABLED, UP = "enabled", "disabled", "up"


class HostUnknown(PeerError):
    """The cloud has no compute service on a host."""

    code = "nova-host-unknown"
    message = "The cloud has no compute service on host {host}."
    advice = "Check `openstack compute service list --service nova-compute`."


class ComputeHosts:
    """The compute services of a cloud, changed for one operation."""

    def __init__(self, nova: Nova, key: str) -> None:
        self._nova = nova
        self._mark = f"forewarn {key}: "

    def disable(self, host: str, why: str) -> None:
        """Disable a host's compute service, unless already disabled by another program."""
        service = self._service(host)
        if service["status"] == ENABLED:
            reason = f"{self._mark}{why}"[:REASON_MAX]
            self._change(service, {"status": DISABLED, "disabled_reason": reason})

    def enable(self, host: str) -> None:
        """Enable a host's compute service that this operation has disabled."""
        service = self._service(host)
        reason = service["disabled_reason"] or ""
        if service["status"] == DISABLED and reason.startswith(self._mark):
            self._change(service, {"status": ENABLED})

    def force_down(self, host: str) -> None:
        """Force a host's compute service down, until an operator clears this state."""
        service = self._service(host)
        if not service["forced_down"]:
            self._change(service, {"forced_down": True})

    def is_up(self, host: str) -> bool:
        """Whether a host's compute service is up."""
        return str(self._service(host)["state"]) == UP

    def _service(self, host: str) -> dict[str, Any]:
        query = {"binary": "nova-compute", "host": host}
        services: list[dict[str, Any]] = self._nova.get("/os-services", **query)["services"]
        if not services:
            raise HostUnknown(host=host)
        return services[0]

    def _change(self, service: dict[str, Any], body: dict[str, Any]) -> None:
        self._nova.put(f"/os-services/{service['id']}", body)
