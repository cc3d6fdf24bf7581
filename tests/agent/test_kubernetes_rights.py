"""What the agent may do at an API server is what it does, and nothing else."""

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.agent import node_job
from forewarn.agent.core.records import event_form
from forewarn.agent.preparations import kubernetes
from tests.agent.making import event
from tests.agent.programs import EVENT
from tests.kubernetes.small_cluster import Cluster, served

DIST = Path(__file__).parents[2] / "dist"
MANIFESTS = (DIST / "agent" / "daemonset.yaml", DIST / "helm" / "forewarn.yaml")
AGENT = "forewarn-agent"
HOOK: dict[str, object] = {"name": "vm_0", "event": EVENT}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<kind>[^/?]+)(?:/(?P<name>[^/?]+)(?:/(?P<part>[^/?]+))?)?(?:\?.*)?"
)
#: Namespace (empty: all), API group, resource and verb.
Right = tuple[str, str, str, str]


def right_of(verb: str, target: str) -> Right:
    """Return the right that a request needs."""
    found = PATH.fullmatch(target)
    assert found, target
    group, kind, name = found["group"] or "", found["kind"], found["name"]
    resource = f"{kind}/{found['part']}" if found["part"] else kind
    namespace = found["namespace"] or "" if group else ""
    return namespace, group, resource, VERBS.get(verb) or ("get" if name else "list")


def rights_in(path: Path, account: str = AGENT) -> set[Right]:
    """Return the rights that a manifest gives to a service account, the agent's or another."""
    return {
        right
        for form in objects(path)
        if form["kind"] in ("ClusterRole", "Role") and form["metadata"]["name"] == account
        for right in rights_of(form)
    }


def rights_of(role: dict[str, Any]) -> set[Right]:
    """Return the rights of a role."""
    return {
        (role["metadata"].get("namespace", ""), group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def objects(path: Path) -> Iterable[dict[str, Any]]:
    """Return the objects of a manifest."""
    return [form for form in yaml.safe_load_all(path.read_text("utf-8")) if form]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_give_the_agent_exactly_what_it_needs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right that nothing needs is for an attacker; one that is missing, a failure. K-1, K-3."""
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    (tmp_path / "token").write_text("right")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    cluster = Cluster()
    cluster.pod("web")
    notice = {"facts": ["planned"], "event": event_form(event()), "deadline_ms": None}
    with served(cluster) as url:
        token = str(tmp_path / "token")
        settings: dict[str, object] = {"server": url, "token_file": token, "node": "h1"}
        chosen = {**settings, "taint": True, "exclude_from_load_balancers": True}
        marking = {**settings, "namespace": "forewarn"}
        for each in (notice, notice, None):
            node_job.main({"settings": marking, "notice": json.loads(json.dumps(each))})
        kubernetes.prepare(chosen, HOOK)
        kubernetes.approve(chosen, HOOK)
        kubernetes.recover(chosen, HOOK)
    assert {right_of(*request) for request in cluster.requests} == rights_in(path)
