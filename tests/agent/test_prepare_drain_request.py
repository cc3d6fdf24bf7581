"""Drain requests before stand-ins of NVSentinel and NVIDIA's maintenance operator.

The stand-ins have the groups, kinds and members of these projects' public files.
"""

from pathlib import Path

import pytest

from tests.agent.programs import do, done
from tests.kubernetes.small_cluster import Cluster, Form, served

SENTINEL = "/apis/nvsentinel.dgxc.nvidia.com/v1/maintenancerequests"
OPERATOR = "/apis/maintenance.nvidia.com/v1alpha1/namespaces/default/nodemaintenances"
STATE = "dgxc.nvidia.com/nvsentinel-state"


class DrainingCluster(Cluster):
    """A cluster in which a request is taken on, carried out and cleared, one part at each look."""

    def __init__(self, *states: str) -> None:
        """Set the states of the node's label that NVSentinel goes through."""
        super().__init__()
        self.states = list(states)

    def answer(self, verb: str, target: str, form: Form) -> tuple[int, Form]:
        """Go on with the drain at each look at the request."""
        answered = super().answer(verb, target, form)
        path = target.partition("?")[0]
        if verb == "GET" and path.startswith((SENTINEL, OPERATOR)) and path in self.objects:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            taken = {"type": "HealthEventEmitted", "status": "True"}
            ready = str(state == "drain-succeeded")
            conditions = [taken, {"type": "Ready", "status": ready, "reason": state}]
            self.put(path, **{**self.objects[path], "status": {"conditions": conditions}})
            node = self.node("h1")
            meta = {**node["metadata"], "labels": {STATE: state}}
            self.put("/api/v1/nodes/h1", **{**node, "metadata": meta})
        return answered

    def request(self, folder: str) -> Form | None:
        """Return the only request; None without one."""
        return next((form for path, form in self.objects.items() if path.startswith(folder)), None)


@pytest.fixture
def token(tmp_path: Path) -> str:
    """Write the token of the API server."""
    (tmp_path / "token").write_text("right")
    return str(tmp_path / "token")


@pytest.mark.parametrize(
    ("via", "folder"), [("nvsentinel", SENTINEL), ("maintenance-operator", OPERATOR)]
)
def test_request_is_created_watched_and_deleted(
    via: str, folder: str, token: str, tmp_path: Path
) -> None:
    """Created: prepare; deleted: clear. A repeated step creates no second request. K-5."""
    cluster = DrainingCluster("quarantined", "draining", "drain-succeeded")
    with served(cluster) as url:
        settings = {"via": via, "node": "h1", "server": url, "token_file": token}
        assert done("drain_request", "prepare", settings, tmp_path / "s") == f"{via} has drained h1"
        request = cluster.request(folder)
        assert request is not None
        assert request["metadata"]["name"] == "forewarn-h1-e1"
        done("drain_request", "prepare", settings, tmp_path / "s")
        assert sum(each.startswith("POST") for each in cluster.changes) == 2
        done("drain_request", "recover", settings, tmp_path / "s")
        assert cluster.request(folder) is None
        assert done("drain_request", "recover", settings, tmp_path / "s") == "nothing was requested"


def test_requests_have_the_members_that_the_projects_require(token: str, tmp_path: Path) -> None:
    """The webhook of NVSentinel refuses others; the operator's drain has the true deadline. K-5."""
    cluster = DrainingCluster("drain-succeeded")
    with served(cluster) as url:
        for via in ("nvsentinel", "maintenance-operator"):
            settings = {"via": via, "node": "h1", "server": url, "token_file": token}
            done("drain_request", "prepare", settings, tmp_path / via)
    sentinel, operator = cluster.request(SENTINEL), cluster.request(OPERATOR)
    assert sentinel is not None
    assert operator is not None
    health = sentinel["spec"]["healthEvent"]
    assert (health["version"], health["isHealthy"], health["nodeName"]) == (1, False, "h1")
    assert (health["recommendedAction"], health["message"]) == ("NONE", "forewarn: Reboot E1")
    ignored = "maintenance.nvidia.com/garbage-collector.ignore"
    assert operator["metadata"]["annotations"] == {ignored: "true"}
    spec = operator["spec"]
    assert (spec["requestorID"], spec["nodeName"], spec["cordon"]) == ("forewarn.io", "h1", True)
    assert 1 <= spec["drainSpec"].pop("timeoutSeconds") <= 58
    assert spec["drainSpec"] == {"force": False, "deleteEmptyDir": True}


def test_failed_drain_fails_the_step(token: str, tmp_path: Path) -> None:
    """Nobody approves for a node that could not be drained. Source: K-5."""
    with served(DrainingCluster("draining", "drain-failed")) as url:
        settings = {"via": "nvsentinel", "node": "h1", "server": url, "token_file": token}
        result = do("drain_request", "prepare", settings, tmp_path / "s")
    assert (result.returncode, "could not drain node h1" in result.stderr) == (1, True)
