"""The fleet at a glance: what is counted, that it keeps up with every commit, and its stream."""

import gzip
import http.client
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_server.api.fleet_overview import RACKS_MAX, FleetOverview
from forewarn_server.web import FOLDER, web_files
from tests.api.live import SETTINGS, Json, Live
from tests.waiting import LIMIT_S

PAGE_BYTES_MAX = 150_000
HOSTS = 12


def fleet(live: Live) -> None:
    """Lay out two zones with racks of three hosts, two VMs on each."""
    hosts = {f"h{n:02}": {"zone": "ab"[n % 2], "fault_domain": n // 2 % 2} for n in range(HOSTS)}
    vms = {f"v{n:02}": {"host": f"h{n % HOSTS:02}", "group": f"g{n % 5}"} for n in range(2 * HOSTS)}
    live.fleet(hosts=hosts, groups={f"g{n}": {} for n in range(5)}, vms=vms)


def letters(told: Json) -> str:
    """Return the letter of each host."""
    text, found = told["host_states"], ""
    while text:
        letter, text = text[0], text[1:]
        digits = text[: len(text) - len(text.lstrip("0123456789"))]
        found, text = found + letter * int(digits), text[len(digits) :]
    return found


def fresh(live: Live) -> FleetOverview:
    """Return an overview that is made of the state as it is now."""
    return live.daemon.control.read(
        lambda plane: FleetOverview(
            plane.state.topology.copy(),
            plane.state.operations,
            plane.state.events,
            listening=plane.state.enrolments,
        )
    ).result(LIMIT_S)


def test_group_that_does_not_listen_is_not_waited_for(live: Live) -> None:
    """The overview counts the approvals that work waits for, and no others. Source: B-2."""
    vms: dict[str, object] = {g: {"host": "h", "group": g} for g in ("hears", "silent")}
    live.fleet(hosts={"h": {}}, groups={"hears": {}, "silent": {}}, vms=vms)
    live.enable("hears")
    live.post("/v1/hosts/h/reboot")
    [operation] = live.get("/v1/overview")["operations"]
    assert (operation["approved"], operation["asked"]) == (0, 1)


def test_overview_counts_hosts_and_vms_by_state(live: Live) -> None:
    """A host shows the first thing that is true of it; its VMs count where they are."""
    fleet(live)
    live.post("/v1/hosts/h00/fail")
    live.post("/v1/hosts/h01/reboot")
    told = live.get("/v1/overview")
    names = [each["name"] for each in live.get("/v1/overview/hosts")["hosts"]]
    by_name = dict(zip(names, letters(told), strict=True))
    assert by_name.pop("h00") == "f"
    assert by_name.pop("h01") == "r", "nobody is enabled, so it begins at once"
    assert set(by_name.values()) == {"h"}
    assert sum(rack["vms"] for rack in told["racks"]) == 2 * HOSTS
    disturbed = sum((Counter(rack["disturbed"]) for rack in told["racks"]), Counter[str]())
    assert disturbed == {"r": 2, "f": 2}, "VMs of a failed host are down"
    assert {each["target"] for each in told["operations"]} == {"h00", "h01"}


def test_overview_says_what_the_topology_refuses(live: Live) -> None:
    """Once for each record, until it has not been tried for two minutes."""
    for _ in range(2):
        live.call("PUT", "/v1/topology", {"vms": {"a b": {"host": "h0"}}})
    live.call("PUT", "/v1/topology?dry_run=true", {"vms": {"c d": {"host": "h0"}}})
    (sentence,) = live.get("/v1/overview")["refused"]
    assert "a b" in sentence
    live.advance(120)
    assert live.get("/v1/overview")["refused"] == []


def test_overview_keeps_up_with_every_commit(live: Live) -> None:
    """Kept by what commits write, it is what it would be if it were made of the state."""
    fleet(live)
    live.enable(*(f"v{n:02}" for n in range(5)))
    live.get("/v1/overview")
    chance = random.Random(4)
    acts = (
        "hosts/h{:02}/reboot",
        "hosts/h{:02}/fail",
        "hosts/h{:02}/repair",
        "vms/v{:02}/redeploy",
    )
    for turn in range(60):
        place = chance.choice([*(f"/v1/{act}".format(chance.randrange(HOSTS)) for act in acts)])
        live.call("POST", place, {})
        if turn % 7 == 0:
            name = f"v{chance.randrange(2 * HOSTS):02}"
            moved = {"host": f"h{chance.randrange(HOSTS):02}", "group": f"g{chance.randrange(5)}"}
            live.call("PUT", f"/v1/vms/{name}", moved)
        if turn % 11 == 0:
            live.call("PUT", f"/v1/hosts/new-{turn}", {"zone": chance.choice("abc")})
            live.call("DELETE", f"/v1/vms/v{chance.randrange(2 * HOSTS):02}")
        if turn % 9 == 0:
            live.advance(chance.choice((30, 1000)))
        for number in range(1, 12):
            if chance.random() < 0.05:
                live.call("POST", f"/v1/operations/op-{number}/complete", {})
        live.settle()
        told, made = live.get("/v1/overview"), fresh(live)
        assert letters(told) == made.states.decode()
        for rack, other in zip(told["racks"], made.racks, strict=True):
            assert Counter(rack["hosts"]) == +other.hosts
            assert Counter(rack["disturbed"]) == +other.disturbed
            assert rack["vms"] == other.vms
        assert told["counts"] == dict(made.counts())


@pytest.mark.parametrize("zones", [1, 3, 2500])
def test_racks_beyond_the_limit_are_counted_together(zones: int) -> None:
    """However many zones and fault domains there are, an answer stays small."""
    hosts = {
        f"h{n:05}": Host(f"h{n:05}", zone=f"z{n % zones:04}", fault_domain=n % 1000)
        for n in range(2500)
    }
    made = FleetOverview(Topology(hosts, {"g": Group("g")}, {"v": Vm("v", "h00000", "g")}), {}, {})
    assert len(made.racks) <= RACKS_MAX
    assert sum(sum(rack.hosts.values()) for rack in made.racks) == 2500


# --- the stream -------------------------------------------------------------------------------


@contextmanager
def following(live: Live, place: str = "") -> Iterator[Iterator[tuple[str, str, Json]]]:
    """Yield the events of a stream, but for those that only tell the time."""
    connection = http.client.HTTPConnection(live.host, int(live.port), timeout=LIMIT_S)
    connection.request("GET", "/v1/overview/watch", headers={"Last-Event-ID": place})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/event-stream"

    def events() -> Iterator[tuple[str, str, Json]]:
        found: dict[str, str] = {}
        while line := answer.readline().decode():
            name, _, text = line.rstrip("\n").partition(": ")
            if name:
                found[name] = text
            elif found:
                if found["event"] != "time":
                    yield found.get("id", ""), found["event"], json.loads(found["data"])
                found = {}

    try:
        yield events()
    finally:
        answer.close()
        connection.close()


def test_stream_tells_what_has_changed(live: Live) -> None:
    """A change is told with the host's letter, its rack, and the operation."""
    fleet(live)
    told = live.get("/v1/overview")
    with following(live, told["place"]) as events:
        live.post("/v1/hosts/h03/reboot")
        changes: dict[int, str] = {}
        for _, event, change in events:
            assert event == "change"
            changes |= dict(change["hosts"])
            if change["operations"] and change["operations"][-1]["state"] == "running":
                break
        name = live.get("/v1/overview/hosts?host=h03")["from"]
        assert changes == {name: "r"}


def test_stream_is_taken_up_where_it_broke_off(live: Live) -> None:
    """What was missed is told by its place, and one place no longer known begins again."""
    fleet(live)
    told = live.get("/v1/overview")
    with following(live, told["place"]) as events:
        live.post("/v1/hosts/h03/reboot")
        first = next(events)
        live.post("/v1/hosts/h04/reboot")
        second = next(events)
        with following(live, first[0]) as again:
            assert next(again) == second
        with following(live, "1-1") as unknown:
            assert next(unknown)[1] == "reload"
        live.call("PUT", "/v1/hosts/another", {})
        assert any(event == "reload" for _, event, _ in events)


def test_streams_count_with_the_watch(live: Live) -> None:
    """One operator holds this many streams of all kinds together."""
    fleet(live)
    limit = SETTINGS.operator.max_streams_per_operator
    held = []
    for _ in range(limit):
        stream = following(live)
        next(stream.__enter__())
        held.append(stream)
    assert live.call("GET", "/v1/overview/watch").code == "too-many-streams"
    assert live.call("GET", "/v1/watch").code == "too-many-streams"
    for stream in held:
        stream.__exit__(None, None, None)


# --- the page's files -------------------------------------------------------------------------


def test_page_is_served_to_anybody_with_a_strict_policy(shared: Live) -> None:
    """The files hold no secret; the policy lets them ask nobody else, and run nothing inline."""
    for path, file in web_files().items():
        reply = shared.call("GET", path, headers={"Sec-Fetch-Site": "cross-site"})
        assert reply.status == 200
        assert reply.body == file.plain
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = shared.call("GET", path, headers={"If-None-Match": reply.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


def test_page_is_compressed_and_small(shared: Live) -> None:
    """All of it together stays below its limit, as it is sent."""
    sizes = 0
    for path, file in web_files().items():
        reply = shared.call("GET", path, headers={"Accept-Encoding": "gzip, br"})
        assert reply.headers["content-encoding"] == "gzip"
        assert gzip.decompress(reply.body) == file.plain
        sizes += len(reply.body)
    assert sizes <= PAGE_BYTES_MAX


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.*")), ids=lambda path: path.name)
def test_page_names_nothing_elsewhere(path: object) -> None:
    """No file of the page leads a browser to another server."""
    text = FOLDER.joinpath(str(path)).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in text
    assert "https://" not in text


def test_label_says_the_rack() -> None:
    """Hosts stand by their label `rack`, r9 before r10; those without it by fault domain. F-1."""
    hosts = {
        name: Host(name, zone="1", fault_domain=domain, labels=labels)
        for name, domain, labels in (
            ("h1", 0, (("rack", "r10"),)),
            ("h2", 1, (("rack", "r9"),)),
            ("h3", 2, ()),
            ("h4", 3, (("rack", "r10"), ("row", "4"))),
        )
    }
    made = FleetOverview(Topology(hosts, {}, {}), {}, {})
    assert [each.first for each in made.racks] == ["fault domain 2", "rack r9", "rack r10"]
    assert made.names == ["h3", "h2", "h1", "h4"]
    layout = made.layout
    made.adopt(Changes(last_number=0, hosts={"h3": replace(hosts["h3"], labels=(("rack", "r9"),))}))
    made.settle()
    assert made.layout == layout + 1
    assert [sum(each.hosts.values()) for each in made.racks] == [2, 2]
