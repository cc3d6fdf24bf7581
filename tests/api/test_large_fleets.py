"""Fleets of any size: pages, exports and files that are read off the writer, and given up."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from forewarn_base.validation import complexity
from forewarn_base.validation.complexity import (
    MEMBERS_MAX,
    TOML_PARTS_MAX,
    Abandoned,
    FileTooComplex,
    abandonable,
)
from forewarn_base.validation.json_reader import BodyUnreadable
from forewarn_core.fleet.maintenance import HOSTS_MAX
from forewarn_server.api.dispatch import while_waited_for
from forewarn_server.api.name_index import NameIndex
from forewarn_server.api.routes import ApiResponse
from forewarn_server.api.topology_file import JSON, TOML, YAML, read_topology
from tests.api.live import SETTINGS, Live
from tests.waiting import LIMIT_S

DOTS = ".".join(["a"] * 400)
#: As many members as a file may have here.
MEMBERS = 1000
NAMES = [f"{n:0>128}" for n in range(HOSTS_MAX)]


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (TOML, "\n".join(f"{DOTS}.k{n} = 1" for n in range(100))),
        (TOML, f"[{DOTS}]"),
        (TOML, 'x = {"a".b . c.d.e.f.g.h.i.j = 1}'),
        (TOML, "[hosts]\n" + "\n".join(f"h{n} = 1" for n in range(TOML_PARTS_MAX + 1))),
        (JSON, f"[{'0,' * MEMBERS_MAX}0]"),
        (YAML, "a: [" + "1," * (MEMBERS + 1) + "]"),
    ],
    ids=["dotted-keys", "dotted-table", "inline-table", "toml", "json", "yaml"],
)
def test_file_that_describes_too_much_is_refused(
    media: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes that stand for much are refused before anything is built of them."""
    monkeypatch.setattr(complexity, "MEMBERS_MAX", MEMBERS)
    with pytest.raises(FileTooComplex):
        read_topology(text.encode(), media)


@pytest.mark.parametrize(
    ("media", "text"),
    [
        (TOML, f'[hosts.h1]\nzone = "{DOTS[:200]}" # {DOTS}\n'),
        (TOML, f"[hosts.h1]\nzone = '{'.' * 200}'\n"),
        (JSON, json.dumps({"hosts": {"h1": {"zone": "," * 200}}})),
    ],
)
def test_long_text_is_no_deep_name(media: str, text: str) -> None:
    """What stands in quotes or comments counts as text."""
    assert read_topology(text.encode(), media).hosts


@pytest.mark.parametrize(("media", "count"), [(YAML, 5_000), (JSON, 100_000)])
def test_doubled_name_is_found_at_once(media: str, count: int) -> None:
    """The one doubled name among many is named, and found in linear time."""
    names = [f"h{n}" for n in range(count)] + [f"h{count - 1}"]
    body = ",".join(f'"{name}": 1' for name in names)
    with pytest.raises(BodyUnreadable, match=f"'h{count - 1}'"):
        read_topology(f'{{"hosts": {{{body}}}}}'.encode(), media)


@pytest.mark.parametrize("media", [YAML, JSON, TOML])
def test_reading_ends_when_nobody_waits(media: str) -> None:
    """Work whose caller has left is given up at the next look."""
    gone = threading.Event()
    gone.set()
    with pytest.raises(Abandoned):
        abandonable(gone, lambda: read_topology(b'{"hosts": {}}' if media != TOML else b"", media))


def test_names_come_in_order_from_every_portion() -> None:
    """Portions are merged; a page begins after any name, known or not."""
    names = [f"n{n * 7919 % 30_011:05}" for n in range(30_011)]
    index = NameIndex(names)
    assert list(index.after("")) == sorted(names)
    assert next(index.after("n00100")) == "n00101"
    assert next(index.after("n00100x")) == "n00101"
    assert list(index.after("n30010")) == []


@pytest.fixture
def busy(fleet: Live) -> Iterator[Live]:
    """A service whose writer is held up."""
    release = threading.Event()
    held = threading.Event()

    def hold(_: object) -> None:
        held.set()
        release.wait(LIMIT_S)

    fleet.daemon.control.read(hold)
    assert held.wait(LIMIT_S)
    yield fleet
    release.set()


def test_fleet_is_read_while_the_writer_is_held_up(busy: Live) -> None:
    """Lists, records and exports of the fleet never wait for a commit."""
    assert [vm["name"] for vm in busy.get("/v1/vms")["vms"]] == ["db-0", "web-0", "web-1"]
    assert busy.get("/v1/vms?host=h1")["vms"][1]["name"] == "web-0"
    assert busy.get("/v1/hosts/h1")["name"] == "h1"
    assert set(busy.get("/v1/topology")["vms"]) == {"db-0", "web-0", "web-1"}


def test_pages_of_events_follow_each_other(live: Live) -> None:
    """Pages join to the whole list, each event once; a cursor survives what ended meanwhile."""
    vms = {f"v{n}": {"host": f"h{n % 5}"} for n in range(15)}
    live.fleet(hosts={f"h{n}": {} for n in range(5)}, vms=vms)
    live.enable(*vms)
    for n in range(5):
        live.post(f"/v1/hosts/h{n}/reboot")
    whole = live.get("/v1/events")
    assert len(whole["events"]) == 15
    assert whole["next"] is None
    found, after = [], ""
    while True:
        page = live.get(f"/v1/events?limit=4{after}")
        found += page["events"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == whole["events"]
    assert live.call("GET", "/v1/events?after=nonsense").code == "validation-failed"


def test_work_is_given_up_with_its_caller() -> None:
    """A caller who leaves takes his question back; it is not answered by a refusal."""
    ended = []

    async def asked() -> ApiResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return ApiResponse(None)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        asyncio.run(while_waited_for(asked(), Request({"type": "http"}, receive)))
    assert ended == [True]


def test_large_topology_has_a_limit_of_its_own() -> None:
    """How large a topology may be is a setting. Source: P-13."""
    operator = replace(SETTINGS.operator, max_topology_bytes=65_536)
    with Live(replace(SETTINGS, operator=operator)) as live:
        body = b" " * 65_536
        headers = {"Content-Type": JSON}
        assert live.call("PUT", "/v1/topology", body=body, headers=headers).status == 400
        refused = live.call("PUT", "/v1/topology", body=body + b" ", headers=headers)
        assert (refused.status, refused.code) == (413, "body-too-large")


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/maintenances", {"cause": "host-update", "duration": "PT9M", "hosts": NAMES}),
        ("/v1/maintenances/plan", {"cause": "host-update", "duration": "PT9M", "hosts": NAMES}),
    ],
    ids=["maintenance", "plan"],
)
def test_as_many_names_as_a_form_takes_fit_a_body(path: str, form: dict[str, object]) -> None:
    """100,000 of the longest are read; that there is no such host is the answer. Source: F-1."""
    headers = {"Content-Type": JSON}
    with Live(SETTINGS) as live:
        reply = live.call("POST", path, body=json.dumps(form).encode(), headers=headers)
        assert (reply.status, reply.code) == (404, "unknown")
