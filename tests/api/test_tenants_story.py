"""A declared firmware update of forty hosts of two tenants, from its first day to its end.

Everything goes through the operator API with the tokens of the persons, in virtual time. One tenant
chooses Sunday, the other asks for a later deadline and is refused, one host is left alone; a rack
is handed back and reported, one window overruns, one validation fails, and an emergency comes in
between. Each test reads the same world at its end.
"""

import json
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_base.settings import DriverSettings, GateSettings, NamedTable, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.step import next_deadline_ms
from forewarn_server.control.plane import StateView
from tests.api.live import NOW_MS, SETTINGS, Json, Live
from tests.waiting import LIMIT_S, wait_until

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "docs/howto/check-availability.py"))["main"]
pytestmark = pytest.mark.slow
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
DAY_MS = DAY_S * 1000
DEADLINE_MS = NOW_MS + 14 * DAY_MS
#: Sunday, 24 January 2027, 02:00 and 04:00 UTC: one start for each fault domain of the shop.
SUNDAY = ("2027-01-24T02:00:00Z", "2027-01-24T04:00:00Z")
#: The emergency comes on the third day, in a freeze.
EMERGENCY_S = 3 * DAY_S
FREEZE = (iso8601(NOW_MS + 2 * DAY_MS), iso8601(NOW_MS + 4 * DAY_MS))
#: The host that nobody decides about, the slow one, the one whose validation fails, the leaking.
ALONE, SLOW, BROKEN, LEAKING = "h5", "h33", "h3", ["h10", "h11"]
WORK_S, SLOW_S = 600, 7200
#: A gate that fails while the file of its argument exists.
GATE = 'test ! -e "$0" || { echo no link >&2; exit 1; }'


def fleet() -> Json:
    """Return four racks of ten hosts, each a fault domain; two tenants have two racks each."""
    hosts: Json = {}
    for n in range(40):
        labels = {"rack": f"r{n // 10}"}
        if f"h{n}" == BROKEN:
            labels["validation"] = "check"
        hosts[f"h{n}"] = {"fault_domain": n // 10, "labels": labels}
    hosts[SLOW]["driver"] = "slow"
    return {
        "hosts": hosts,
        "groups": {"web": {"owner": "shop"}, "db": {"owner": "bank"}},
        "vms": {f"v{n}": {"host": f"h{n}", "group": "web" if n < 20 else "db"} for n in range(40)},
    }


@dataclass
class Story:
    """The service, its persons, and what the story's records are called."""

    live: Live
    bad: Path
    tokens: dict[str, str] = field(default_factory=dict)
    #: Ids of the maintenance and of the emergency.
    update: str = ""
    emergency: str = ""
    #: What was answered on the way, by name.
    seen: dict[str, Json] = field(default_factory=dict)

    def ask(self, who: str, method: str, path: str, form: object = None) -> Json:
        """Return what a person is answered, with success."""
        reply = self.reply(who, method, path, form)
        assert reply.status in {200, 201, 202}, reply
        return reply.json

    def reply(self, who: str, method: str, path: str, form: object = None) -> Json:
        """Return the reply to a person."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        return self.live.call(method, path, form, headers=headers)

    def declaration(self, who: str, number: str = "") -> dict[str, Json]:
        """Return what a person sees of a declaration, by host."""
        path = f"/v1/declarations/{number or self.update}"
        resources = self.ask(who, "GET", path)["declaration"]["resources"]
        return {each["host"]: each for each in resources}

    def until(self, seconds: int) -> None:
        """Let the world go on until a time after the beginning, from deadline to deadline."""
        ends_ms = NOW_MS + seconds * 1000
        while (now_ms := self.live.clock.now_ms()) < ends_ms:
            self.live.enable("v0", "v20")
            wait_until(lambda: not self._due())
            self.live.advance((min(ends_ms, self._next_ms(now_ms)) - now_ms) / 1000)
            self.live.planned()
            wait_until(lambda: not self._due())
            self.live.planned()

    def _next_ms(self, now_ms: int) -> int:
        """Return when something is due, at most five minutes ahead while work runs."""

        def read(view: StateView) -> tuple[int, bool]:
            next_ms = next_deadline_ms(view.state, view.policy, now_ms)
            states = {each.state for each in view.state.operations.values()}
            return next_ms or now_ms + DAY_MS, OperationState.RUNNING in states

        next_ms, runs = self.live.daemon.control.read(read).result(LIMIT_S)
        return min(next_ms, now_ms + 5 * MINUTE_S * 1000) if runs else next_ms

    def _due(self) -> bool:
        """Whether a driver or a gate has not told yet what is the case by now.

        Work that has not begun would begin later than it started, if the clock went on.
        """
        now_ms = self.live.clock.now_ms()
        running = self.ask("olga", "GET", "/v1/operations?state=running")["operations"]
        for each in running:
            lasts_s = SLOW_S if each["host"] == SLOW else WORK_S
            over = not each["begun"] or now_ms >= parse(each["begun"]) + lasts_s * 1000
            if over and each["alert"] != "stuck":
                return True
        return False

    def operation(self, host: str, number: str = "") -> Json:
        """Return the work on a host, live or ended."""
        hosts = self.ask("olga", "GET", f"/v1/maintenances/{number or self.update}/hosts")["hosts"]
        [name] = [each["operation"] for each in hosts if each["host"] == host]
        return self.ask("olga", "GET", f"/v1/operations/{name}")["operation"]

    def tickets(self, who: str, kind: str) -> list[Json]:
        """Return the tickets of a type that a person sees, ended ones, too."""
        every: list[Json] = self.ask(who, "GET", f"/v1/tickets?type={kind}")["tickets"]
        return every


def declare(story: Story) -> None:
    """Day one: the operator declares, and the tenants answer."""
    form = {"cause": "host-reboot", "all": True, "duration": WORK_S, "reason": "firmware 4.2"}
    form["max_failures"] = 1
    story.update = story.ask("olga", "POST", "/v1/maintenances", form)["maintenance"]["id"]
    story.live.planned()
    story.ask("olga", "POST", f"/v1/maintenances/{story.update}/declare", {})
    story.live.planned()
    for who in ("shop", "bank"):
        story.seen[who] = story.declaration(who)
    path = f"/v1/declarations/{story.update}"
    first = [f"h{n}" for n in range(10) if f"h{n}" != ALONE]
    choices = [{"host": host, "at": SUNDAY[0]} for host in first]
    story.ask("shop", "POST", f"{path}/choices", {"choices": choices})
    second = [{"host": f"h{n}", "at": SUNDAY[0]} for n in range(10, 20)]
    story.seen["second domain"] = story.reply(
        "shop", "POST", f"{path}/choices", {"choices": second}
    )
    second = [{**each, "at": SUNDAY[1]} for each in second]
    story.ask("shop", "POST", f"{path}/choices", {"choices": second})
    for host in (f"h{n}" for n in range(20, 30)):
        deferral = {"host": host, "until": iso8601(DEADLINE_MS + 6 * DAY_MS), "reason": "closing"}
        story.ask("bank", "POST", f"{path}/deferrals", deferral)
    refusal = {"owner": "bank", "reason": "the firmware has a known fault"}
    story.ask("olga", "POST", f"{path}/deferrals/refuse", refusal)
    report = {"target_kind": "rack", "target": "r3", "description": "we return this rack"}
    story.seen["report"] = story.ask("bank", "POST", "/v1/tickets", report)
    back = [{"host": f"h{n}", "release": True} for n in range(30, 40)]
    story.ask("bank", "POST", f"{path}/choices", {"choices": back})
    story.live.planned()


def close_report(story: Story) -> None:
    """The rack is done: the operator says so, and the tenant agrees."""
    path = f"/v1/tickets/{story.seen['report']['id']}"
    story.ask("olga", "POST", f"{path}/resolve", {"action": "firmware 4.2 is installed"})
    story.ask("bank", "POST", f"{path}/close", {})


def declare_emergency(story: Story) -> None:
    """Day three: two hosts leak, in the freeze; an admin does not wait for the tenants."""
    form = {"cause": "host-reboot", "hosts": LEAKING, "duration": WORK_S}
    story.emergency = story.ask("olga", "POST", "/v1/maintenances", form)["maintenance"]["id"]
    story.live.planned()
    path = f"/v1/maintenances/{story.emergency}/declare-emergency"
    story.seen["not an admin"] = story.reply("olga", "POST", path, {"reason": "leak"})
    story.ask("root", "POST", path, {"reason": "coolant leak", "hand_back": "20m"})
    story.live.planned()
    story.seen["emergency"] = story.declaration("shop", story.emergency)
    [review] = story.tickets("root", "review")
    closing = f"/v1/tickets/{review['id']}/close"
    story.seen["own review"] = story.reply("root", "POST", closing, {"text": "fine"})
    story.seen["review"] = review
    story.seen["choice"] = story.declaration("shop")["h10"]


def take_back(story: Story) -> None:
    """Sunday: the validation of one host fails; the operator repairs it and tries again."""
    stuck = story.operation(BROKEN)
    story.seen["stuck"] = stuck
    story.seen["incidents"] = story.tickets("shop", "incident")
    story.bad.unlink()
    story.ask("olga", "POST", f"/v1/operations/{stuck['id']}/retry", {})
    story.live.settle()


def told_in(
    folder: Path, moment: Callable[[str, Story], None] = lambda _, __: None
) -> Iterator[Story]:
    """Tell the story; `moment` is called at each of its five moments, with the moment's name."""
    bad = folder / "bad"
    bad.touch()
    gate = {"command": ["/bin/sh", "-c", GATE, str(bad)], "tries": 1}
    settings = replace(
        SETTINGS,
        operator=OperatorSettings(),
        drivers=DriverSettings(
            default="simulated",
            tables=(NamedTable("slow", {"kind": "simulated", "started_for_s": SLOW_S}),),
        ),
        gates=GateSettings((NamedTable("check", gate),)),
    )
    with Live(settings) as live:
        story = Story(live, bad)
        for name, role, owner in (
            ("root", Role.ADMIN, ""),
            ("olga", Role.OPERATOR, ""),
            ("shop", Role.OWNER, "shop"),
            ("bank", Role.OWNER, "bank"),
        ):
            story.tokens[name] = live.add_token(name, role, owner)
        story.ask("olga", "PUT", "/v1/topology", fleet())
        live.enable("v0", "v20")
        freeze = [{"from": FREEZE[0], "to": FREEZE[1]}]
        story.ask("olga", "PUT", "/v1/policy", {"freezes": freeze, "pause": "PT1H"})
        declare(story)
        moment("choice", story)
        story.until(4 * HOUR_S)
        close_report(story)
        story.until(EMERGENCY_S)
        declare_emergency(story)
        moment("emergency", story)
        story.until(EMERGENCY_S + 2 * HOUR_S)
        sunday_s = (parse(SUNDAY[0]) - NOW_MS) // 1000
        story.until(sunday_s - 10 * MINUTE_S)
        story.seen["document"] = live.document("v0")
        story.until(sunday_s + 20 * MINUTE_S)
        moment("validation", story)
        take_back(story)
        story.until(sunday_s + 4 * HOUR_S)
        story.until(14 * DAY_S - 2 * HOUR_S)
        story.seen["before the deadline"] = story.declaration("olga")
        moment("deadline", story)
        story.until(14 * DAY_S + 8 * HOUR_S)
        moment("availability", story)
        yield story


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole story, told once."""
    yield from told_in(tmp_path_factory.mktemp("story"))


def test_each_tenant_sees_its_own_hosts_for_two_weeks(told: Story) -> None:
    """Nobody sees the other's; the deadline is that of the policy. Source: T-1, P-3."""
    for who, numbers in (("shop", range(20)), ("bank", range(20, 40))):
        assert told.seen[who].keys() == {f"h{n}" for n in numbers}
        for each in told.seen[who].values():
            assert (each["owner"], each["state"]) == (who, "open")
            assert parse(each["hand_back_deadline"]) == DEADLINE_MS


def test_nothing_is_disturbed_before_the_deadline_without_a_choice(told: Story) -> None:
    """Every other host was chosen for its start, or handed back. Source: T-3."""
    waiting = {ALONE, *(f"h{n}" for n in range(20, 30))}
    for n in range(40):
        started_ms = parse(told.operation(f"h{n}")["started"])
        assert (started_ms >= DEADLINE_MS) is (f"h{n}" in waiting), f"h{n}"
    before = told.seen["before the deadline"]
    assert {host for host, each in before.items() if each["state"] == "open"} == waiting
    assert told.ask("olga", "GET", f"/v1/maintenances/{told.update}")["maintenance"]["done"] == 40


def test_chosen_sunday_is_kept_to_the_second(told: Story) -> None:
    """Its VMs read it as NotBefore. Source: T-2."""
    for n in set(range(20)) - {int(ALONE[1:])}:
        work = told.operation(f"h{n}")
        assert work["not_before"] == work["started"] == SUNDAY[n >= 10]
    [event] = [each for each in told.seen["document"]["Events"] if each["Resources"] == ["v0"]]
    assert (event["EventStatus"], event["EventType"]) == ("Scheduled", "Reboot")
    assert event["NotBefore"] == "Sun, 24 Jan 2027 02:00:00 GMT"


def test_choice_beside_another_fault_domain_is_refused_with_openings(told: Story) -> None:
    """Windows, freezes and G-1 win; the openings leave the freeze out. Source: T-2, G-1."""
    refused = told.seen["second domain"]
    assert (refused.status, refused.code) == (409, "choice-refused")
    error = refused.json["error"]
    assert "another fault domain" in error["message"]
    assert FREEZE[1] in error["advice"]


def test_refused_deferral_has_its_reason_and_moves_nothing(told: Story) -> None:
    """The tenant reads it, and history has request and answer. Source: T-4."""
    for n in range(20, 30):
        resource = told.seen["before the deadline"][f"h{n}"]
        assert parse(resource["hand_back_deadline"]) == DEADLINE_MS
        deferral = resource["deferral"]
        assert (deferral["state"], deferral["answered_by"]) == ("refused", "olga")
        assert deferral["answer"] == "the firmware has a known fault"
    history = told.ask("olga", "GET", "/v1/history?order=oldest&limit=500")["entries"]
    actions = [each["action"] for each in history]
    assert actions.count("deferral.asked") == 10
    assert actions.count("deferral.refused") == 1


def test_returned_rack_is_done_on_the_first_day(told: Story) -> None:
    """Its tenant handed it back; the report ends with the tenant's agreement. Source: T-2, T-9."""
    for n in range(30, 40):
        assert parse(told.operation(f"h{n}")["started"]) < NOW_MS + HOUR_S * 1000
    [report] = told.tickets("bank", "report")
    assert (report["target"], report["state"]) == ("r3", "closed")
    assert told.tickets("shop", "report") == []


def test_overrun_has_an_incident_with_the_true_time(told: Story) -> None:
    """It opens within a minute of the planned close, and closes with the work. Source: T-5."""
    work = told.operation(SLOW)
    [incident] = [each for each in told.tickets("bank", "incident") if each["host"] == SLOW]
    window = work["window"]
    assert work["started"] == window["opened"]
    assert parse(window["planned_close"]) == parse(window["opened"]) + WORK_S * 1000
    late_ms = parse(incident["opened"]) - parse(window["planned_close"])
    assert 0 <= late_ms <= MINUTE_S * 1000
    assert incident["closed"] == work["ended"]
    assert SLOW_S - WORK_S == 110 * MINUTE_S
    assert "1 h 50 min after the planned close" in incident["action"]


def test_failed_validation_keeps_the_event_until_the_host_is_well(told: Story) -> None:
    """An incident says so; a second attempt passes. Source: T-7."""
    stuck = told.seen["stuck"]
    assert (stuck["state"], stuck["alert"]) == ("running", "stuck")
    assert "no link" in stuck["reason"]
    incidents = [each for each in told.seen["incidents"] if each["host"] == BROKEN]
    assert "validation failed" in {each["description"] for each in incidents}
    after = told.operation(BROKEN)
    assert (after["state"], after["attempt"]) == ("succeeded", 2)
    live = [each for each in told.tickets("shop", "incident") if each["closed"] is None]
    assert live == []


def test_incidents_are_about_broken_promises_alone(told: Story) -> None:
    """Every other window closed in time. Source: T-5."""
    incidents = told.tickets("olga", "incident")
    assert {each["host"] for each in incidents} == {SLOW, BROKEN}


def test_emergency_overrides_the_freeze_and_keeps_the_notice(told: Story) -> None:
    """It waits twenty minutes for its tenants, not for Sunday. Source: T-6."""
    for host in LEAKING:
        work = told.operation(host, told.emergency)
        started_ms, began_ms = parse(work["started"]), NOW_MS + EMERGENCY_S * 1000
        assert began_ms + 20 * MINUTE_S * 1000 <= started_ms < began_ms + HOUR_S * 1000
        assert parse(FREEZE[0]) < started_ms < parse(FREEZE[1])
        assert started_ms - parse(work["shown"]) >= work["notice_s"] * 1000 == 900_000
    assert told.seen["emergency"].keys() == set(LEAKING)
    assert told.seen["choice"]["chosen_start"] == SUNDAY[1]


def test_emergency_needs_an_admin_and_another_persons_review(told: Story) -> None:
    """The review stays open while nobody else has closed it. Source: T-6, P-2."""
    assert told.seen["not an admin"].status == 403
    assert (told.seen["own review"].status, told.seen["own review"].code) == (403, "own-review")
    [review] = told.tickets("olga", "review")
    assert (review["state"], review["maintenance"]) == ("open", told.emergency)
    assert [each["text"] for each in review["texts"]] == ["waived: nothing"]


@pytest.mark.parametrize("who", ["shop", "bank"])
def test_both_sides_compute_the_same_availability(told: Story, who: str) -> None:
    """The provider's report, and the tenant's procedure over its own export. Source: T-13."""
    report = told.ask("olga", "GET", f"/v1/availability?owner={who}")
    page = told.ask(who, "GET", "/v1/availability/records")
    lines = [{"kind": "period", **{name: page[name] for name in ("from", "to", "at")}}]
    lines += page["records"]
    while page["next"]:
        page = told.ask(who, "GET", f"/v1/availability/records?after={page['next']}")
        lines += page["records"]
    figures = CHECK(map(json.dumps, lines))
    for name in ("counted_ms", "disturbed_ms", "available_percent"):
        assert figures[name] == report[name], name
    assert report["disturbed_ms"] >= 20 * WORK_S * 1000
