"""A declared maintenance as an event of a managed cluster, as AKS shows its upgrades; pure.

Event Grid and Resource Graph show the same event. Source: Z-11.
"""

from __future__ import annotations

from forewarn_base.ids import guid_of
from forewarn_base.values import value

GRID_TYPE = "Microsoft.ResourceNotifications.ContainerServiceEventResources.ScheduledEventEmitted"
RESOURCE_TYPE = "Microsoft.ContainerService/managedClusters/scheduledEvents"
API_VERSION = "2023-11-02-preview"
#: Azure's time for what has not happened.
NEVER = "0001-01-01T00:00:00Z"
SCHEDULED, STARTED, FAILED = "Scheduled", "Started", "Failed"
#: Action of history -> status of the event.
STATUSES = {
    "maintenance.declared": SCHEDULED,
    "maintenance.emergency": SCHEDULED,
    "maintenance.wave-begun": STARTED,
    "maintenance.done": "Completed",
    "maintenance.cancelled": "Canceled",
    "maintenance.stopped": FAILED,
}


@value
class ClusterEvent:
    """One maintenance of the nodes of one managed cluster."""

    #: Resource Manager's id of the cluster.
    cluster: str
    #: Id of the maintenance, such as m-12.
    maintenance: str
    #: One of `STATUSES`, as Azure writes it.
    status: str
    #: The work, for people.
    details: str
    #: When the work may begin unless owners choose otherwise, ISO 8601.
    scheduled: str
    #: Time of the last change, ISO 8601; empty: unknown.
    updated: str = ""

    @property
    def name(self) -> str:
        """The event's id, the same for every status."""
        return guid_of(f"{self.cluster.lower()}/{self.maintenance}").lower()

    @property
    def id(self) -> str:
        """Resource Manager's id of the event."""
        return f"{self.cluster}/scheduledEvents/{self.name}"

    def properties(self) -> dict[str, object]:
        """Return the event's members in Azure's names."""
        started = self.updated if self.status == STARTED else ""
        return {
            "description": "ScheduledEvents",
            "eventId": self.name,
            "eventSource": "Forewarn",
            "eventStatus": self.status,
            "eventDetails": self.details,
            "scheduledTime": self.scheduled,
            "startTime": started or NEVER,
            "lastUpdateTime": self.updated or NEVER,
            "resources": [self.cluster],
            "resourceType": "ManagedCluster",
        }


def details_of(cause: str, hosts: int, reason: str) -> str:
    """Return what a maintenance does, for people."""
    nodes = "1 node" if hosts == 1 else f"{hosts} nodes"
    return f"{cause} of {nodes}{f': {reason}' if reason else ''}"
