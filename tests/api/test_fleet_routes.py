"""Hosts, groups and VMs over the operator API."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from forewarn_server.api.fleet_routes import NAMES_MAX
from tests.api.live import Live

DISKS = "storageProfile.dataDisks"


def test_host_is_added_then_replaced(live: Live) -> None:
    """A PUT answers 201 for what is new and 200 for what it replaces whole."""
    first = live.call("PUT", "/v1/hosts/h1", {"fault_domain": 2, "zone": "a"})
    assert (first.status, first.json["zone"]) == (201, "a")
    second = live.call("PUT", "/v1/hosts/h1", {"fault_domain": 2})
    assert (second.status, second.json["zone"]) == (200, "")
    again = live.call("PUT", "/v1/hosts/h1", {"fault_domain": 2})
    assert again.status == 200
    actions = [each["action"] for each in live.get("/v1/history?host=h1")["entries"]]
    assert actions == ["host.added", "host.changed"]


def test_new_does_not_replace(live: Live) -> None:
    """Who asks for something new does not change what is there."""
    assert live.call("PUT", "/v1/hosts/h1?new=true", {"zone": "a"}).status == 201
    refused = live.call("PUT", "/v1/hosts/h1?new=true", {"zone": "b"})
    assert (refused.status, refused.code) == (409, "already-exists")
    assert live.get("/v1/hosts/h1")["zone"] == "a"


@pytest.mark.parametrize("kind", ["hosts", "groups"])
def test_only_one_of_many_is_new(live: Live, kind: str) -> None:
    """Of calls that ask for the same new thing at once, one is right and changes it."""
    path, callers = f"/v1/{kind}/one?new=true", 8
    with ThreadPoolExecutor(callers) as pool:
        replies = list(pool.map(lambda _: live.call("PUT", path, {}), range(callers)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * (callers - 1)
    assert len(live.get("/v1/history")["entries"]) == 1


def test_vm_without_group_gets_its_own(live: Live) -> None:
    """A lone VM shares its document with nobody. Source: S-2."""
    live.call("PUT", "/v1/hosts/h1", {})
    assert live.call("PUT", "/v1/vms/solo", {"host": "h1"}).status == 201
    assert live.get("/v1/groups/solo")["kind"] == "lone"
    assert live.call("PUT", "/v1/vms/solo", {"host": "h1", "spot": True}).status == 200


def test_every_member_comes_back(live: Live) -> None:
    """What a form says, the record says."""
    host = {"fault_domain": 3, "update_domain": 4, "zone": "z", "driver": "simulated"}
    live.fleet(hosts={"h1": {**host, "memory_mib": 65_536}})
    group = {
        "kind": "scale-set",
        "owner": "anna",
        "fault_domain_count": 1,
        "strict_approval": True,
        "automatic_approval": ["Reboot", "Redeploy"],
        "terminate_notice": "PT15M",
        "reimage_notice": True,
        "approves_when_down": False,
        "published": "",
        "keep_apart": ["rack", "power"],
        "keep_together": ["row"],
    }
    vm = {
        "host": "h1",
        "group": "g",
        "size": "Standard_NC6",
        "memory_mib": 57_344,
        "gpu": True,
        "spot": True,
        "addresses": ["10.0.0.4", "fd00::4"],
        "interface": "tap0",
        "instance_id": "i-1",
        "vm_id": "guid",
        "os_type": "Windows",
        "location": "north",
        "resource_group": "rg",
        "subscription": "s",
        "tags": {"team": "a b"},
        "instance": {
            "osProfile.adminUsername": "ann",
            "publicKeys": "ssh-rsa A\nssh-rsa B\n",
            "macAddress": "00:0D:3A:F8:06:EC",
            "subnet": "10.0.0.0/26",
            DISKS: "lun=0 name=a diskSizeGB=64\nlun=1 name=b",
        },
    }
    live.call("PUT", "/v1/groups/g", group)
    live.call("PUT", "/v1/vms/v", vm)
    silent = {"enabled": False, "polled": None}
    assert live.get("/v1/groups/g") == {"name": "g", "vms": ["v"], "clients": [], **silent, **group}
    assert live.get("/v1/vms/v") == {"name": "v", "client": "", **silent, **vm}
    assert live.get("/v1/hosts/h1")["memory_mib"] == 65_536


def test_groups_that_do_not_listen_are_found(fleet: Live) -> None:
    """A group listens from its first poll on; the others are listed by the hosts of their VMs."""
    fleet.fleet(groups={"deaf": {}}, vms={"deaf-0": {"host": "h2", "group": "deaf"}})
    [silent] = fleet.get("/v1/groups?enabled=false")["groups"]
    assert (silent["name"], silent["polled"]) == ("deaf", None)
    [heard] = fleet.get("/v1/groups?enabled=true&host=h2")["groups"]
    assert (heard["name"], heard["polled"]) == ("web", "2027-01-15T08:00:00Z")
    assert fleet.get("/v1/groups?enabled=false&host=h1")["groups"] == []
    assert fleet.post("/v1/maintenances/plan", cause="host-reboot", hosts=["h2"], duration="PT5M")[
        "not_asked"
    ] == ["deaf"]


def test_search_finds_what_begins_with_a_text(fleet: Live) -> None:
    """Names of all kinds are found by their beginning, an exact one first."""
    found = [tuple(each.values()) for each in fleet.get("/v1/search?text=web")["found"]]
    assert found == [("vm", "web-0"), ("vm", "web-1"), ("group", "web")]
    assert fleet.get("/v1/search?text=web&kind=host")["found"] == []


def test_addresses_become_canonical(live: Live) -> None:
    """An address is known by its canonical text, however it is written. Source: S-6."""
    live.call("PUT", "/v1/hosts/h1", {})
    written = ["FD00:0::0004", "::ffff:10.0.0.4", "10.0.0.4"]
    reply = live.call("PUT", "/v1/vms/v", {"host": "h1", "addresses": written})
    assert reply.json["addresses"] == ["fd00::4", "10.0.0.4"]


def test_list_is_paged_by_name(live: Live) -> None:
    """Pages follow one another without gaps, and the last one says so."""
    live.fleet(hosts={f"h{n}": {} for n in range(5)})
    seen, following = [], [""]
    for _ in range(3):
        page = live.get(f"/v1/hosts?limit=2{following[-1]}")
        seen.append([host["name"] for host in page["hosts"]])
        following.append(f"&after={page['next']}")
    assert following[-1] == "&after=None"
    assert seen == [["h0", "h1"], ["h2", "h3"], ["h4"]]


def test_list_is_filtered(shared: Live) -> None:
    """VMs are listed by host and group."""
    of_host = shared.get("/v1/vms?host=h1")["vms"]
    assert [vm["name"] for vm in of_host] == ["db-0", "web-0"]
    of_both = shared.get("/v1/vms?host=h1&group=web")["vms"]
    assert [vm["name"] for vm in of_both] == ["web-0"]
    assert shared.get("/v1/hosts?zone=nowhere") == {"hosts": [], "next": None}


def test_remove_takes_a_record_out(live: Live) -> None:
    """What is removed is gone; what others stand on stays."""
    live.fleet(hosts={"h1": {}}, groups={"g": {}}, vms={"v": {"host": "h1", "group": "g"}})
    in_use = live.call("DELETE", "/v1/hosts/h1")
    assert (in_use.status, in_use.code) == (409, "in-use")
    assert live.call("DELETE", "/v1/vms/v").status == 204
    assert live.call("DELETE", "/v1/hosts/h1").status == 204
    assert live.call("GET", "/v1/hosts/h1").code == "unknown"
    assert live.call("DELETE", "/v1/hosts/h1").status == 404


def test_several_are_removed_all_or_none(live: Live) -> None:
    """One that is not there, or that others stand on, keeps the rest; twice the same is once."""
    vms = {name: {"host": "h1", "group": "g"} for name in ("a", "b", "c")}
    live.fleet(hosts={"h1": {}, "h2": {}}, groups={"g": {}}, vms=vms)
    unknown = live.call("DELETE", "/v1/vms?name=a,b,x")
    assert (unknown.status, unknown.code) == (404, "unknown")
    assert live.call("DELETE", "/v1/hosts?name=h2,h1").code == "in-use"
    assert [vm["name"] for vm in live.get("/v1/vms")["vms"]] == ["a", "b", "c"]
    assert live.call("DELETE", "/v1/vms?name=a,b,a").status == 204
    assert [vm["name"] for vm in live.get("/v1/vms")["vms"]] == ["c"]
    many = ",".join(["v" * 128] * (NAMES_MAX + 1))
    assert live.call("DELETE", f"/v1/vms?name={many}").code == "validation-failed"


@pytest.mark.parametrize(
    ("path", "form", "code"),
    [
        ("/v1/vms/v", {"host": "none", "group": "g"}, "fleet-contradiction"),
        ("/v1/hosts/-bad", {}, "fleet-contradiction"),
        ("/v1/groups/g", {"terminate_notice": "1m"}, "fleet-contradiction"),
        ("/v1/vms/v", {}, "validation-failed"),
        ("/v1/vms/v", {"host": 7}, "validation-failed"),
        ("/v1/hosts/h", {"fault_domain": "1"}, "validation-failed"),
        ("/v1/hosts/h", {"fault_domain": True}, "validation-failed"),
        ("/v1/hosts/h", {"fault_domain": 1.5}, "validation-failed"),
        ("/v1/hosts/h", {"fault_domain": -1}, "validation-failed"),
        ("/v1/hosts/h", {"memory_mib": 2**26 + 1}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "memory_mib": -1}, "validation-failed"),
        ("/v1/hosts/h", {"zone": "a\nb"}, "validation-failed"),
        ("/v1/hosts/h", {"zone": "\ud800"}, "validation-failed"),
        ("/v1/hosts/h", {"zone": "z" * 300}, "validation-failed"),
        ("/v1/hosts/h", {"zones": "a"}, "validation-failed"),
        ("/v1/groups/g", {"automatic_approval": ["Freeze"]}, "validation-failed"),
        ("/v1/groups/g", {"automatic_approval": "Reboot"}, "validation-failed"),
        ("/v1/groups/g", {"terminate_notice": "soon"}, "validation-failed"),
        ("/v1/groups/g", {"strict_approval": 1}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["10.0.0.999"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["fe80::1%eth0"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["fe80::1"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["0.0.0.0"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["255.255.255.255"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["::"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "addresses": ["10.0.0.1"] * 65}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "tags": ["a"]}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"vmSize": "a"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"subnet": "10.0.0.1"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {DISKS: "lun=0 size=9"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {DISKS: "lun=0\n\nlun=1"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {DISKS: "lun=" * 500 + " x"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"subnet": "10.0/8"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"subnet": 8}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"macAddress": "00:0D"}}, "validation-failed"),
        ("/v1/vms/v", {"host": "h", "instance": {"sku": "a\nb"}}, "validation-failed"),
        ("/v1/hosts/h", ["not", "an", "object"], "validation-failed"),
    ],
)
def test_wrong_form_is_refused(shared: Live, path: str, form: object, code: str) -> None:
    """A form that cannot be true is refused with what is wrong, and changes nothing."""
    before = shared.get("/v1/topology")
    reply = shared.call("PUT", path, form)
    assert (reply.status, reply.code) == (422, code)
    assert shared.get("/v1/topology") == before


def test_busy_fleet_stays(fleet: Live) -> None:
    """No VM arrives on a host with announced work. Source: L-5."""
    fleet.post("/v1/hosts/h1/reboot")
    reply = fleet.call("PUT", "/v1/vms/web-9", {"host": "h1", "group": "web"})
    assert (reply.status, reply.code) == (409, "fleet-busy")
