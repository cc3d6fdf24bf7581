"""Topology files: the same fleet in three forms, all of it or nothing."""

import contextlib
import json
import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.validation.json_reader import BodyUnreadable
from forewarn_core.fleet.impact import Impact
from forewarn_core.fleet.naming import KEY_PATTERN
from forewarn_core.fleet.refusals import FleetContradiction
from forewarn_core.fleet.topology import Group, GroupKind, Host, Topology, Vm
from forewarn_metadata.endpoint.instance_fields import SETTABLE
from forewarn_server.api.topology_file import JSON, READERS, TOML, YAML, exported, read_topology
from tests.api.live import Live

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto/describe-a-fleet.md"

TOML_FILE = b"""
[hosts.h1]
fault_domain = 1

[groups.web]
terminate_notice = "5m"

[vms.web-0]
host = "h1"
group = "web"
tags = { team = "shop" }
instance = { "osProfile.adminUsername" = "ann", publicKeys = "ssh-rsa A\\nssh-rsa B" }

[vms.solo]
host = "h1"
"""
YAML_FILE = b"""
hosts: {h1: {fault_domain: 1}}
groups:
  web:
    terminate_notice: PT5M
vms:
  web-0: {host: h1, group: web, tags: {team: shop},
    instance: {osProfile.adminUsername: ann, publicKeys: "ssh-rsa A\\nssh-rsa B"}}
  solo:
    host: h1
"""
JSON_FILE = json.dumps(
    {
        "hosts": {"h1": {"fault_domain": 1}},
        "groups": {"web": {"terminate_notice": 300}},
        "vms": {
            "web-0": {
                "host": "h1",
                "group": "web",
                "tags": {"team": "shop"},
                "instance": {
                    "osProfile.adminUsername": "ann",
                    "publicKeys": "ssh-rsa A\nssh-rsa B",
                },
            },
            "solo": {"host": "h1"},
        },
    }
).encode()

SAME_ADDRESS = b"""
hosts: {h: {}}
vms:
  a: {host: h, addresses: [10.1.1.1]}
  b: {host: h, addresses: [10.1.1.1]}
"""

name = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,12}", fullmatch=True)
printable = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=12)
labels = st.dictionaries(
    st.from_regex(KEY_PATTERN, fullmatch=True).filter(lambda key: key != "zone"),
    st.from_regex(r"[a-z0-9.]{1,9}", fullmatch=True),
    max_size=4,
).map(lambda pairs: tuple(sorted(pairs.items())))
hosts = st.builds(
    Host,
    name=name,
    fault_domain=st.integers(0, 9),
    zone=printable,
    driver=printable,
    labels=labels,
)
groups = st.builds(
    Group,
    name=name,
    kind=st.sampled_from([GroupKind.AVAILABILITY_SET, GroupKind.SCALE_SET]),
    owner=printable,
    strict_approval=st.booleans(),
    automatic_approval=st.frozensets(st.sampled_from([Impact.REBOOT, Impact.REDEPLOY])),
    terminate_notice_s=st.sampled_from([0, 300, 301, 900]),
    keep_apart=st.sampled_from([(), ("rack", "power")]),
    keep_together=st.sampled_from([(), ("row",)]),
)


@st.composite
def fleets(draw: st.DrawFn) -> Topology:
    """Draw a small fleet."""
    some_hosts = draw(st.lists(hosts, min_size=1, max_size=3, unique_by=lambda each: each.name))
    some_groups = draw(st.lists(groups, min_size=1, max_size=3, unique_by=lambda each: each.name))
    vms = st.builds(
        Vm,
        name=name,
        host=st.sampled_from([each.name for each in some_hosts]),
        group=st.sampled_from([each.name for each in some_groups]),
        size=printable,
        spot=st.booleans(),
        tags=st.dictionaries(printable.filter(bool), printable, max_size=3).map(
            lambda tags: tuple(tags.items())
        ),
        instance=st.lists(
            st.tuples(st.sampled_from(SETTABLE), printable),
            max_size=3,
            unique_by=lambda member: member[0],
        ).map(tuple),
    )
    some_vms = draw(st.lists(vms, max_size=4, unique_by=lambda each: each.name))
    return Topology(
        hosts={each.name: each for each in some_hosts},
        groups={each.name: each for each in some_groups},
        vms={each.name: each for each in some_vms},
    )


def test_three_forms_say_the_same() -> None:
    """TOML, YAML and JSON describe one fleet."""
    toml = read_topology(TOML_FILE, TOML)
    assert toml == read_topology(YAML_FILE, YAML) == read_topology(JSON_FILE, JSON)
    assert [vm.name for vm in toml.vms] == ["web-0", "solo"]
    assert {group.name: group.kind for group in toml.groups}["solo"] is GroupKind.LONE


def test_unknown_instance_metadata_is_refused_by_name() -> None:
    """The refusal says where it stands, and what is known. Source: I-1."""
    toml = b'hosts.h={}\nvms.v={host="h",instance={"osProfile.admin"="ann"}}'
    with pytest.raises(ValidationFailed) as refused:
        read_topology(toml, TOML)
    told = str(refused.value)
    assert "vms.v.instance has the unknown member 'osProfile.admin'" in told
    assert "osProfile.adminUsername" in told
    assert "publicKeys" in told


@pytest.mark.parametrize("media", READERS)
@given(fleet=fleets())
def test_export_is_read_back(media: str, fleet: Topology) -> None:
    """What is exported describes exactly the fleet it came from."""
    change = read_topology(b"".join(exported(fleet, media)), media)
    assert {each.name: each for each in change.hosts} == fleet.hosts
    assert {each.name: each for each in change.groups} == fleet.groups
    assert {each.name: each for each in change.vms} == fleet.vms


def test_export_has_no_values_of_settings_that_are_off() -> None:
    """The control plane keeps them when the file is applied. Source: Z-6."""
    fleet = Topology(groups={"g": Group("g", switched_off=(("terminate_notice", "PT7M"),))})
    change = read_topology(b"".join(exported(fleet, JSON)), JSON)
    assert change.groups == (Group("g"),)


@pytest.mark.parametrize("media", READERS)
@given(
    body=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(
            st.sampled_from(
                ["hosts:", " h1:", "{", "}", "[", "]", "&a", "*a", "<<:", "\n", "hosts", ".h1",
                 "=", '"', "vms", "- ", ": ", "1", "!!python/object:os.system", "---", "?", "|"]
            ),
            max_size=30,
        ).map(lambda words: "".join(words).encode()),
    )
)  # fmt: skip
def test_garbage_is_refused_calmly(media: str, body: bytes) -> None:
    """Whatever a file holds, it is read or refused; nothing else happens."""
    with contextlib.suppress(BodyUnreadable, ValidationFailed, FleetContradiction):
        read_topology(body, media)


@pytest.mark.parametrize(
    ("media", "body", "code"),
    [
        (TOML, b"[hosts.h1]\n[hosts.h1]\n", "body-unreadable"),
        (YAML, b"hosts: {h1: {}, h1: {}}", "body-unreadable"),
        (JSON, b'{"hosts": {"h1": {}, "h1": {}}}', "body-unreadable"),
        (JSON, b'{"hosts": {"h1": {"fault_domain": NaN}}}', "body-unreadable"),
        (YAML, b"a: &a {}\nhosts: {h1: *a}", "body-unreadable"),
        (YAML, b"a: " + b"[" * 5000, "body-unreadable"),
        (JSON, b"[" * 100_000, "body-unreadable"),
        (YAML, b"hosts: {}\n---\nhosts: {}", "body-unreadable"),
        (YAML, b"hosts: {1: {}}", "body-unreadable"),
        (YAML, b"", "body-unreadable"),
        (TOML, b"\xff", "body-unreadable"),
        (YAML, b"hosts: 3", "validation-failed"),
        (TOML, b"[host.h1]", "validation-failed"),
        (TOML, b"[hosts.h1]\nhealth = 'failed'", "validation-failed"),
        (YAML, b"hosts: {h1: {zone: 2026-11-21}}", "validation-failed"),
        (TOML, b"[vms.v]\nhost='nowhere'", "fleet-contradiction"),
        (YAML, SAME_ADDRESS, "fleet-contradiction"),
    ],
)  # fmt: skip
def test_wrong_file_is_refused_whole(shared: Live, media: str, body: bytes, code: str) -> None:
    """A file with one fault changes nothing at all."""
    before = shared.get("/v1/topology")
    reply = shared.call("PUT", "/v1/topology", body=body, headers={"Content-Type": media})
    assert reply.code == code
    assert reply.status in {400, 422}
    assert shared.get("/v1/topology") == before


def test_apply_adds_and_changes_but_never_removes(live: Live) -> None:
    """Without prune, what a file does not name stays as it is."""
    headers = {"Content-Type": TOML}
    first = live.call("PUT", "/v1/topology", body=TOML_FILE, headers=headers).json
    assert [each["name"] for each in first["added"]] == ["h1", "web", "solo", "web-0", "solo"]
    again = live.call("PUT", "/v1/topology", body=TOML_FILE, headers=headers).json
    assert again == {"added": [], "changed": [], "removed": [], "applied": True}
    part = live.call("PUT", "/v1/topology", {"hosts": {"h2": {}, "h1": {}}}).json
    nowhere = {"zone": "", "rack": "", "owner": ""}
    assert part["added"] == [{"kind": "host", "name": "h2", **nowhere}]
    differences = [{"member": "fault_domain", "old": "1", "new": ""}]
    changed = {"kind": "host", "name": "h1", **nowhere, "differences": differences}
    assert part["changed"] == [changed]
    assert len(live.get("/v1/vms")["vms"]) == 2


def test_prune_leaves_only_what_is_named(live: Live) -> None:
    """With prune the fleet is what the file says, in one step."""
    live.fleet(hosts={"h1": {}, "h2": {}}, vms={"a": {"host": "h1"}, "b": {"host": "h2"}})
    kept = {"hosts": {"h1": {}}, "vms": {"a": {"host": "h1"}}}
    answer = live.call("PUT", "/v1/topology?prune=true", kept).json
    removed = {(each["kind"], each["name"]) for each in answer["removed"]}
    assert removed == {("vm", "b"), ("group", "b"), ("host", "h2")}
    assert live.get("/v1/topology") == {
        "hosts": {"h1": {}},
        "groups": {"a": {"kind": "lone"}},
        "vms": {"a": {"host": "h1", "group": "a"}},
    }


def test_dry_run_says_but_does_not(live: Live) -> None:
    """A dry run gives the same answers and refusals, and changes nothing."""
    fleet = {"hosts": {"h1": {}}, "vms": {"a": {"host": "h1"}}}
    answer = live.call("PUT", "/v1/topology?dry_run=true", fleet).json
    assert answer["applied"] is False
    assert len(answer["added"]) == 3
    assert live.get("/v1/hosts")["hosts"] == []
    wrong = live.call("PUT", "/v1/topology?dry_run=true", {"vms": {"a": {"host": "h1"}}})
    assert wrong.code == "fleet-contradiction"


def test_dry_run_of_freed_work_changes_nothing(fleet: Live) -> None:
    """A dry run that would let waiting work be announced does not announce it."""
    fleet.post("/v1/hosts/h1/reboot")
    fleet.post("/v1/hosts/h2/reboot")
    before = fleet.get("/v1/events")
    fleet.call("PUT", "/v1/topology?dry_run=true", {"hosts": {"h3": {}}})
    assert fleet.get("/v1/events") == before


def test_examples_of_the_howto_can_be_applied(live: Live) -> None:
    """What the documents tell a reader to write down, the service takes."""
    text = HOWTO.read_text("utf-8")
    example = "\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    body = textwrap.dedent(example).encode()
    reply = live.call("PUT", "/v1/topology", body=body, headers={"Content-Type": TOML})
    assert reply.status == 200
    live.enable("web_0", "web_1", "db")
    first, second = (live.post(f"/v1/hosts/{host}/reboot") for host in ("h1", "h2"))
    events = live.get("/v1/events")["events"]
    assert [(each["group"], each["resources"]) for each in events] == [
        ("db", ["db"]),
        ("web", ["web_0"]),
    ]
    states = [each["operations"][0]["state"] for each in (first, second)]
    assert states == ["announced", "planned"]


def test_export_comes_in_the_form_asked_for(shared: Live) -> None:
    """An export is a file that can be applied."""
    for form, media in (("toml", TOML), ("yaml", YAML), ("json", JSON)):
        reply = shared.call("GET", f"/v1/topology?format={form}")
        assert reply.headers["content-type"].startswith(media)
        applied = shared.call(
            "PUT", "/v1/topology?prune=true", body=reply.body, headers={"Content-Type": media}
        )
        assert applied.json == {"added": [], "changed": [], "removed": [], "applied": True}
