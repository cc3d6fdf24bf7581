"""Metrics of metadata processes, from their counters.

`metadata/responder.py` counts the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.core import Metric


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
_OF_CARRIER = {
    "feed_gaps_filled": "Gaps in the feed over NATS, filled on request.",
    "feed_messages_refused": "Messages of the feed over NATS with a wrong checksum.",
}
_APPROVALS = ("accepted", "refused", "unanswered")


def metadata_families(figures: Mapping[str, Mapping[str, int]]) -> list[Metric]:
    """Return the metrics of metadata processes by the processes' names."""
    metrics: list[Metric] = []
    for name, text in _COUNTERS.items():
        counter = CounterMetricFamily(f"forewarn_metadata_{name}", text, labels=["process"])
        for process, counts in figures.items():
            counter.add_metric([process], counts.get(name, 0))
        metrics.append(counter)
    for name, text in _GAUGES.items():
        gauge = GaugeMetricFamily(f"forewarn_metadata_{name}", text, labels=["process"])
        for process, counts in figures.items():
            gauge.add_metric([process], counts.get(name, 0))
        metrics.append(gauge)
    text = "Approvals from VMs, by answer: 200, refused, or 503."
    approvals = CounterMetricFamily(
        "forewarn_metadata_approvals", text, labels=["process", "result"]
    )
    for process, counts in figures.items():
        for result in _APPROVALS:
            approvals.add_metric([process, result], counts.get(f"approvals_{result}", 0))
    return [*metrics, approvals]


def client_families(user_agents: Mapping[str, int]) -> list[Metric]:
    """Return the number of VMs by client; the rarest clients are combined as `other`."""
    text = f"VMs that polled within a day, by client; the {CLIENTS_NAMED_MAX} most frequent."
    clients = GaugeMetricFamily("forewarn_vms_polling", text, labels=["client"])
    ranked = sorted(user_agents.items(), key=lambda each: -each[1])
    for name, count in ranked[:CLIENTS_NAMED_MAX]:
        clients.add_metric([name], count)
    clients.add_metric(["other"], sum(count for _, count in ranked[CLIENTS_NAMED_MAX:]))
    return [clients]


def feed_families(lags: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of metadata nodes and workers, from `FeedServer.lags`."""
    away = sum(1 for lag in lags.values() if lag < 0)
    behind = sum(1 for lag in lags.values() if lag > 0)
    text = "Metadata nodes and workers: current, behind, or disconnected."
    nodes = GaugeMetricFamily("forewarn_feed_nodes", text, labels=["state"])
    for state, count in (
        ("current", len(lags) - away - behind),
        ("behind", behind),
        ("away", away),
    ):
        nodes.add_metric([state], count)
    text = (
        "Changes that a node does not show yet, -1 for disconnected nodes;"
        f" the {NODES_NAMED_MAX} worst nodes."
    )
    lag = GaugeMetricFamily("forewarn_feed_lag_changes", text, labels=["node"])
    worst = sorted(lags.items(), key=lambda each: (each[1] >= 0, -each[1]))[:NODES_NAMED_MAX]
    for name, changes in worst:
        lag.add_metric([name], changes)
    return [nodes, lag]


def carrier_families(counts: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of the feed over NATS; empty without such a feed."""
    if not counts:
        return []
    text = "Whether this process is connected to a NATS server for the feed."
    connected = counts["feed_nats_connected"]
    return [
        GaugeMetricFamily("forewarn_feed_nats_connected", text, value=connected),
        *(
            CounterMetricFamily(f"forewarn_{name}", text, value=counts[name])
            for name, text in _OF_CARRIER.items()
        ),
    ]


def node_families(status: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of a metadata node's feed connection."""
    return [
        GaugeMetricFamily(f"forewarn_node_{name}", text, value=status[name])
        for name, text in _OF_NODE.items()
    ]
