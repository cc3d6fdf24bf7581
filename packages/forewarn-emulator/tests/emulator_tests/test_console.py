"""What the emulator says while it runs, and what scenarios can do that shipped ones do not."""

from collections.abc import Callable

import pytest

from emulator_tests.conftest import Stage
from forewarn_base.protocol.timestamps import iso8601
from forewarn_emulator.console import Console, Dated, banner, greeting
from forewarn_server.cli.api_client import ApiRefused
from forewarn_server.service.parts import BoundAddresses


class Heard:
    """Everything a stage says, from now on."""

    def __init__(self, stage: Stage) -> None:
        """Listen."""
        self.said: list[str] = []
        voice = Console(self.said.append)

        async def listen() -> None:
            stage.emulator.emulator.attach(voice)

        stage.emulator.call(listen)

    def lines(self) -> list[str]:
        """Return the lines since the last time."""
        said = self.said.copy()
        del self.said[: len(said)]
        return said


@pytest.fixture
def heard(stage: Stage) -> Heard:
    """What the stage says."""
    return Heard(stage)


def test_life_of_an_event_is_told_line_by_line(stage: Stage, heard: Heard) -> None:
    """Each change of state is one calm line, and one for what the VMs see. Source: L-1."""
    stage.api.post("/v1/hosts/host-1/update", {"duration": "9s"})
    stage.advance("0s")
    first = heard.lines()
    assert first[0] == "op-1 host-update of host-1 is announced"
    assert first[1].startswith("  vm-1 sees incarnation 1: Freeze Scheduled (vm-1, not before ")
    stage.approve()
    event_id = stage.emulator.document().events[0].event_id
    assert heard.lines() == [
        f"vm-1 at 127.0.0.1 approves {event_id}",
        "op-1 host-update of host-1 is running: everybody approved",
        "  vm-1 sees incarnation 2: Freeze Started (vm-1)",
    ]
    stage.advance("9s")
    assert heard.lines() == [
        "op-1 host-update of host-1 is over",
        "  vm-1 sees incarnation 3: nothing",
    ]


def test_work_that_nobody_is_told_of_is_not_called_announced(stage: Stage, heard: Heard) -> None:
    """A deletion without terminate notice is announced to nobody. Source: N-1."""
    stage.api.post("/v1/vms/vm-1/delete")
    stage.advance("0s")
    assert heard.lines()[0] == "op-1 deletion of vm-1 is announced to nobody"


def test_waiting_failing_and_cancelling_are_told(stage: Stage, heard: Heard) -> None:
    """Work that waits, is withdrawn or strikes is told with its reason. Source: L-3, L-4."""
    stage.api.post("/v1/hosts/host-1/reboot")
    stage.api.post("/v1/hosts/host-1/update")
    stage.advance("0s")
    assert "op-2 host-update of host-1 waits" in heard.lines()
    stage.api.post("/v1/operations/op-2/cancel", {"reason": "not today"})
    stage.api.post("/v1/hosts/host-1/fail")
    stage.advance("0s")
    said = heard.lines()
    assert "op-2 host-update of host-1 is cancelled: not today" in said
    assert "op-1 host-reboot of host-1 is cancelled: host host-1 failed" in said
    assert "op-3 hardware-failure of host-1 is running" in said
    assert "host host-1 is failed" in said


def test_strict_approvals_are_counted_aloud(staged: Callable[..., Stage]) -> None:
    """Who approves, but is not the last, is told too. Source: A-7."""
    stage = staged(vms=("a", "b"))
    heard = Heard(stage)
    stage.api.put("/v1/groups/group-1", {"strict_approval": True})
    stage.api.put("/v1/vms/b", {"host": "host-1", "group": "group-1"})
    stage.api.post("/v1/hosts/host-1/reboot")
    stage.approve("a")
    said = "\n".join(heard.lines())
    assert "a at 127.0.0.1 approves, with other approvals missing, " in said
    assert "a, b see incarnation 1: Reboot Scheduled (a, b, not before " in said


def test_many_names_are_counted() -> None:
    """A long list of VMs is cut in the greeting."""
    vms = tuple(f"vm-{n}" for n in range(9))
    bound = BoundAddresses(("0.0.0.0:80", "[::]:8169"), "unix:/run/op")
    said = banner(bound, vms=vms, speed=60, program="bin/forewarn")
    assert "vm-0, vm-1, vm-2, vm-3 and 5 more" in said
    assert "http://127.0.0.1/metadata/scheduledevents" in said
    assert "http://[::1]:8169" in said
    assert "\n  bin/forewarn vm reboot vm-0 --server unix:/run/op\n" in said
    assert "60 times as fast" in said


def test_unix_socket_is_greeted_with_a_line_that_works() -> None:
    """Where there is only a socket, curl is told about it."""
    said = banner(BoundAddresses(("unix:/run/md",), ""), vms=("vm-1",), speed=1)
    assert "curl --unix-socket /run/md -H Metadata:true 'http://localhost/metadata/" in said
    assert "operator API is disabled" in said
    assert "  page             none\n" in said


@pytest.mark.parametrize(
    ("operator", "usable", "remark"),
    [
        ("http://0.0.0.0:8471", "http://127.0.0.1:8471", "port 8471 of every address, with a"),
        ("http://[::]:8471", "http://[::1]:8471", "port 8471 of every address, with a token"),
        ("http://192.0.2.1:8471", "http://192.0.2.1:8471", "which needs a token"),
    ],
    ids=["every", "every-ipv6", "another"],
)
def test_greeting_names_an_operator_api_that_answers(
    operator: str, usable: str, remark: str
) -> None:
    """Its commands name this machine as localhost; where a token is needed, that is said."""
    bound = BoundAddresses(("127.0.0.1:8169",), operator)
    said = banner(bound, vms=("vm-1",), speed=1)
    assert f"forewarn emulator scenario list --server {usable}\n" in said
    assert remark in said
    told = greeting(bound, vms=("vm-1",), speed=1)
    assert (told["operator"], told["page"]) == (usable, f"{usable}/")
    assert f"  page             {usable}/\n" in said


def test_greeting_of_an_empty_fleet_says_so() -> None:
    """Without a VM nobody is taken for one, and there is none to reboot."""
    said = banner(BoundAddresses(("127.0.0.1:8169",), "http://127.0.0.1:8470"), vms=(), speed=1)
    assert "VM of callers    none: the fleet has no VMs\n" in said
    assert "\n  forewarn topology apply FILE\n" in said
    assert "reboot" not in said


def test_times_of_another_day_have_their_date(stage: Stage, heard: Heard) -> None:
    """A NotBefore a week away is told with its day, and so is a day that has come. Source: N-1."""
    stage.api.post("/v1/vms/vm-1/redeploy", {"not_before": "+7d"})
    stage.advance("0s")
    said = "\n".join(heard.lines())
    day = iso8601(stage.emulator.emulator.pace.now_ms() + 7 * 86_400_000)[:10]
    assert f"Redeploy Scheduled (vm-1, not before {day} " in said
    dated = Dated(0)
    assert dated.lines("a", 86_399_000) == "23:59:59  a\n"
    assert dated.lines("b", 86_400_500) == "1970-01-02\n00:00:00  b\n"
    assert dated.lines("c", 86_401_000) == "00:00:01  c\n"


STORY = """
[[steps]]
do = "host-lost"
on = "$host"
as = "loss"
[[steps]]
say = "the host is gone"
[[steps]]
after = "1m"
complete = "loss"
reason = "a new host"
[[steps]]
repair = "$host"
[[steps]]
approve = "loss"
by = ["$vm", "nobody"]
[[steps]]
cancel = "loss"
"""


def test_story_completes_repairs_and_forgives(stage: Stage, heard: Heard) -> None:
    """Acts that come too late are left out; the story goes on. Source: L-4, L-8."""
    stage.run("mine", text=STORY)
    assert stage.sees() == ["Redeploy Started vm-1 Platform -1"]
    stage.advance("1m")
    assert stage.sees() == []
    assert stage.state("mine") == "finished"
    said = heard.lines()
    for line in (
        "the host is gone",
        "op-1 host-lost of host-1 is over: a new host",
        "host host-1 is healthy",
        "scenario mine is over and can run again",
    ):
        assert line in said


def test_story_that_waits_in_vain_fails(stage: Stage, heard: Heard) -> None:
    """A wait has an end; the sentence says which step and why. Source: L-3."""
    text = """
[[steps]]
do = "reboot"
on = "$vm"
as = "restart"
notice = "30m"
[[steps]]
wait = "started"
for = "restart"
within = "20m"
"""
    stage.run("mine", text=text)
    stage.advance("19m")
    assert stage.state("mine") == "running"
    stage.advance("1m")
    assert stage.state("mine") == "failed"
    assert stage.sees() == []
    assert (
        "scenario mine has failed: Scenario mine failed in step 2: restart was not"
        " started in time." in heard.lines()
    )


def test_story_stops_in_the_middle_of_work(stage: Stage) -> None:
    """Stopping ends what runs and takes machines back, a repaired host included. Source: L-5."""
    fleet = stage.fleet()
    stage.run("host-lost")
    assert stage.sees() == ["Redeploy Started vm-1 Platform -1"]
    stage.api.post("/v1/scenarios/host-lost/stop")
    assert stage.sees() == []
    assert stage.fleet() == fleet
    assert stage.api.get("/v1/hosts/host-1")["health"] == "healthy"


def test_machine_pinned_by_work_is_taken_back_later(stage: Stage, heard: Heard) -> None:
    """What announced work of others names stays until that has ended; the rest goes at once."""
    before = stage.fleet()
    stage.run("scale-in")
    pinned, *others = sorted({vm["name"] for vm in stage.api.get("/v1/vms")["vms"]} - {"vm-1"})
    assert others
    stage.api.post(f"/v1/vms/{pinned}/redeploy")
    stage.api.post("/v1/scenarios/scale-in/stop")
    assert stage.state("scale-in") == "stopped"
    assert {vm["name"] for vm in stage.api.get("/v1/vms")["vms"]} == {"vm-1", pinned}
    [told] = [line for line in heard.lines() if "cannot undo" in line]
    assert told.startswith(f"scenario scale-in cannot undo vm {pinned}")
    assert "while op-" in told
    assert stage.sees(pinned) == [f"Redeploy Scheduled {pinned} User -1"]
    with pytest.raises(ApiRefused, match=f"work still uses vm {pinned}"):
        stage.run("scale-in")
    [live] = stage.api.get("/v1/operations?live=true")["operations"]
    stage.api.post(f"/v1/operations/{live['id']}/cancel")
    stage.advance("0s")
    assert "scenario scale-in has undone its remaining changes" in heard.lines()
    assert stage.fleet() == before
    stage.run("scale-in")
    assert stage.state("scale-in") == "running"


def test_too_many_stories_are_refused(stage: Stage) -> None:
    """There is a limit to what runs at a time."""
    text = '[[steps]]\nat = "1h"\nsay = "late"\n'
    for number in range(20):
        stage.run(f"story-{number}", text=text)
    with pytest.raises(Exception, match="20 scenarios are running"):
        stage.run("one-more", text=text)
