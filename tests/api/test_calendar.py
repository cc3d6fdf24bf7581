"""Declared maintenances as a calendar. Source: T-1, RFC 5545."""

import base64
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.fleet.declarations import ResourceState
from forewarn_server.api import calendar_routes
from forewarn_server.api.icalendar import text
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.asking import Reply

LINE = re.compile(r"([A-Z-]+)((?:;[A-Z-]+=[^:;]+)*):([^\x00-\x08\x0a-\x1f\x7f]*)")
TIMES = {"DTSTAMP", "DTSTART", "DTEND", "CREATED", "LAST-MODIFIED"}


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with a declared maintenance of two owners' hosts, with a long reason."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as service:
        groups = {**FLEET["groups"], "db": {"owner": "bank"}}
        as_admin(service, "PUT", "/v1/topology", {**FLEET, "groups": groups})
        reason = "Aktualisierung für die Lüfter; Teil 1, siehe \\\\ablage" + "ü" * 60
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 600, "reason": reason}
        as_admin(service, "POST", "/v1/maintenances", form)
        as_admin(service, "POST", "/v1/maintenances/m-1/declare", {})
        service.planned()
        yield service


def as_admin(live: Live, method: str, path: str, form: object = None) -> Reply:
    """Return the answer to an admin's call."""
    return live.call(method, path, form, headers={"Authorization": f"Bearer {TOKEN}"})


def basic(token: str, name: str = "anybody") -> dict[str, str]:
    """Return the header of a calendar program that has a token as password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{token}'.encode()).decode()}"}


def read(body: bytes) -> list[dict[str, str]]:
    """Return the events of a calendar, which is read strictly. Source: RFC 5545 3.1, 3.6."""
    assert body.endswith(b"\r\n")
    physical = body.removesuffix(b"\r\n").split(b"\r\n")
    assert all(len(each) <= 75 and b"\n" not in each for each in physical)
    assert all(each.decode() for each in physical), "a part is empty"
    lines = b"\r\n".join(physical).replace(b"\r\n ", b"").decode().split("\r\n")
    assert (lines[0], lines[-1]) == ("BEGIN:VCALENDAR", "END:VCALENDAR")
    assert lines[1:3] == ["VERSION:2.0", "PRODID:-//Forewarn//Declared maintenance//EN"]
    events: list[dict[str, str]] = []
    open_: list[str] = []
    for line in lines:
        match = LINE.fullmatch(line)
        assert match, line
        name, _, value = match.groups()
        if name == "BEGIN":
            open_.append(value)
            if value == "VEVENT":
                events.append({})
        elif name == "END":
            assert open_.pop() == value
        elif open_[-1] == "VEVENT":
            assert name not in events[-1], f"{name} occurs twice"
            assert name not in TIMES or re.fullmatch(r"\d{8}T\d{6}Z", value), line
            events[-1][name] = value
        elif open_[-1] == "VALARM":
            events[-1][f"ALARM-{name}"] = value
    assert open_ == []
    assert all({"UID", "DTSTAMP", "DTSTART", "SUMMARY", "SEQUENCE"} <= set(e) for e in events)
    assert len({each["UID"] for each in events}) == len(events)
    return events


def check_revisions(before: list[dict[str, str]], after: list[dict[str, str]]) -> set[str]:
    """Check that each changed event is a later revision; return the UIDs of these. Source: T-1."""
    old = {each["UID"]: each for each in before}
    changed = [(old[e["UID"]], e) for e in after if e["UID"] in old and e != old[e["UID"]]]
    for one, other in changed:
        numbers = one["SEQUENCE"], other["SEQUENCE"]
        names = [name for name in other if other[name] != one.get(name)]
        assert int(numbers[1]) > int(numbers[0]), (
            f"T-1: {names} of {other['SUMMARY']!r} changed, and SEQUENCE went from {numbers[0]} "
            f"to {numbers[1]}"
        )
    return {each["UID"] for _, each in changed}


def test_calendar_has_the_own_windows_and_the_deadline(live: Live) -> None:
    """With the token as password; a choice keeps the UID and counts the revision. Source: T-1."""
    headers = basic(live.add_token("calendar", Role.VIEWER, "shop"))
    reply = live.call("GET", "/v1/declarations.ics", headers=headers)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/calendar; charset=utf-8")
    first, second, deadline = read(reply.body)
    assert [each["SUMMARY"] for each in (first, second)] == [
        "Host reboot of h1: web-0",
        "Host reboot of h2: web-1",
    ]
    assert second["STATUS"] == "TENTATIVE"
    assert r"die Lüfter\; Teil 1\, siehe \\\\ablage" in second["DESCRIPTION"]
    assert (deadline["DTSTART"], deadline["ALARM-TRIGGER"]) == ("20270129T080000Z", "-P1D")
    assert b"bank" not in reply.body
    live.advance(60)
    choice = {"vm": "web-1", "at": "2027-01-20T02:00:00+01:00"}
    as_admin(live, "POST", "/v1/declarations/m-1/choices", {"choices": [choice]})
    live.planned()
    after = read(live.call("GET", "/v1/declarations.ics", headers=headers).body)
    chosen = after[1]
    changed = check_revisions([first, second, deadline], after)
    assert changed >= {second["UID"], deadline["UID"]}, "the choice, and one host fewer to choose"
    assert chosen["LAST-MODIFIED"] > second["LAST-MODIFIED"]
    times = (chosen["DTSTART"], chosen["DTEND"], chosen["STATUS"])
    assert times == ("20270120T010000Z", "20270120T011000Z", "CONFIRMED")


def test_calendar_is_empty_without_declarations() -> None:
    """A program that subscribes early gets a calendar without events. Source: T-1."""
    with Live() as live:
        assert read(live.call("GET", "/v1/declarations.ics").body) == []


def test_token_as_password_reads_only_the_calendar(live: Live) -> None:
    """No other path takes it, and the calendar asks for it. Source: P-1."""
    assert live.call("GET", "/v1/declarations", headers=basic(TOKEN)).status == 401
    for headers in ({}, basic("wrong"), {"Authorization": "Basic ="}, {"Authorization": "Basic é"}):
        refused = live.call("GET", "/v1/declarations.ics", headers=headers)
        assert refused.status == 401
        assert "Basic realm=" in refused.headers["www-authenticate"]


def test_text_is_escaped() -> None:
    """Separators are escaped, line ends are written out, controls are left out."""
    assert text("a;b,c\\d\r\ne\x00\x1b") == r"a\;b\,c\\d\ne"


def test_granted_deferral_is_a_later_revision(live: Live) -> None:
    """So are the window of its host, and the deadline that is no longer that of the host. T-1."""
    as_admin(live, "PUT", "/v1/policy", {"deferral_limit": "30d"})
    headers = basic(live.add_token("calendar", Role.VIEWER, "shop"))
    before = read(live.call("GET", "/v1/declarations.ics", headers=headers).body)
    live.advance(60)
    form = {"vm": "web-1", "until": "2027-02-03T08:00:00Z", "reason": "A demonstration."}
    reply = as_admin(live, "POST", "/v1/declarations/m-1/deferrals", form)
    assert reply.json["deferrals"][0]["state"] == "granted", reply.json
    live.planned()
    after = read(live.call("GET", "/v1/declarations.ics", headers=headers).body)
    changed = check_revisions(before, after)
    assert {before[1]["UID"], before[2]["UID"]} <= changed, "h2, and the deadline without h2"
    assert len({each["UID"] for each in after} - {each["UID"] for each in before}) == 1


@pytest.mark.parametrize("change", ["choose", "hold", "resume"])
def test_answer_during_a_pause_is_a_later_revision(live: Live, change: str) -> None:
    """Nothing is planned until the maintenance goes on: the answer alone counts. T-1, T-8."""
    headers = basic(live.add_token("calendar", Role.VIEWER, "shop"))
    as_admin(live, "PUT", "/v1/groups/test", {"owner": "shop"})
    as_admin(live, "PUT", "/v1/vms/web-0", {"host": "h1", "group": "test"})
    path, of_shop = "/v1/declarations/m-1", {"owner": "shop", "reason": "A smoke test fails."}
    forms: dict[str, tuple[str, Json]] = {
        "choose": ("choices", {"choices": [{"vm": "web-1", "release": True}]}),
        "hold": ("hold", of_shop),
        "resume": ("resume", {"owner": "shop"}),
    }
    as_admin(live, "POST", f"{path}/first-group", {"owner": "shop", "group": "test"})
    if change == "resume":
        as_admin(live, "POST", f"{path}/hold", of_shop)
    as_admin(live, "POST", "/v1/maintenances/m-1/pause", {})
    live.planned()
    before = read(live.call("GET", "/v1/declarations.ics", headers=headers).body)
    live.advance(60)
    route, form = forms[change]
    reply = as_admin(live, "POST", f"{path}/{route}", form)
    assert reply.status == 200, reply.json
    after = read(live.call("GET", "/v1/declarations.ics", headers=headers).body)
    changed = check_revisions(before, after)
    assert changed >= {before[1]["UID"], before[2]["UID"]}, "h2, and whether to choose for h2"


def test_calendar_has_a_sentence_for_each_state() -> None:
    """A state without one would leave the owner without a calendar. Source: T-1."""
    lasting = set(ResourceState) - {ResourceState.WITHDRAWN}  # its declaration has ended
    assert lasting - calendar_routes._ENDED - calendar_routes._MEANINGS.keys() == set()
