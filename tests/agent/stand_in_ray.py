"""Stand-in for the program `ray`: `list nodes` and `drain-node` over a cluster in a JSON file.

A drained node leaves after the list has been asked for `looks` more times. Each command takes
`start_s` seconds to start, and `drain-node` another `drain_start_s`.
"""

import argparse
import json
import sys
import threading
from pathlib import Path

CLUSTER = Path(__file__).with_suffix(".json")


def main() -> int:
    """Carry out one command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="+")
    for option in ("node-id", "reason", "reason-message", "address", "format", "limit"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--deadline-remaining-seconds", type=int)
    options = parser.parse_args()
    cluster = json.loads(CLUSTER.read_text())
    threading.Event().wait(cluster.get("start_s", 0))
    if options.words == ["drain-node"]:
        threading.Event().wait(cluster.get("drain_start_s", 0))
    if cluster.pop("failures", 0):
        CLUSTER.write_text(json.dumps(cluster))
        sys.stderr.write("ConnectionError: could not connect to the GCS\n")
        return 1
    if options.words == ["list", "nodes"]:
        for node in cluster["nodes"]:
            if node.get("drained"):
                node["looks"] -= 1
                node["state"] = "ALIVE" if node["looks"] > 0 else "DEAD"
        print(json.dumps(cluster["nodes"]))
    elif cluster.get("refuses"):
        sys.stderr.write(f"Error: The drain request is not accepted: {cluster['refuses']}\n")
        return 1
    else:
        [node] = [one for one in cluster["nodes"] if one["node_id"] == options.node_id]
        drain = [options.reason, options.reason_message, options.deadline_remaining_seconds]
        node["drained"] = [*node.get("drained", []), drain]
    CLUSTER.write_text(json.dumps(cluster))
    return 0


if __name__ == "__main__":
    sys.exit(main())
