"""Every command of an operator, against a real service."""

import datetime as dt
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from forewarn_base.exit_codes import OK, REFUSED, USAGE
from forewarn_base.protocol.documents import read_document
from forewarn_cli.events import month_span
from tests.api.live import FLEET, Live
from tests.cli.conftest import Run
from tests.waiting import wait_until


def test_hosts_are_named_by_selector_or_file(run: Run, live: Live, tmp_path: Path) -> None:
    """Work on hosts takes names, what they have in common, or a file; one of them. F-1."""
    assert run("host", "add", "h8", "--zone", "2", "--label", "rack=r7").status == 0
    assert run("host", "list", "--selector", "rack=r7").out.count("h8") == 1
    assert "op-1" in run("host", "reboot", "--selector", "zone=2,rack=r7").out
    (tmp_path / "hosts").write_text("h8\n")
    assert "op-2" in run("host", "update", "--file", str(tmp_path / "hosts")).out
    for wrong in ([], ["h8", "--selector", "zone=2"]):
        assert "Select hosts with exactly one of" in run("host", "reboot", *wrong).err
    assert live.get("/v1/hosts/h8")["labels"] == {"rack": "r7"}


def test_fleet_is_added_listed_shown_and_removed(run: Run, live: Live) -> None:
    """Hosts, groups and VMs come and go by name."""
    added = run("host", "add", "h3", "--fault-domain", "2", "--zone", "z", "--driver", "manual")
    assert (added.status, added.err) == (0, "host h3 saved\n")
    group = ("--kind", "scale-set", "--owner", "o", "--terminate-notice", "5m")
    approvals = ("--automatic-approval", "Reboot", "--strict-approval", "--reimage-notice")
    assert run("group", "add", "g3", *group, *approvals).status == 0
    vm = ("--host", "h3", "--group", "g3", "--address", "10.0.0.9", "--tag", "a=b=c", "--spot",
          "--instance", "sku=12", "--instance", "publicKeys=ssh-rsa A=")  # fmt: skip
    assert run("vm", "add", "v3", *vm).status == 0
    assert run("vm", "add", "solo", "--host", "h3").status == 0
    assert live.get("/v1/groups/g3")["terminate_notice"] == "PT5M"
    assert live.get("/v1/vms/v3")["tags"] == {"a": "b=c"}
    assert live.get("/v1/vms/v3")["instance"] == {"sku": "12", "publicKeys": "ssh-rsa A="}
    listed = run("vm", "list", "--host", "h3")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "solo", "v3"]
    assert run("vm", "list", "--group", "g3", "--json").json["vms"][0]["name"] == "v3"
    shown = run("group", "show", "g3")
    assert "terminate notice    PT5M" in shown.out
    assert run("host", "show", "h3", "--json").json["vms"] == ["solo", "v3"]
    assert run("vm", "show", "v3").out.count("a=b=c") == 1
    refused = run("vm", "remove", "v3", "nobody")
    assert (refused.status, "VM nobody" in refused.err) == (REFUSED, True)
    removed = run("vm", "remove", "v3", "solo,v3", "--json")
    assert removed.json == {"removed": ["v3", "solo"]}
    assert run("host", "list", "--zone", "none").err == "No matching hosts.\n"
    assert "PT0S" not in run("group", "list").out
    assert run("host", "list", "--zone", "z").out.splitlines()[1].split()[0] == "h3"


def test_add_does_not_overwrite(run: Run, live: Live) -> None:
    """What is there is replaced only where that is said."""
    refused = run("host", "add", "h2")
    assert refused.status == REFUSED
    assert refused.err.startswith("forewarn: There is a host h2 already. [already-exists]\n  ")
    assert "--replace" in refused.err
    assert live.get("/v1/hosts/h2")["fault_domain"] == 1
    changed = run("host", "add", "h2", "--replace", "--memory-mib", "4096", "--json").json
    assert (changed["fault_domain"], changed["memory_mib"]) == (1, 4096)


def test_replaced_group_keeps_members_without_an_option(live: Live, run: Run) -> None:
    """`group add --replace` changes only what it names."""
    kept = {"approves_when_down": False, "published": ""}
    live.call("PUT", "/v1/groups/kept", kept)
    labels = ("--keep-apart", "rack", "--keep-apart", "power", "--keep-together", "row")
    changed = run("group", "add", "kept", "--replace", "--owner", "shop", *labels, "--json").json
    assert {name: changed[name] for name in kept} == kept
    assert (changed["owner"], changed["keep_apart"]) == ("shop", ["rack", "power"])
    changed = run("group", "add", "kept", "--replace", "--strict-approval", "--json").json
    assert (changed["keep_apart"], changed["keep_together"]) == (["rack", "power"], ["row"])


def test_empty_lists_say_so(run: Run) -> None:
    """Where there is nothing, people are told on standard error and pipes get nothing."""
    for words in (("event",), ("operation",), ("host", "list", "--zone", "none")):
        nothing = run(*words)
        assert (nothing.status, nothing.out) == (0, "")
        assert nothing.err.strip()


@pytest.mark.parametrize("form", ["toml", "yaml", "json"])
def test_topology_goes_out_and_in(run: Run, tmp_path: Path, form: str) -> None:
    """What `topology show` prints, `topology apply` takes."""
    file = tmp_path / f"fleet.{form}"
    file.write_text(run("topology", "show", "--format", form).out, "utf-8")
    same = run("topology", "apply", str(file), "--prune")
    assert (same.status, same.out) == (0, "")
    assert same.err == "0 added, 0 changed, 0 removed\n"


def test_topology_apply_says_what_it_does(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change is a line; a dry run prints the same and changes nothing."""
    file = tmp_path / "fleet.toml"
    file.write_text("[hosts.h1]\nzone = 'a'\n[hosts.h2]\nfault_domain=1\n[vms.x]\nhost='h2'\n")
    words = ("topology", "apply", str(file), "--prune", "--dry-run")
    dry = run(*words)
    assert "~ host h1: zone (default) -> a\n" in dry.out
    assert "+ vm x\n" in dry.out
    assert "- vm web-0\n" in dry.out
    assert "2 added (1 group, 1 VM), " in dry.err
    assert "nothing was done" in dry.err
    assert run(*words).out == dry.out
    assert run(*words[:-1]).out == dry.out
    text = json.dumps(FLEET).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert run("topology", "apply", "-", "--format", "json", "--json").json["applied"] is True


@pytest.mark.parametrize("name", ["none.toml", "fleet.txt", "fleet"])
def test_topology_needs_a_file_it_can_read(run: Run, tmp_path: Path, name: str) -> None:
    """A file that is not there or of no known form is refused here already."""
    refused = run("topology", "apply", str(tmp_path / name))
    assert refused.status == USAGE
    assert "cannot be read" in refused.err


@pytest.mark.parametrize("words", ["host reboot", "maintenance create", "maintenance create --all"])
def test_file_that_names_no_host_is_refused(run: Run, tmp_path: Path, words: str) -> None:
    """An empty file of hosts is neither every host nor a mistake on the command line."""
    file = tmp_path / "hosts.txt"
    file.write_text(" \n")
    refused = run(*words.split(), "--file", str(file))
    assert refused.err.startswith(f"forewarn: {file} names no host. [hosts-file-empty]\n")
    assert run("maintenance", "list", "--all").out == ""


def test_topology_that_is_none_is_told_with_its_file(run: Run, tmp_path: Path) -> None:
    """The server reads the file, but it does not know how it is called."""
    file = tmp_path / "bad.toml"
    file.write_text("[hosts\n")
    refused = run("topology", "apply", str(file))
    assert refused.err.startswith(f"forewarn: The topology {file} cannot be read: ")
    assert refused.status == USAGE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("vm", "add", "x", "--host", "h1", "--tag", "c"), "'c' is not NAME=TEXT"),
        (("emulator", "clock", "speed", "fast"), "'fast' must be a number"),
        (("history", "--after", "x"), "'x' must be an integer"),
        (("vm", "reboot", "web-0", "--timeout", "5"), "--timeout requires --wait"),
        (("host", "list", "--server", "127.0.0.1"), "is not an address of an operator API"),
        (("completion", "bash", "--json"), "There is no option --json"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_mistyped_value_is_refused_in_our_words(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    """What is wrong with the command line has one exit status, whoever finds it."""
    refused = run(*words)
    assert (refused.status, refused.out) == (USAGE, "")
    assert said in refused.err


@pytest.mark.parametrize("noun", ["clock", "scenario", "fault"])
def test_service_is_no_emulator(run: Run, noun: str) -> None:
    """The error names the reason: a service has no clock, scenario or fault."""
    refused = run("emulator", noun)
    assert refused.status == REFUSED
    assert "[emulator-missing]" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ("operation", "--host", "nope"),
        ("operation", "--group", "nope"),
        ("vm", "list", "--host", "nope"),
        ("vm", "list", "--group", "nope"),
        ("history", "--vm", "nope"),
    ],
    ids=" ".join,
)
def test_filter_by_what_never_was_is_refused(run: Run, words: tuple[str, ...]) -> None:
    """A misspelt name finds nothing, which is not the same as that there is nothing."""
    refused = run(*words)
    assert (refused.status, refused.out) == (REFUSED, "")
    kind = words[-2].removeprefix("--").replace("vm", "VM")
    assert f"There is no {kind} nope." in refused.err


def test_filter_by_what_is_gone_finds_its_history(run: Run) -> None:
    """A VM that was removed is still known to history, and so are its operations."""
    assert run("vm", "remove", "db-0").status == OK
    assert "VM db-0 is removed" in run("history", "--vm", "db-0").out
    assert run("operation", "--vm", "db-0").status == OK
    assert run("history", "--vm", "db-0", "--after", "1000").status == OK


def test_bounds_are_told_as_they_are_typed(run: Run) -> None:
    """A duration is refused in the words it was given in, a time with what it lacks."""
    assert (
        "must be a duration from -1 s to " in run("vm", "reboot", "db-0", "--duration", "400d").err
    )
    without = run("vm", "reboot", "db-0", "--not-before", "2026-11-21T18:30:00")
    assert "a time with its zone such as 2026-11-21T18:30:00Z" in without.err


def test_time_is_read_without_seconds_and_with_any_zone(run: Run) -> None:
    """Both name a moment; many programs write them so."""
    soon = dt.datetime(2027, 3, 1, 0, 15, tzinfo=dt.UTC)
    east = soon.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    for vm, text in (
        ("db-0", f"{soon:%Y-%m-%dT%H:%MZ}"),
        ("web-0", f"{east:%Y-%m-%dT%H:%M+05:30}"),
    ):
        assert run("vm", "reboot", vm, "--not-before", text).status == OK
        assert f"{soon:%a, %d %b %Y %H:%M}:00 GMT" in run("document", vm).out


def test_work_says_that_nobody_is_asked(run: Run, live: Live) -> None:
    """Work that starts at once says why, in the core's own words. Source: B-3, N-1."""
    live.call("PUT", "/v1/groups/quiet", {})
    live.call("PUT", "/v1/vms/quiet-0", {"host": "h2", "group": "quiet"})
    said = run("vm", "reboot", "quiet-0").err
    assert said == "op-1 is running: no VM on it polls for events, so nobody is asked\n"
    assert "op-2" not in run("vm", "reboot", "web-0").err
    said = run("vm", "delete", "db-0").err
    assert said == "op-3 is running: its group wants no notice of deletions\n"
    assert run("host", "fail", "h2").err == ""


@pytest.mark.parametrize(
    ("words", "cause", "impact"),
    [
        (("host", "update", "h1"), "host-update", "Freeze"),
        (("host", "update", "h1", "--restart"), "host-update", "Reboot"),
        (("host", "update", "h1", "--network-only"), "network-update", "Freeze"),
        (("host", "reboot", "h1"), "host-reboot", "Reboot"),
        (("host", "migrate", "h1", "--destination", "h2"), "live-migration", "Freeze"),
        (("host", "degrade", "h1"), "hardware-degraded", "Redeploy"),
        (("host", "degrade", "h1", "--freeze"), "hardware-degraded", "Freeze"),
        (("host", "fail", "h1"), "hardware-failure", "Reboot"),
        (("host", "fail", "h1", "--lost"), "host-lost", "Redeploy"),
        (("vm", "reboot", "web-0"), "reboot", "Reboot"),
        (("vm", "redeploy", "web-0"), "redeploy", "Redeploy"),
        (("vm", "evict", "web-0"), "eviction", "Preempt"),
        (("vm", "delete", "web-0", "web-1"), "deletion", "Terminate"),
        (("vm", "reimage", "web-0"), "reimage", "Reboot"),
    ],
)
def test_each_word_for_work_asks_for_it(
    run: Run, words: tuple[str, ...], cause: str, impact: str
) -> None:
    """Each action asks for one row of the table of causes."""
    operations = run(*words, "--json").json["operations"]
    assert {(each["cause"], each["impact"]) for each in operations} == {(cause, impact)}
    targets = {each["target"] for each in operations}
    assert targets <= set(words)


def test_work_takes_its_terms(run: Run, live: Live) -> None:
    """Time, duration, text and source reach the document. Source: D-7, D-8, D-9."""
    terms = ("--not-before", "+20m", "--duration", "5m", "--description", "New", "--source", "User")
    asked = run("host", "reboot", "h1", *terms)
    assert "2027-01-15T08:20:00Z (in 20 min)" in asked.out
    live.settle()
    [event] = live.document("web-0")["Events"]
    assert (event["DurationInSeconds"], event["Description"], event["EventSource"]) == (
        300,
        "New",
        "User",
    )
    unknown = run("vm", "reboot", "web-0", "--duration", "-1", "--json")
    assert unknown.json["operations"][0]["duration_s"] == -1


def test_repair_ends_failures(run: Run) -> None:
    """A repaired host is well, and its failure is over."""
    run("host", "fail", "h1")
    repaired = run("host", "repair", "h1", "h2")
    assert "succeeded" in repaired.out
    assert "host h2 marked as repaired" in repaired.err
    assert run("host", "repair", "h1", "--json").json == {"operations": []}


def test_events_documents_and_operations_are_shown(run: Run, live: Live) -> None:
    """What VMs are told is read from outside, for people and for programs. Source: V-1."""
    run("host", "reboot", "h1")
    live.settle()
    events = run("event", "--vm", "web-0")
    assert "Reboot  Scheduled  2027-01-15T08:15:01Z (in 15 min 1 s)  op-1" in events.out
    assert len(run("event", "--json").json["events"]) == 2
    document = run("document", "web-0")
    assert document.err.startswith("incarnation 1, read at 2027-01-15T08:00:0")
    assert "Fri, 15 Jan 2027 08:15:01 GMT" in document.out
    old = run("document", "web-0", "--api-version", "2017-03-01", "--json").json
    assert old["Events"][0]["Resources"] == ["_web-0"]
    url = f"http://{live.metadata_url}?vm=web-0"
    for place in (url, url.replace("?", "/metadata/scheduledevents?")):
        direct = run("document", "--url", place, "--json")
        assert read_document(direct.out).incarnation == 1
    assert run("document", "--url", url).err.startswith("incarnation 1, read at 2027-01-15T08:00:0")
    assert "op-1" in run("operation", "--vm", "web-0").out
    assert run("operation", "--host", "h2", "--json").json == {"operations": []}
    run("operation", "cancel", "op-1")
    assert run("operation").out == ""
    assert "'0' must be a positive integer" in run("history", "--limit", "0").err
    assert "cancelled" in run("operation", "--all", "--limit", "1").out


def test_document_needs_to_know_whose(run: Run, live: Live) -> None:
    """With one VM there is no doubt; with several one is named."""
    assert "more than one VM" in run("document").err
    live.call("PUT", "/v1/topology?prune=true", {"hosts": {"h": {}}, "vms": {"v": {"host": "h"}}})
    assert run("document", "--json").json["Events"] == []


@pytest.mark.parametrize(
    ("url", "status", "says"),
    [
        ("ftp://x", 2, "not an address"),
        ("http://[x", 2, "not an address"),
        ("http://127.0.0.1:1", 3, "The metadata service at http://127.0.0.1:1 cannot be"),
        ("http://{metadata}/nothing", 3, "answered 404"),
    ],
)
def test_document_of_an_odd_url(run: Run, live: Live, url: str, status: int, says: str) -> None:
    """An address that is none, or is somebody else's, is told apart from a document."""
    refused = run("document", "--url", url.format(metadata=live.metadata_url))
    assert refused.status == status
    assert says in refused.err


def test_work_that_is_not_announced_yet_says_why(run: Run) -> None:
    """Queued work names the work before it. Source: F-4."""
    assert "waits" not in run("host", "update", "h1").err
    queued = run("host", "update", "h1", "--queue")
    assert "op-2 waits: op-1 is already announced on host h1 [host-busy]\n" in queued.err


def test_work_is_decided_about_by_id(run: Run, live: Live) -> None:
    """Why, approve, retry, complete and cancel take an operation or an event. Source: A-9, L-8."""
    run("vm", "reboot", "web-0")
    live.settle()
    why = run("operation", "why", "op-1")
    assert "waits: group web has not approved event" in why.out
    assert "at the latest 2027-01-15T08:15:01Z (in 15 min 1 s)" in why.out
    event = live.get("/v1/events")["events"][0]["id"]
    assert "running" in run("operation", "approve", event[:6]).out
    command = "`forewarn operation complete op-1`"
    asked = f"waits: an operator must do the work and run {command} [operator]\n"
    wait_until(
        lambda: asked in run("operation", "why", "op-1").out, what="the driver to have begun"
    )
    why = run("operation", "why", "op-1")
    assert "not before" not in why.out
    assert run("operation", "retry", "1", "--json").json["operations"][0]["attempt"] == 2
    ended = run("operation", "complete", "op-1", "--failed", "--reason", "broken", "--json")
    assert ended.json["operations"][0]["reason"] == "broken"
    after = run("operation", "why", "op-1")
    assert "failed" in after.out
    assert "ended" in after.out
    assert run("operation", "why", "op-1", "--json").json["blockers"] == []
    refused = run("operation", "cancel", "op-1", "--reason", "late")
    assert (refused.status, refused.out) == (1, "")
    assert "op-1 is failed: it cannot be cancelled." in refused.err
    assert "A name or id is empty." in run("operation", "why", "").err
    assert "VM web-0 has no blockers" in run("operation", "why", "web-0").out
    assert "forewarn host list" in (unknown := run("host", "reboot", "h9")).err
    assert "forewarn event" not in unknown.err


def test_history_shows_the_last_entries_in_order(run: Run) -> None:
    """The newest entries are shown, the oldest of them first."""
    entries = run("history", "--limit", "3", "--json").json["entries"]
    numbers = [each["sequence"] for each in entries]
    assert numbers == sorted(numbers)
    assert len(numbers) == 3
    table = run("history", "--host", "h1", "--limit", "1")
    assert "VM db-0 is added" in table.out
    assert run("history", "--after", "100000").out == ""


def test_watch_follows_from_a_place(run: Run) -> None:
    """Entries after a number are printed, one a line, filtered as asked."""
    lines = run("watch", "--after", "0", "--count", "2").out.splitlines()
    assert lines == [
        "2027-01-15T08:00:00Z  host h1 is added  (operator local at 127.0.0.1)",
        "2027-01-15T08:00:00Z  host h2 is added  (operator local at 127.0.0.1)",
    ]
    filtered = run("watch", "--after", "0", "--count", "1", "--vm", "web-1", "--json")
    assert json.loads(filtered.out)["text"] == "VM web-1 is added"
    assert "There is no group nope." in run("watch", "--group", "nope").err


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--count", "99"), 3)])
def test_watch_ends_with_the_service(
    run: Run,
    live: Live,
    more: tuple[str, ...],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the service stops, the watch says so; it fails where it was to wait for entries."""

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            live.daemon.bridge.call(live.daemon.ended.set)  # now that the watch is open
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Output())
    ended = run("watch", "--after", "0", *more)
    assert ended.status == status
    assert ended.err == "the server ended the stream: stopped\n"


def test_bare_noun_lists_in_natural_order(run: Run, live: Live) -> None:
    """`forewarn host` is `forewarn host list`; node-2 comes before node-10."""
    live.fleet(hosts={f"node-{n}": {} for n in (10, 2, 1)})
    names = [each["name"] for each in run("host", "--json").json["hosts"]]
    assert [each for each in names if "node" in each] == ["node-1", "node-2", "node-10"]
    assert len(run("host", "--limit", "2", "--json").json["hosts"]) == 2


def test_lists_keep_to_state_and_since(run: Run) -> None:
    """A list shows the records in the states and the time that were asked for."""
    made = run("host", "reboot", "h1", "h2", "--not-before", "+1h", "--json").json["operations"]
    run("operation", "cancel", made[0]["id"])
    cancelled = run("operation", "--state", "cancelled", "--json").json["operations"]
    assert [each["id"] for each in cancelled] == [made[0]["id"]]
    assert len(run("operation", "--all", "--since", "1h", "--json").json["operations"]) == 2
    assert run("operation", "--since", "2099-01-01T00:00:00Z").out == ""
    assert "[since-invalid]" in run("history", "--since", "soon").err


def test_show_finds_any_record(run: Run) -> None:
    """`show` takes any id or name; one that nothing has is an error."""
    [made] = run("host", "reboot", "h1", "--not-before", "+1h", "--json").json["operations"]
    for name, kind in (
        (made["id"], "operation"),
        (made["events"][0], "event"),
        ("h1", "host"),
        ("web-0", "vm"),
    ):
        assert run("show", name, "--json").json["kind"] == kind
    assert run("status", "--json").json["groups"]
    assert "2027-01-15T08:00:00Z\n" in run("status").out
    assert run("show", "op-1").out == run("operation", "show", "op-1").out
    assert "[id-unknown]" in run("show", "nothing-at-all").err


@pytest.mark.parametrize(
    ("month", "begin", "end"),
    [("2026-11", "2026-11", "2026-12"), ("2026-12", "2026-12", "2027-01")],
)
def test_report_of_a_month_ends_with_the_month(month: str, begin: str, end: str) -> None:
    """It ends where the next month begins, also at the end of a year. Source: X-1, T-15."""
    assert month_span(month) == (f"{begin}-01T00:00:00Z", f"{end}-01T00:00:00Z")


def test_event_that_has_ended_has_an_outcome(run: Run, live: Live) -> None:
    """One event's, and a month's for its owner, as a table and as CSV. Source: X-1."""
    run("vm", "reboot", "web-0")
    [operation] = live.get("/v1/operations?live=true")["operations"]
    live.post(f"/v1/operations/{operation['id']}/cancel")
    assert "cancelled" in run("event", "outcome", operation["events"][0]).out
    assert "1 cancelled" in run("event", "report", "--group", "web", "--month", "2027-01").out
    rows = run("event", "report", "--month", "2026-12", "--format", "csv").out.splitlines()
    assert len(rows) == 1
    wrong = run("event", "report", "--month", "January")
    assert wrong.status == 2 or "2026-10" in wrong.err


@pytest.mark.parametrize(
    "words",
    [
        ("host", "list", "--owner", "shp"),
        ("group", "list", "--owner", "shp"),
        ("vm", "list", "--owner", "shp"),
        ("ticket", "list", "--owner", "shp"),
        ("availability", "show", "--owner", "shp"),
        ("promises", "show", "--owner", "shp"),
    ],
)
def test_empty_list_suggests_the_name_that_was_meant(run: Run, words: tuple[str, ...]) -> None:
    """A mistyped owner is not taken for an owner without hosts."""
    assert "There is no owner shp; did you mean shop?" in run(*words).err


def test_column_without_a_value_is_left_out(run: Run) -> None:
    """Only the wide form has every column."""
    run("maintenance", "create", "h1")
    assert "FAILED" not in run("maintenance", "list").out
    assert "FAILED" in run("maintenance", "list", "-o", "wide").out
