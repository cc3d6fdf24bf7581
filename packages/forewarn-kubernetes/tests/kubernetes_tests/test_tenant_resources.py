"""Notices and requests as resources of a small cluster, with a whole service behind them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn_core.access.roles import Role
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.declared_notices import OPENINGS_MS
from forewarn_kubernetes.namespace_writer import GROUP, KEPT_MS
from forewarn_kubernetes.resources import TenantResources
from forewarn_server.cli.main import main
from forewarn_server.cli.tenant_resources import ResourceAnswerer
from tests.agent.test_kubernetes_rights import Right, rights_in
from tests.api.live import Live
from tests.kubernetes.small_cluster import Cluster, Form, served

MANIFEST = Path(__file__).parents[4] / "dist" / "forewarn-resources.yaml"
SCHEMAS = {
    form["spec"]["names"]["kind"]: form["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for form in yaml.safe_load_all(MANIFEST.read_text("utf-8"))
    if form["kind"] == "CustomResourceDefinition"
}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "list"}


class Stage:
    """A service with two owners, a cluster with their namespaces, and the controller."""

    def __init__(self, live: Live, cluster: Cluster, url: str, directory: Path) -> None:
        """Bind the namespaces team-a and team-b to the owners a and b."""
        self.live = live
        self.cluster = cluster
        self.tokens = directory / "tokens"
        self.tokens.mkdir()
        (directory / "token").write_text("right")
        self.url, self.token_file = url, str(directory / "token")
        live.fleet(
            hosts={"h1": {"driver": "manual"}, "h2": {"driver": "manual"}},
            groups={"web": {"owner": "a"}, "db": {"owner": "b"}},
            vms={"w1": {"host": "h1", "group": "web"}, "d1": {"host": "h2", "group": "db"}},
        )
        live.enable("w1", "d1")
        for owner in "ab":
            self.bind(f"team-{owner}", owner)
        config = KubernetesConfig(url, self.token_file, "")
        self.resources = TenantResources(config, "c1", live.clock)
        self.answerer = ResourceAnswerer(live.url, self.tokens, self.resources)

    def bind(self, namespace: str, owner: str, principal: str = "") -> None:
        """Give a namespace a token."""
        name = principal or f"kubernetes:c1:{namespace}"
        form = {"principal": name, "role": "owner", "owner": owner}
        reply = self.live.call("POST", "/v1/access/tokens", form)
        assert reply.status == 201, reply
        (self.tokens / namespace).write_text(f"{reply.json['token']}\n")

    def turn(self) -> list[str]:
        """Let the controller work once, and return the problems."""
        return self.answerer.once()[1]

    def all(self, namespace: str, plural: str = "maintenancenotices") -> list[Form]:
        """Return the resources of a namespace."""
        begin = f"{GROUP}/namespaces/{namespace}/{plural}/"
        with self.cluster.lock:
            return [form for path, form in self.cluster.objects.items() if path.startswith(begin)]

    def notice(self, namespace: str) -> Form:
        """Return the only notice of a namespace."""
        [notice] = self.all(namespace)
        return notice

    def patch(self, namespace: str, spec: Form) -> None:
        """Answer a notice as a tenant does; the API server raises its generation."""
        notice = self.notice(namespace)
        meta = {**notice["metadata"], "generation": notice["metadata"].get("generation", 1) + 1}
        path = f"{GROUP}/namespaces/{namespace}/maintenancenotices/{meta['name']}"
        self.cluster.put(path, **{**notice, "metadata": meta, "spec": spec})

    def ask(self, namespace: str, name: str, **spec: object) -> str:
        """Request work as a tenant does; return the path of the resource."""
        path = f"{GROUP}/namespaces/{namespace}/maintenances/{name}"
        self.cluster.put(path, kind="Maintenance", spec=spec)
        return path

    def told(self, namespace: str) -> list[str]:
        """Return the reasons of the namespace's Kubernetes events."""
        begin = f"/api/v1/namespaces/{namespace}/events/"
        with self.cluster.lock:
            objects = self.cluster.objects.items()
            return [form["reason"] for path, form in objects if path.startswith(begin)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Run the service and the cluster."""
    cluster = Cluster()
    with served(cluster) as url, Live() as live:
        yield Stage(live, cluster, url, tmp_path)


def reboot(stage: Stage, host: str = "h1") -> None:
    """Announce the reboot of a host."""
    stage.live.post("/v1/operations", cause="host-reboot", targets=[host])


def test_each_owner_sees_its_events_in_its_namespace(stage: Stage) -> None:
    """From the announcement to the outcome, which stays for a day. Source: K-4, P-3."""
    reboot(stage)
    assert stage.turn() == []
    assert stage.all("team-b") == []
    status = stage.notice("team-a")["status"]
    assert (status["type"], status["state"], status["resources"]) == ("Reboot", "scheduled", ["w1"])
    assert status["notBefore"] == "2027-01-15T08:15:01Z"
    writes = len(stage.cluster.changes)
    assert stage.turn() == []
    assert len(stage.cluster.changes) == writes
    stage.live.advance(3600)
    stage.turn()
    assert stage.notice("team-a")["status"]["state"] == "started"
    stage.live.post("/v1/operations/op-1/complete")
    stage.turn()
    assert stage.notice("team-a")["status"]["state"] == "completed"
    assert stage.told("team-a") == ["Announced", "Started", "Completed"]
    stage.live.advance(KEPT_MS / 1000)
    stage.turn()
    assert stage.all("team-a") == []


def test_tenant_approves_with_a_patch(stage: Stage) -> None:
    """The principal of the approval is the namespace. Source: K-4."""
    reboot(stage)
    stage.turn()
    stage.patch("team-a", {"approve": True})
    assert stage.turn() == []
    status = stage.notice("team-a")["status"]
    assert (status["state"], status["observedGeneration"]) == ("started", 2)
    stage.turn()
    entries = stage.live.get("/v1/history?limit=500")["entries"]
    approvals = [each["actor"] for each in entries if each["action"] == "event.approved"]
    assert approvals == ["operator kubernetes:c1:team-a at 127.0.0.1"]
    stage.live.post("/v1/operations/op-1/complete")
    stage.turn()
    status = stage.notice("team-a")["status"]
    assert status["approvedBy"] == ["operator"]  # an owner sees no other principal (P-3)


def test_notice_of_a_started_event_is_written_once(stage: Stage) -> None:
    """A started event has no NotBefore; the status does not change with every turn. K-4."""
    reboot(stage)
    stage.turn()
    stage.live.advance(3600)
    stage.turn()
    assert stage.notice("team-a")["status"]["state"] == "started"
    writes = len(stage.cluster.changes)
    stage.turn()
    assert len(stage.cluster.changes) == writes


def declare(stage: Stage) -> str:
    """Declare the reboot of the first host; return the id of the declaration."""
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 600, "reason": "kernel"}
    number = str(stage.live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"])
    stage.live.post(f"/v1/maintenances/{number}/declare")
    stage.live.settle()
    return number


def test_tenant_chooses_a_start_with_a_patch(stage: Stage) -> None:
    """Declared work has a notice from the declaration on; a choice is made once. K-4, T-2."""
    number = declare(stage)
    assert stage.turn() == []
    assert stage.all("team-b") == []
    status = stage.notice("team-a")["status"]
    assert (status["declaration"], status["state"], status["resources"]) == (number, "open", ["w1"])
    assert status["handBackDeadline"] == status["hosts"][0]["handBackDeadline"]
    writes = len(stage.cluster.changes)
    stage.turn()
    assert len(stage.cluster.changes) == writes
    stage.patch("team-a", {"choices": [{"vm": "w1", "at": "2027-01-20T02:00:00Z"}]})
    assert stage.turn() == []
    stage.live.settle()
    stage.turn()
    status = stage.notice("team-a")["status"]
    assert (status["state"], status["observedGeneration"]) == ("chosen", 2)
    [host] = status["hosts"]
    assert (host["decision"], host["chosenStart"]) == ("at", "2027-01-20T02:00:00Z")
    entries = stage.live.get("/v1/history?limit=500")["entries"]
    chosen = [each["actor"] for each in entries if each["action"] == "declaration.chosen"]
    assert chosen == ["operator kubernetes:c1:team-a at 127.0.0.1"]
    assert stage.told("team-a") == ["Announced", "Chosen"]


def test_impossible_choice_is_refused_with_the_nearest_openings(stage: Stage) -> None:
    """The tenant sees what is possible without a token of the service. Source: K-4, T-2."""
    declare(stage)
    stage.turn()
    stage.patch("team-a", {"choices": [{"host": "h1", "at": "2027-03-01T00:00:00Z"}]})
    stage.turn()
    status = stage.notice("team-a")["status"]
    assert (status["state"], status["observedGeneration"]) == ("open", 2)
    assert "The nearest openings are 2027-01-" in status["message"]
    stage.turn()
    assert stage.told("team-a") == ["Announced", "Refused"]


def test_notice_lists_the_openings(stage: Stage) -> None:
    """A choice of one is possible; without a change, they stay for a while. Source: K-4, T-2."""
    declare(stage)
    stage.turn()
    [host] = stage.notice("team-a")["status"]["hosts"]
    opening = host["openings"][0]
    assert "2027-01-15T08:00:00Z" < opening["start"] <= opening["latest"] <= host["start"]
    writes = len(stage.cluster.changes)
    stage.live.advance(60)
    stage.turn()
    assert len(stage.cluster.changes) == writes
    stage.live.advance(OPENINGS_MS / 1000)
    stage.turn()
    [later] = stage.notice("team-a")["status"]["hosts"]
    assert later["openings"][0]["start"] > opening["start"]
    stage.patch("team-a", {"choices": [{"vm": "w1", "at": later["openings"][0]["latest"]}]})
    stage.turn()
    assert stage.notice("team-a")["status"]["hosts"][0]["decision"] == "at"


def test_openings_follow_the_test_of_the_owner(stage: Stage) -> None:
    """Until the test hosts have a time, the others have no openings. Source: K-4, T-8."""
    stage.live.fleet(
        hosts={"h1": {}, "h2": {}},
        groups={"web": {"owner": "a"}, "trial": {"owner": "a"}},
        vms={"w1": {"host": "h1", "group": "web"}, "t2": {"host": "h2", "group": "trial"}},
    )
    form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 600}
    number = stage.live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    stage.live.post(f"/v1/maintenances/{number}/declare")
    stage.live.settle()
    stage.turn()
    stage.live.post(f"/v1/declarations/{number}/first-group", owner="a", group="trial")
    stage.live.settle()
    stage.turn()
    after, first = stage.notice("team-a")["status"]["hosts"]
    assert (after["order"], first["order"]) == ("after", "first")
    assert ("openings" in after, "openings" in first) == (False, True)
    choice = {"host": "h2", "at": first["openings"][0]["start"]}
    stage.patch("team-a", {"choices": [choice]})
    stage.turn()
    starts = []
    for seconds in (3600, 7200):
        order = {"owner": "a", "group": "trial", "observation": seconds}
        stage.live.post(f"/v1/declarations/{number}/first-group", **order)
        stage.live.settle()
        stage.turn()
        status = stage.notice("team-a")["status"]
        assert status["testGroups"] == [{"group": "trial", "observationSeconds": seconds}]
        starts.append(status["hosts"][0]["openings"][0]["start"])
    assert starts[0] < starts[1]


def test_tenant_asks_for_a_later_deadline_once(stage: Stage) -> None:
    """The answer is in the status and an event; another choice asks nothing again. K-4, T-4."""
    number = declare(stage)
    stage.turn()
    wish = {"vm": "w1", "until": "2027-02-10T00:00:00Z", "reason": "year-end closing"}
    stage.patch("team-a", {"deferrals": [wish]})
    assert stage.turn() == []
    [host] = stage.notice("team-a")["status"]["hosts"]
    assert host["deferral"]["state"] == "asked"
    assert (host["deferral"]["until"], host["deferral"]["reason"]) == (
        wish["until"],
        wish["reason"],
    )
    grant = f"/v1/declarations/{number}/deferrals/grant"
    stage.live.post(grant, owner="a", reason="agreed")
    stage.live.settle()
    stage.turn()
    [host] = stage.notice("team-a")["status"]["hosts"]
    assert (host["deferral"]["state"], host["handBackDeadline"]) == ("granted", wish["until"])
    choice = {"vm": "w1", "at": "2027-02-05T02:00:00Z"}
    stage.patch("team-a", {"deferrals": [wish], "choices": [choice]})
    stage.turn()
    stage.live.settle()
    stage.turn()
    [host] = stage.notice("team-a")["status"]["hosts"]
    assert (host["deferral"]["state"], host["chosenStart"]) == ("granted", choice["at"])
    assert stage.told("team-a") == ["Announced", "DeferralAsked", "DeferralGranted", "Chosen"]


def test_deferral_does_not_repeat_the_choices_of_a_notice(stage: Stage) -> None:
    """A choice that a granted deferral has withdrawn stays withdrawn. Source: T-4."""
    number = declare(stage)
    stage.turn()
    choice = {"vm": "w1", "at": "2027-01-20T02:00:00Z"}
    stage.patch("team-a", {"choices": [choice]})
    stage.turn()
    wish = {"host": "h1", "until": "2027-02-10T00:00:00Z", "reason": "a release"}
    stage.patch("team-a", {"choices": [choice], "deferrals": [wish]})
    stage.turn()
    stage.live.post(f"/v1/declarations/{number}/deferrals/grant", owner="a", reason="agreed")
    stage.live.settle()
    stage.turn()
    stage.turn()
    [host] = stage.notice("team-a")["status"]["hosts"]
    assert (host["state"], "chosenStart" in host) == ("open", False)


def test_refused_deferral_says_why(stage: Stage) -> None:
    """The policy's answer is the tenant's, whoever has the token of the service. K-4, T-4."""
    declare(stage)
    stage.turn()
    wish = {"vm": "d1", "until": "2027-02-10T00:00:00Z", "reason": "a release"}
    stage.patch("team-a", {"deferrals": [wish]})
    stage.turn()
    status = stage.notice("team-a")["status"]
    assert (status["state"], status["observedGeneration"]) == ("open", 2)
    assert "d1" in status["message"]
    stage.turn()
    assert stage.told("team-a") == ["Announced", "Refused"]


def test_notice_of_a_withdrawn_declaration_ends(stage: Stage) -> None:
    """It stays for a day, as after an event. Source: K-4."""
    number = declare(stage)
    stage.turn()
    stage.live.post(f"/v1/maintenances/{number}/cancel")
    stage.turn()
    assert stage.notice("team-a")["status"]["state"] == "ended"
    stage.live.advance(KEPT_MS / 1000)
    stage.turn()
    assert stage.all("team-a") == []


def test_refused_deferral_is_answered_once(stage: Stage) -> None:
    """The reason is in the status and in an event; work continues as announced. Source: K-4."""
    reboot(stage)
    stage.turn()
    stage.patch("team-a", {"postpone": {"until": "2027-01-16T08:00:00Z", "reason": "a release"}})
    stage.turn()
    status = stage.notice("team-a")["status"]
    assert (status["state"], status["observedGeneration"]) == ("scheduled", 2)
    assert "belongs to no maintenance" in status["message"]
    stage.turn()
    assert stage.told("team-a") == ["Announced", "Refused"]


def test_request_is_carried_out_once(stage: Stage) -> None:
    """A controller that crashes before it has noted the operations asks with the same key. K-4."""
    path = stage.ask("team-a", "again", cause="reboot", targets=["w1"])
    stage.turn()
    status = stage.cluster.objects[path]["status"]
    assert (status["state"], status["operations"]) == ("announced", ["op-1"])
    assert "NotBefore" in status["message"] or "approv" in status["message"]
    stage.cluster.objects[path].pop("status")
    stage.turn()
    assert stage.cluster.objects[path]["status"] == status
    assert len(stage.live.get("/v1/operations")["operations"]) == 1


def test_request_for_the_vm_of_another_owner_is_refused(stage: Stage) -> None:
    """The service decides, and does not say that the VM exists. Source: K-4, P-3."""
    path = stage.ask("team-a", "theirs", cause="reboot", targets=["d1"])
    stage.turn()
    foreign = stage.cluster.objects[path]["status"]
    path = stage.ask("team-a", "nobodys", cause="reboot", targets=["d2"])
    stage.turn()
    assert foreign["state"] == stage.cluster.objects[path]["status"]["state"] == "refused"
    assert (
        foreign["message"].replace("d1", "d2") == stage.cluster.objects[path]["status"]["message"]
    )


def ask_declared(stage: Stage, **spec: object) -> str:
    """Request declared work in a namespace of operators; return the path of the resource."""
    form = {"principal": "kubernetes:c1:ops", "role": "operator"}
    reply = stage.live.call("POST", "/v1/access/tokens", form)
    (stage.tokens / "ops").write_text(f"{reply.json['token']}\n")
    known = {"cause": "host-reboot", "targets": ["h1"], "duration": "10m", "declare": {}}
    return stage.ask("ops", "firmware", **known | spec)


def test_request_for_declared_work_shows_choices_and_openings(stage: Stage) -> None:
    """The owner sees the declaration, and the requester what the owner answers. K-4, T-1."""
    path = ask_declared(stage)
    assert stage.turn() == []
    stage.live.settle()
    assert stage.turn() == []
    status = stage.cluster.objects[path]["status"]
    assert (status["maintenance"], status["state"]) == ("m-1", "open")
    [host] = status["hosts"]
    assert (host["state"], len(host["openings"]) > 0) == ("open", True)
    assert stage.notice("team-a")["status"]["handBackDeadline"] == status["handBackDeadline"]
    writes = len(stage.cluster.changes)
    stage.turn()
    assert len(stage.cluster.changes) == writes
    stage.patch("team-a", {"choices": [{"vm": "w1", "at": "2027-01-20T02:00:00Z"}]})
    stage.turn()
    stage.live.settle()
    stage.turn()
    status = stage.cluster.objects[path]["status"]
    assert (status["state"], status["hosts"][0]["chosenStart"]) == (
        "chosen",
        "2027-01-20T02:00:00Z",
    )


def test_declared_request_is_carried_out_once_and_cancelled_by_its_deletion(stage: Stage) -> None:
    """A controller that crashes before it has noted the maintenance creates no other. K-4."""
    path = ask_declared(stage)
    stage.turn()
    stage.cluster.objects[path].pop("status")
    stage.turn()
    request = stage.cluster.objects[path]
    assert request["status"]["maintenance"] == "m-1"
    delete(stage, path)
    stage.turn()
    assert stage.cluster.objects[path]["metadata"]["finalizers"] == []
    [maintenance] = stage.live.get("/v1/maintenances")["maintenances"]
    assert maintenance["state"] == "cancelled"


def test_declared_request_waits_for_a_second_person(stage: Stage) -> None:
    """The request is a draft until a person confirms it; it is declared once. K-4, P-8."""
    policy = stage.live.call("PUT", "/v1/policy", {"confirm": ["start-maintenance"]})
    assert policy.status == 200, policy
    path = ask_declared(stage)
    stage.turn()
    stage.turn()
    status = stage.cluster.objects[path]["status"]
    [waiting] = stage.live.get("/v1/confirmations")["confirmations"]
    assert (status["state"], waiting["id"] in status["message"]) == ("draft", True)
    anna = {"Authorization": f"Bearer {stage.live.add_token('anna', Role.OPERATOR)}"}
    confirm = f"/v1/confirmations/{waiting['id']}/confirm"
    assert stage.live.call("POST", confirm, headers=anna).status == 200
    stage.live.settle()
    stage.turn()
    assert stage.cluster.objects[path]["status"]["state"] == "open"
    assert stage.told("ops") == ["Draft", "Announced", "Open"]


def test_refused_declaration_leaves_no_draft(stage: Stage) -> None:
    """A window that the policy does not allow is refused, with the service's reason. K-4, T-1."""
    path = ask_declared(stage, declare={"handBack": "1h"})
    stage.turn()
    status = stage.cluster.objects[path]["status"]
    assert (status["state"], "hand-back" in status["message"]) == ("refused", True)
    [maintenance] = stage.live.get("/v1/maintenances")["maintenances"]
    assert maintenance["state"] == "cancelled"


def test_deleted_request_loses_its_finalizer(stage: Stage) -> None:
    """An owner may not cancel announced work, so the work continues; nothing is stuck. K-4."""
    path = stage.ask("team-a", "again", cause="reboot", targets=["w1"])
    stage.turn()
    request = stage.cluster.objects[path]
    assert request["metadata"]["finalizers"] == ["forewarn.io/cancel"]
    delete(stage, path)
    stage.turn()
    assert stage.cluster.objects[path]["metadata"]["finalizers"] == []


@pytest.mark.parametrize("declare", [None, {}])
def test_request_deleted_before_its_status_was_written_is_cancelled(
    stage: Stage, declare: Form | None
) -> None:
    """The controller crashed after it had asked for the work; no work is left running. K-4."""
    path = ask_declared(stage)
    if declare is None:
        stage.ask("ops", "firmware", cause="host-reboot", targets=["h1"])
    stage.turn()
    request = stage.cluster.objects[path]
    request.pop("status")
    delete(stage, path)
    assert stage.turn() == []
    assert stage.cluster.objects[path]["metadata"]["finalizers"] == []
    work = (
        stage.live.get("/v1/operations")["operations"]
        if declare is None
        else stage.live.get("/v1/maintenances")["maintenances"]
    )
    assert [each["state"] for each in work] == ["cancelled"]


def test_request_deleted_before_it_was_carried_out_begins_nothing(stage: Stage) -> None:
    """The controller crashed before it asked for the work; nothing is stuck either. K-4."""
    path = stage.ask("team-a", "again", cause="reboot", targets=["w1"])
    stage.cluster.objects[path]["metadata"]["finalizers"] = ["forewarn.io/cancel"]
    delete(stage, path)
    assert stage.turn() == []
    assert stage.cluster.objects[path]["metadata"]["finalizers"] == []
    assert stage.live.get("/v1/operations")["operations"] == []


def delete(stage: Stage, path: str) -> None:
    """Delete a resource as a user does; its finalizer keeps it."""
    request = stage.cluster.objects[path]
    meta = {**request["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    stage.cluster.put(path, **{**request, "metadata": meta})


def test_token_of_another_principal_is_not_used(stage: Stage) -> None:
    """A namespace never acts under the name of a person. Source: K-4."""
    reboot(stage)
    stage.bind("team-a", "a", "kim")
    [problem] = stage.turn()
    assert "is of kim, not of kubernetes:c1:team-a" in problem
    assert stage.all("team-a") == []


def test_command_answers_once_with_its_rights(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest gives exactly what the controller needs. Source: K-4."""
    reboot(stage)
    stage.ask("team-a", "again", cause="reboot", targets=["w1"])
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[drivers.kubernetes]\nserver = "{stage.url}"\nca_file = ""\n'
        f'token_file = "{stage.token_file}"\n'
    )
    words = ["driver", "answer-resources", "--config", str(settings), "--server", stage.live.url]
    assert main([*words, "--cluster", "c1", "--tokens", str(stage.tokens)]) == 0
    assert "maintenancenotices team-a/event-" in capsys.readouterr().err
    used = {needed(*request) for request in stage.cluster.requests}
    given = rights_in(MANIFEST, "forewarn-resources")
    assert used <= given
    assert {right[3] for right in given - used} <= {"watch", "delete"}


def needed(verb: str, target: str) -> Right:
    """Return the right that a request needs."""
    parts = target.partition("?")[0].strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3 if group else 2 :]
    rest = rest[2:] if rest[0] == "namespaces" else rest
    resource = "/".join(rest[::2]) if len(rest) == 3 else rest[0]
    return "", group, resource, VERBS[verb]


def test_status_has_only_members_of_its_schema(stage: Stage) -> None:
    """The API server would prune any other. Source: K-4."""
    reboot(stage, "h2")
    declare(stage)
    stage.ask("team-a", "again", cause="reboot", targets=["w1"])
    stage.turn()
    wish = {"vm": "w1", "until": "2027-02-10T00:00:00Z", "reason": "a release"}
    [declared] = [each for each in stage.all("team-a") if "hosts" in each["status"]]
    path = f"{GROUP}/namespaces/team-a/maintenancenotices/{declared['metadata']['name']}"
    meta = {**declared["metadata"], "generation": 2}
    stage.cluster.put(path, **{**declared, "metadata": meta, "spec": {"deferrals": [wish]}})
    stage.turn()
    for kind, plural in (
        ("MaintenanceNotice", "maintenancenotices"),
        ("Maintenance", "maintenances"),
    ):
        members: Any = SCHEMAS[kind]["properties"]["status"]["properties"]
        for resource in [each for name in ("team-a", "team-b") for each in stage.all(name, plural)]:
            assert resource["status"].keys() <= members.keys()
            for host in resource["status"].get("hosts", ()):
                assert {"openings", "deferral"} < host.keys()
                known = members["hosts"]["items"]["properties"]
                assert host.keys() <= known.keys()
                assert host["deferral"].keys() <= known["deferral"]["properties"].keys()
                opening = known["openings"]["items"]["properties"]
                assert all(each.keys() <= opening.keys() for each in host["openings"])


def test_request_that_lost_its_group_does_not_stop_the_others(stage: Stage) -> None:
    """The group has another owner meanwhile; the namespace's other requests go on. Source: K-4."""
    hosts = {name: {"driver": "manual"} for name in ("h1", "h2")}
    vms = {"w1": {"host": "h1", "group": "web"}, "a2": {"host": "h2", "group": "api"}}
    groups = {"web": {"owner": "a"}, "api": {"owner": "a"}}
    stage.live.fleet(hosts=hosts, groups=groups, vms=vms)
    stage.ask("team-a", "first", cause="reboot", targets=["w1"])
    stage.turn()
    stage.live.fleet(hosts=hosts, groups={**groups, "web": {"owner": "b"}}, vms=vms)
    second = stage.ask("team-a", "second", cause="reboot", targets=["a2"])
    stage.turn()
    assert stage.cluster.objects[second]["status"]["operations"]
