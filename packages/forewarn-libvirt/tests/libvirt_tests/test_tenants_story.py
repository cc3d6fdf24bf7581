"""A firmware update declared to two tenants, whose guests are real, from its first day to its end.

Control plane and driver are in this process, on a clock that the story moves: fourteen days pass
at once, guests and hypervisors take their own time. One tenant chooses Sunday, the other says
nothing; one validation fails, one window overruns. Each test reads the same world at its end.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from forewarn_base.protocol.timestamps import parse
from forewarn_base.settings import DriverSettings, GateSettings, NamedTable, OperatorSettings
from forewarn_core.access.roles import Role
from libvirt_tests.guest_image import poller_image
from libvirt_tests.laboratory import WAIT_S, Guest, Laboratory
from tests.api import test_tenants_story as simulated
from tests.api.live import NOW_MS, SETTINGS, Json, Live
from tests.api.test_tenants_story import CHECK, DEADLINE_MS, SUNDAY
from tests.asking import EVENTS, ask
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.netns]

MINUTE_MS, HOUR_S = 60_000, 3600
SUNDAY_MS = parse(SUNDAY[0])
VMS = {"h1": "shop_0", "h2": "bank_0"}
#: A reboot that says when the host is off, and lasts while a file is there.
REBOOT = ': >"$0/$1.off"; while test -e "$0/$1.held"; do sleep 0.1; done'
#: A validation that fails while a file is there, or the hypervisor does not run the guest.
GATE = (
    'test ! -e "$0" || { echo no link >&2; exit 1; }; '
    'virsh -c "$1" domstate "$2" | grep -qx running'
)
#: The driver is asked again after half a second of the service's time.
STEP_S = 0.5
#: A call of the driver that is under way while the story moves the clock is not late.
CALL_S = 24 * HOUR_S


@dataclass
class Story(simulated.Story):
    """The service, its persons, and the hosts."""

    lab: Laboratory | None = None

    @property
    def hosts(self) -> Laboratory:
        """The laboratory."""
        assert self.lab is not None
        return self.lab

    def boots(self, host: str) -> int:
        """How often the guest of a host has been up."""
        return sum(" up " in line for line in self.hosts.console(VMS[host]))

    def runs(self, host: str) -> Json:
        """The work that runs on a host, or nothing."""
        running = self.ask("olga", "GET", "/v1/operations?state=running")["operations"]
        return next((each for each in running if each["host"] == host), None)

    def go_to(self, ends_ms: int) -> None:
        """Let the world go on while no work runs, from deadline to deadline."""
        while (now_ms := self.live.clock.now_ms()) < ends_ms:
            self.live.enable(*VMS.values())
            self.live.advance((min(ends_ms, self._next_ms(now_ms)) - now_ms) / 1000)
            self.live.planned()

    def finish(self, host: str, boots: int) -> None:
        """Wait until the guest is up once more; then let the service hear of it."""
        wait_until(lambda: self.boots(host) == boots, what="the guest to boot", limit_s=WAIT_S)

        def over() -> bool:
            self.live.advance(STEP_S)
            work = self.runs(host)
            return work is None or work["alert"] == "stuck"

        wait_until(over, what="the work to end", every_s=0.1)


def settings_in(folder: Path, lab: Laboratory) -> DriverSettings:
    """Write the driver's file, and return the settings of drivers."""
    hosts = "".join(f'[hosts.{n}]\nuri = "{each.local_uri}"\n' for n, each in lab.hosts.items())
    command = json.dumps(["sh", "-c", REBOOT, str(folder), "{host}"])
    (folder / "libvirt.toml").write_text(
        f'directory = "{folder}/driver"\nshutdown_timeout_s = 20\nstorage_is_shared = true\n'
        f"reboot_command = {command}\n{hosts}"
    )
    table = NamedTable("libvirt", {"config": str(folder / "libvirt.toml")})
    return DriverSettings("libvirt", call_timeout_s=CALL_S, tables=(table,))


def gate_of(folder: Path, lab: Laboratory, host: str) -> NamedTable:
    """Return the validation of a host, of its name."""
    words = [str(folder / f"{host}.bad"), lab.hosts[host].local_uri, VMS[host]]
    return NamedTable(host, {"command": ["/bin/sh", "-c", GATE, *words], "tries": 1})


def approve(story: Story) -> None:
    """The chooser's VM approves its event; the other's never does."""
    [event] = story.live.document("shop_0")["Events"]
    story.seen["event"] = event
    address = story.live.metadata_url.removeprefix("http://").partition("/")[0]
    form = {"StartRequests": [{"EventId": event["EventId"]}]}
    assert ask(address, "POST", f"{EVENTS}&vm=shop_0", form).status == 200


def tell(story: Story, folder: Path) -> None:
    """Declare the update, and go through its fourteen days."""
    form = {"cause": "host-reboot", "all": True, "duration": HOUR_S, "reason": "firmware 4.2"}
    form["max_failures"] = 1
    story.update = story.ask("olga", "POST", "/v1/maintenances", form)["maintenance"]["id"]
    story.live.planned()
    story.ask("olga", "POST", f"/v1/maintenances/{story.update}/declare", {})
    story.live.planned()
    for who in ("shop", "bank"):
        story.seen[who] = story.declaration(who)
    choices = {"choices": [{"host": "h1", "at": SUNDAY[0]}]}
    story.ask("shop", "POST", f"/v1/declarations/{story.update}/choices", choices)
    story.live.planned()
    story.go_to(SUNDAY_MS - 10 * MINUTE_MS)
    approve(story)
    story.go_to(SUNDAY_MS - 1000)
    story.seen["before Sunday"] = [story.boots(host) for host in VMS]
    story.seen["running before Sunday"] = [story.runs(host) for host in VMS]
    story.live.advance(1)
    story.finish("h1", 2)
    story.seen["stuck"] = story.operation("h1")
    story.seen["incidents"] = story.tickets("shop", "incident")
    accept = {"reason": "link checked by hand"}
    path = f"/v1/operations/{story.seen['stuck']['id']}/complete"
    story.seen["no reason"] = story.reply("olga", "POST", path, {})
    story.ask("olga", "POST", path, accept)
    story.live.planned()
    story.go_to(DEADLINE_MS - 1000)
    story.seen["before the deadline"] = [story.boots(host) for host in VMS]
    story.seen["running before the deadline"] = [story.runs(host) for host in VMS]
    while story.runs("h2") is None:
        now_ms = story.live.clock.now_ms()
        assert now_ms < DEADLINE_MS + 24 * HOUR_S * 1000, story.declaration("olga")
        story.go_to(now_ms + MINUTE_MS)
    overrun(story, folder)


def overrun(story: Story, folder: Path) -> None:
    """The host of the silent tenant stays off for longer than its window."""
    wait_until((folder / "h2.off").exists, what="the host to be off", limit_s=WAIT_S)
    node = story.hosts.hosts["h2"]
    story.seen["state in the window"] = node.run("virsh", "domstate", "bank_0").strip()
    close_ms = parse(story.operation("h2")["window"]["planned_close"])
    story.live.advance((close_ms - story.live.clock.now_ms()) / 1000)
    story.live.advance(MINUTE_MS / 1000)
    story.seen["overrun"] = story.tickets("bank", "incident")
    (folder / "h2.held").unlink()
    story.finish("h2", 2)
    story.live.planned()


@pytest.fixture(scope="module")
def told(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole story, told once."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "h1.bad").touch()
    (folder / "h2.held").touch()
    image = poller_image(folder)
    for number, (host, vm) in enumerate(VMS.items(), 11):
        lab.define(host, Guest(vm, number, image))
    settings = replace(
        SETTINGS,
        operator=OperatorSettings(),
        drivers=settings_in(folder, lab),
        gates=GateSettings(tuple(gate_of(folder, lab, host) for host in VMS)),
    )
    with Live(settings) as live:
        story = Story(live, folder, lab=lab)
        story.tokens["olga"] = live.add_token("olga", Role.OPERATOR)
        for who in ("shop", "bank"):
            story.tokens[who] = live.add_token(who, Role.OWNER, who)
        fleet = {
            "hosts": {
                host: {"fault_domain": n, "labels": {"validation": host}}
                for n, host in enumerate(VMS)
            },
            "groups": {"web": {"owner": "shop"}, "db": {"owner": "bank"}},
            "vms": {
                "shop_0": {"host": "h1", "group": "web"},
                "bank_0": {"host": "h2", "group": "db"},
            },
        }
        story.ask("olga", "PUT", "/v1/topology", fleet)
        live.enable(*VMS.values())
        wait_until(
            lambda: [story.boots(host) for host in VMS] == [1, 1],
            what="the guests to boot",
            limit_s=WAIT_S,
        )
        tell(story, folder)
        yield story


def test_no_guest_is_disturbed_before_the_choice_or_the_deadline(told: Story) -> None:
    """An approval moves nothing forward; the silent tenant has all its days. Source: T-2, T-3."""
    for who, host in (("shop", "h1"), ("bank", "h2")):
        [(seen, resource)] = told.seen[who].items()
        assert (seen, parse(resource["hand_back_deadline"])) == (host, DEADLINE_MS)
    assert told.seen["before Sunday"] == [1, 1]
    assert told.seen["before the deadline"] == [2, 1]
    for moment in ("Sunday", "the deadline"):
        assert told.seen[f"running before {moment}"] == [None, None]
    assert DEADLINE_MS == NOW_MS + 14 * 24 * HOUR_S * 1000
    assert parse(told.operation("h2")["started"]) >= DEADLINE_MS


def test_guest_is_rebooted_at_the_chosen_time(told: Story) -> None:
    """Its VM has read that time as NotBefore, and approved. Source: T-2."""
    work = told.operation("h1")
    assert work["not_before"] == work["started"] == SUNDAY[0]
    event = told.seen["event"]
    assert (event["EventStatus"], event["EventType"]) == ("Scheduled", "Reboot")
    assert event["NotBefore"] == "Sun, 24 Jan 2027 02:00:00 GMT"


def test_silent_tenants_guest_is_rebooted_once_after_its_notice(told: Story) -> None:
    """Nobody approves; the event expires. Source: T-3."""
    work = told.operation("h2")
    assert parse(work["started"]) - parse(work["shown"]) >= work["notice_s"] * 1000
    assert told.seen["state in the window"] == "shut off"
    assert (work["state"], told.boots("h2")) == ("succeeded", 2)


def test_overrun_has_an_incident_until_the_guest_is_back(told: Story) -> None:
    """It opens within a minute of the planned close. Source: T-5."""
    work = told.operation("h2")
    window = work["window"]
    assert window["opened"] == work["started"]
    assert parse(window["planned_close"]) == parse(window["opened"]) + HOUR_S * 1000
    [early] = told.seen["overrun"]
    assert 0 <= parse(early["opened"]) - parse(window["planned_close"]) <= MINUTE_MS
    assert early["closed"] is None
    [incident] = told.tickets("bank", "incident")
    assert (incident["id"], incident["closed"]) == (early["id"], work["ended"])
    assert "after the planned close" in incident["action"]


def test_failed_validation_keeps_the_event_until_the_host_is_accepted(told: Story) -> None:
    """The guest is up, yet the work goes on; an operator accepts with a reason. Source: T-7."""
    stuck = told.seen["stuck"]
    assert (stuck["state"], stuck["alert"]) == ("running", "stuck")
    assert "no link" in stuck["reason"]
    assert [each["description"] for each in told.seen["incidents"]] == ["validation failed"]
    assert (told.seen["no reason"].status, told.seen["no reason"].code) == (422, "reason-needed")
    assert (told.operation("h1")["state"], told.boots("h1")) == ("succeeded", 2)


@pytest.mark.parametrize("who", ["shop", "bank"])
def test_both_sides_compute_the_same_availability(told: Story, who: str) -> None:
    """The provider's report, and the tenant's procedure over its own export. Source: T-13."""
    report = told.ask("olga", "GET", f"/v1/availability?owner={who}")
    page = told.ask(who, "GET", "/v1/availability/records")
    assert not page["next"]
    period = {"kind": "period", **{name: page[name] for name in ("from", "to", "at")}}
    figures = CHECK(map(json.dumps, [period, *page["records"]]))
    for name in ("counted_ms", "disturbed_ms", "available_percent"):
        assert figures[name] == report[name], name
    assert report["disturbed_ms"] > 0
