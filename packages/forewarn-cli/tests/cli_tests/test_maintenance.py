"""`forewarn maintenance` for people: what a draft, a report and a list say."""

import pytest

from forewarn_base.exit_codes import USAGE
from forewarn_cli.maintenance_output import failed_hosts
from forewarn_cli.reports import COLUMNS, as_csv
from tests.api.live import Live
from tests.cli.conftest import Run
from tests.waiting import wait_until


@pytest.mark.parametrize("words", [("--deadline", "+10m"), ("--start", "--deadline", "+10m")])
def test_draft_that_can_never_be_done_says_so(run: Run, words: tuple[str, ...]) -> None:
    """A deadline that cannot be met is said of the draft, and refuses its start. Source: F-4."""
    made = run("maintenance", "create", "h1", "h2", *words)
    assert made.status == ("--start" in words)
    assert "host h1 cannot be done before the deadline" in made.err
    assert run("maintenance", "start", "m-1").status == 1
    assert "draft" in run("maintenance", "list").out
    assert "before the deadline" in run("operation", "why", "m-1").out


def test_plan_says_where_vms_go_or_whose_room_is_missing(run: Run, live: Live) -> None:
    """Each host's VMs with their hosts, and the fullest host; else who would have to give room."""
    hosts = {"n1": {"memory_mib": 8192}, "n2": {"memory_mib": 7168}}
    live.fleet(hosts=hosts, vms={"v": {"host": "n1", "memory_mib": 6144}})
    for words in (("plan",), ("create",), ("show", "m-1")):
        asked = ("n1", "--move-vms", "5m") if words[0] != "show" else ()
        shown = run("maintenance", *words, *asked).out
        if words[0] != "create":
            assert "n2 (1)" in shown
            assert "(VMS STAY)" in shown
            assert "fullest: n2 in wave 1, 6144 of 7168 MiB" in shown
    back = run("maintenance", "plan", "n1", "--move-vms", "5m", "--return-vms")
    assert "DESTINATIONS (VMS RETURN)" in back.out
    live.fleet(vms={"w": {"host": "n2", "memory_mib": 4096}})
    full = run("maintenance", "plan", "n1", "--move-vms", "5m")
    assert "the VMs of host n1 fit nowhere; most room is left on n2 (capacity)" in full.out


def test_show_says_whether_vms_return(run: Run) -> None:
    """The way back is asked for together with the time to leave. Source: F-1."""
    run("maintenance", "create", "h1", "--move-vms", "5m", "--return-vms")
    assert "and return within 20 min after the work" in run("maintenance", "show", "m-1").out
    asked = run("maintenance", "create", "h1", "--return-vms")
    assert "only if they leave first (--move-vms)" in asked.err


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("stopped", "1 host: `forewarn maintenance resume` plans it again"),
        ("running", "1 host: not planned again"),
    ],
)
def test_show_says_whether_failed_hosts_are_planned_again(state: str, text: str) -> None:
    """A host that failed is tried again once somebody resumes its stopped maintenance. F-5."""
    assert failed_hosts({"failed": 1, "state": state}) == text


def test_report_names_each_host_and_its_times(run: Run, live: Live) -> None:
    """What became of each host, when it started and when it ended, for people and programs."""
    run("maintenance", "create", "h1", "h2", "--max-at-once", "1", "--start")
    wait_until(lambda: live.get("/v1/maintenances/m-1")["maintenance"]["announced"])
    assert "1 announced" in run("maintenance", "show", "m-1").out
    [operation] = live.get("/v1/operations?live=true")["operations"]
    for word in ("approve", "complete"):
        live.post(f"/v1/operations/{operation['id']}/{word}")
    report = run("maintenance", "report", "m-1")
    [line] = [each for each in report.out.splitlines() if each.startswith(operation["host"])]
    assert line.split()[:4] == [operation["host"], "done", "1", operation["id"]]
    [done] = [
        each
        for each in run("maintenance", "report", "m-1", "--json").json["hosts"]
        if each["ended"]
    ]
    assert done["announced"] <= done["started"] <= done["ended"]


def test_report_has_promised_and_given_notice_of_each_event(run: Run, live: Live) -> None:
    """As text, CSV, HTML and JSON: who approved, when it began, how it ended. Source: X-1."""
    run("maintenance", "create", "h1", "--start")
    wait_until(lambda: live.get("/v1/maintenances/m-1")["maintenance"]["announced"])
    assert not run("maintenance", "report", "m-1").err
    [operation] = live.get("/v1/operations?live=true")["operations"]
    live.post(f"/v1/operations/{operation['id']}/approve")
    live.post(f"/v1/operations/{operation['id']}/complete")
    live.settle()
    text = run("maintenance", "report", "m-1").out
    assert "m-1: 2 events; 2 completed" in text
    assert "started 2 early" in text
    rows = run("maintenance", "report", "m-1", "--format", "csv").out.splitlines()
    assert len(rows) == 3
    assert rows[0].startswith("event,group,host")
    page = run("maintenance", "report", "m-1", "--format", "html").out
    assert page.count("<tr>") == 3
    found = run("maintenance", "report", "m-1", "--json").json["outcomes"]
    assert {each["group"] for each in found} == {"web", "db"}


@pytest.mark.parametrize(("form", "status"), [({}, 0), ({"failed": True}, 1)])
def test_report_of_failed_hosts_has_its_own_status(
    run: Run, live: Live, form: dict[str, bool], status: int
) -> None:
    """A program learns from the exit status whether every host was done. Source: F-5."""
    run("maintenance", "create", "h1", "--start")
    wait_until(lambda: live.get("/v1/maintenances/m-1")["maintenance"]["announced"])
    [operation] = live.get("/v1/operations?live=true")["operations"]
    live.post(f"/v1/operations/{operation['id']}/approve")
    live.post(f"/v1/operations/{operation['id']}/complete", **form)
    live.settle()
    report = run("maintenance", "report", "m-1")
    assert report.status == status, f"{operation['id']} {form}: {report.out}"


def test_cell_of_a_report_is_no_formula() -> None:
    """A spreadsheet must not run what somebody wrote as a reason."""
    outcome = dict.fromkeys(COLUMNS, "") | {"reason": "=1+1"}
    assert as_csv([outcome]).splitlines()[1].endswith(",'=1+1")


def test_show_says_who_has_not_approved(run: Run, live: Live) -> None:
    """`show` lists each group with its answer, and what is waited for since and until when."""
    run("maintenance", "create", "h1", "--start")
    wait_until(lambda: live.get("/v1/maintenances/m-1")["approvals"])
    first, second = run("maintenance", "show", "m-1", "--json").json["approvals"]
    assert (first["group"], first["state"], first["missing"]) == ("db", "waiting", ["db-0"])
    live.post(f"/v1/operations/{second['event']}/approve")
    shown = run("maintenance", "show", "m-1").out
    for word in ("since", "until", "1 (1 announced)", "waiting", "approved", "last poll".upper()):
        assert word in shown, shown


def test_groups_that_do_not_listen_are_named_before_work(run: Run, live: Live) -> None:
    """`plan`, `create` and work on a host say first whom nobody will ask."""
    live.fleet(groups={"deaf": {}}, vms={"deaf-0": {"host": "h1", "group": "deaf"}})
    for words in (("maintenance", "plan"), ("maintenance", "create"), ("host", "reboot")):
        assert "none of their VMs polls for events: deaf" in run(*words, "h1").err
    assert "deaf" in run("group", "list", "--silent").out


def test_postponed_host_is_shown_and_named(run: Run, live: Live) -> None:
    """`show` lists postponements, `why` names the host that is postponed. Source: F-8."""
    live.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    run("maintenance", "create", "h1", "h2")
    run("maintenance", "postpone", "m-1", "h2", "--until", "+3h", "--by", "alice")
    run("maintenance", "start", "m-1")
    assert "host h2 until" in run("maintenance", "show", "m-1").out
    assert "host h2 is postponed at the request of alice" in run("operation", "why", "h2").out


def test_why_names_the_command_that_lets_a_maintenance_go_on(run: Run) -> None:
    """A draft is started, and a paused maintenance resumed; running work needs no command."""
    run("maintenance", "create", "h1", "h2")
    for action, command in (("", "start"), ("start", ""), ("pause", "resume")):
        if action:
            run("maintenance", action, "m-1")
        why = run("operation", "why", "m-1").out
        assert why.endswith(f"  forewarn maintenance {command} m-1\n") is bool(command)


def test_list_after_a_cancel_says_where_the_rest_is(run: Run) -> None:
    """Nothing is open, which is not to say that there never was anything."""
    run("maintenance", "create", "h1")
    run("maintenance", "cancel", "m-1")
    assert "No open maintenances. Use --all" in run("maintenance", "list").err
    assert "m-1" in run("maintenance", "list", "--all").out


@pytest.mark.parametrize(
    ("words", "host"), [(("--owner", "shop"), "h2"), (("--group", "db"), "h1")]
)
def test_hosts_of_an_owner_or_a_group_are_postponed(
    run: Run, live: Live, words: tuple[str, ...], host: str
) -> None:
    """An owner asks for time, and need not know the hosts. Source: F-8."""
    live.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    live.fleet(vms={"web-0": {"host": "h2", "group": "web"}})
    run("maintenance", "create", "h1", "h2")
    postponed = run("maintenance", "postpone", "m-1", *words, "--until", "3h")
    assert postponed.out.startswith(f"host {host} postponed until")
    assert len(postponed.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "postponed-unnamed"),
        (("h1", "--owner", "shop"), "postponed-unnamed"),
        (("--owner", "nobody"), "nothing-to-postpone"),
    ],
)
def test_nothing_to_postpone_is_an_error(run: Run, words: tuple[str, ...], code: str) -> None:
    """A selection that is empty, or made twice, is refused."""
    run("maintenance", "create", "h1", "h2")
    refused = run("maintenance", "postpone", "m-1", *words, "--until", "3h")
    assert refused.status == USAGE
    assert refused.err.splitlines()[0].endswith(f"[{code}]")
