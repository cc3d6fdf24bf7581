"""Metrics of metadata processes, from their counters.

`endpoint/responder.py` counts the requests.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from prometheus_client.core import Metric

from forewarn_server.telemetry.families import counter, gauge

#: Most nodes in a scrape, selected by the number of missing changes.
NODES_NAMED_MAX = 200
#: Most clients in a scrape.
CLIENTS_NAMED_MAX = 20

_COUNTERS = {
    "documents_polled": "Documents polled, each counted at most once per second.",
    "throttled": "Requests answered 429.",
    "unknown_callers": "Requests of unknown callers, answered 404.",
    "changes": "Document changes received from the control plane.",
}
_GAUGES = {
    "connections": "Open connections.",
    "vms": "VMs served by the process.",
}
_OF_NODE = {
    "feed_connected": "Whether the node is connected to the feed and current.",
    "feed_sequence": "Number of the last change shown by the node.",
    "spooled_approvals": "Accepted approvals that the node has not delivered yet.",
}
_APPROVALS = ("accepted", "refused", "unanswered")


def metadata_families(figures: Mapping[str, Mapping[str, int]]) -> list[Metric]:
    """Return the metrics of metadata processes by the processes' names."""
    metrics: list[Metric] = []
    for make, texts in ((counter, _COUNTERS), (gauge, _GAUGES)):
        for name, text in texts.items():
            values = {process: counts.get(name, 0) for process, counts in figures.items()}
            metrics.append(make(f"metadata_{name}", text, values, "process"))
    text = "Approvals from VMs, by answer: 200, refused, or 503."
    approvals = {
        (process, result): counts.get(f"approvals_{result}", 0)
        for process, counts in figures.items()
        for result in _APPROVALS
    }
    return [*metrics, counter("metadata_approvals", text, approvals, "process", "result")]


def client_families(user_agents: Mapping[str, int]) -> list[Metric]:
    """Return the number of VMs by client; the rarest clients are combined as `other`."""
    text = f"VMs that polled within a day, by client; the {CLIENTS_NAMED_MAX} most frequent."
    ranked = sorted(user_agents.items(), key=lambda each: -each[1])
    clients = Tally(dict(ranked[:CLIENTS_NAMED_MAX]))
    clients["other"] += sum(count for _, count in ranked[CLIENTS_NAMED_MAX:])
    return [gauge("vms_polling", text, clients, "client")]


def feed_families(lags: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of metadata nodes and workers, from `FeedServer.lags`."""
    away = sum(1 for lag in lags.values() if lag < 0)
    behind = sum(1 for lag in lags.values() if lag > 0)
    text = "Metadata nodes and workers: current, behind, or disconnected."
    states = {"current": len(lags) - away - behind, "behind": behind, "away": away}
    nodes = gauge("feed_nodes", text, states, "state")
    text = (
        "Changes that a node does not show yet, -1 for disconnected nodes;"
        f" the {NODES_NAMED_MAX} worst nodes."
    )
    worst = sorted(lags.items(), key=lambda each: (each[1] >= 0, -each[1]))[:NODES_NAMED_MAX]
    return [nodes, gauge("feed_lag_changes", text, dict(worst), "node")]


def node_families(status: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of a metadata node's feed connection."""
    return [gauge(f"node_{name}", text, status[name]) for name, text in _OF_NODE.items()]
