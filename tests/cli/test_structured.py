"""Answers in the form of `--output`, sorted lists, and short addresses and times."""

import csv
import json
from collections.abc import Iterator

import pytest
import yaml

from forewarn_base.exit_codes import OK, USAGE
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.output import columns_shown, is_coloured
from forewarn_server.cli.structured import written
from tests.api.live import Live
from tests.cli.conftest import Run


def test_list_has_one_shape_in_every_form(run: Run) -> None:
    """JSON and YAML have `items` and `next`, CSV a row for each, names a line for each."""
    listed = run("host", "list", "-o", "json").json
    assert [each["name"] for each in listed["items"]] == ["h1", "h2"]
    assert listed["next"] is None
    assert yaml.safe_load(run("host", "-o", "yaml").out) == listed
    rows = list(csv.DictReader(run("host", "list", "--output=csv").out.splitlines()))
    assert [each["name"] for each in rows] == ["h1", "h2"]
    assert run("-o", "name", "host", "list").out == "h1\nh2\n"


def test_record_has_its_name_and_every_form(run: Run) -> None:
    """Also if the answer has more than the record; an answer without a name is refused."""
    run("maintenance", "create", "h1")
    run("host", "reboot", "h2")
    shown = [("maintenance", "m-1"), ("operation", "op-2"), ("host", "h1")]
    for noun, name in shown:
        assert run(noun, "show", name, "-o", "name").out == f"{name}\n"
    status = run("status", "-o", "json").json
    assert yaml.safe_load(run("status", "-o", "yaml").out) == status
    assert run("status", "-o", "csv").out.startswith("version,")
    nameless = run("status", "-o", "name")
    assert (nameless.status, nameless.out) == (USAGE, "")
    assert "has no name" in nameless.err


def test_json_keeps_the_shape_of_earlier_versions(run: Run) -> None:
    """Scripts that read `--json` go on to work."""
    assert [each["name"] for each in run("host", "list", "--json").json["hosts"]] == ["h1", "h2"]


def test_unknown_values_are_null() -> None:
    """-1 and an empty text are null, zero and false stay."""
    form = json.loads(
        written({"percent": -1, "end": "", "vms": 0, "spot": False, "n": [""]}, "json")
    )
    assert form == {"percent": None, "end": None, "vms": 0, "spot": False, "n": [None]}


@pytest.mark.parametrize(
    ("member", "names"), [("name", ["h1", "h2", "h10"]), ("-name", ["h10", "h2", "h1"])]
)
def test_list_is_sorted_by_a_member(run: Run, live: Live, member: str, names: list[str]) -> None:
    """Numbers in names are compared as numbers."""
    live.fleet(hosts={"h10": {}})
    assert run("host", "list", f"--sort={member}", "-o", "name").out.split() == names
    assert run("host", "list", "--sort", member, "-o", "name").out.split() == names


def test_unknown_member_to_sort_by_is_refused(run: Run) -> None:
    """The error names the member that was probably meant."""
    refused = run("host", "list", "--sort", "zon")
    assert refused.status == USAGE
    assert "Did you mean zone?" in refused.err


def test_errors_are_json_with_output_json(run: Run) -> None:
    """`-o json` is for programs, like `--json`."""
    assert json.loads(run("host", "show", "h9", "-o", "json").err)["error"]["code"] == "unknown"


def test_address_needs_no_scheme(run: Run, live: Live) -> None:
    """`--server HOST:PORT` is an http address."""
    assert run("host", "list", "--server", live.url.removeprefix("http://")).status == OK


def test_time_needs_no_plus_but_a_unit(run: Run) -> None:
    """`4h` is four hours from now; a bare number could be anything."""
    assert run("host", "update", "h1", "--not-before", "4h").status == OK
    refused = run("host", "update", "h2", "--not-before", "4")
    assert refused.status == USAGE
    assert "'4' has no unit: write 4s, 4m, 4h or 4d" in refused.err


def test_hosts_show_their_work_and_labels(run: Run, live: Live) -> None:
    """The table answers what happens where."""
    live.fleet(hosts={"h2": {"labels": {"rack": "r7"}}})
    run("host", "update", "h1")
    table = run("host", "list").out
    assert "host-update announced" in table
    assert "rack=r7" in table


def test_groups_are_filtered_by_owner_and_polls(run: Run) -> None:
    """An owner's groups, and those that get no notice."""
    assert run("group", "list", "--owner", "shop", "-o", "name").out == "web\n"
    assert run("group", "list", "--not-polling", "-o", "name").out == ""


def test_hosts_and_vms_are_filtered_by_group_owner_and_polls(run: Run, live: Live) -> None:
    """Whose VMs a host has, and who never asked for its events."""
    live.fleet(hosts={"h3": {}}, vms={"quiet-0": {"host": "h3"}})
    found = {
        words: run(*words, "-o", "name").out.split()
        for words in (
            ("host", "list", "--owner", "shop"),
            ("host", "list", "--group", "quiet-0"),
            ("host", "list", "--not-polling"),
            ("vm", "list", "--owner", "shop"),
            ("vm", "list", "--not-polling", "--host", "h3"),
            ("host", "list", "--owner", "nobody"),
        )
    }
    web = live.get("/v1/groups/web")["vms"]
    assert list(found.values()) == [
        sorted({live.get(f"/v1/vms/{vm}")["host"] for vm in web}),
        *(["h3"], ["h3"], web, ["quiet-0"], []),
    ]
    assert "There is no group nope." in run("host", "list", "--group", "nope").err


def test_audit_reads_further_pages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records, also if they are more than one answer holds."""
    for name in ("a", "b", "c", "d"):
        run("host", "add", name)
    whole = run("audit", "list", "-o", "name").out.split()
    monkeypatch.setattr("forewarn_cli.audit.PAGE", 2)
    assert run("audit", "list", "--limit", "3", "-o", "name").out.split() == whole[-3:]
    assert run("audit", "list", "--limit", "999", "-o", "name").out.split() == whole


@pytest.mark.parametrize(
    ("width_max", "kept"),
    [(200, "abcd"), (74, "abcd"), (60, "acd"), (50, "ac"), (20, "a"), (1, "a")],
)
def test_less_important_columns_are_left_out_first(width_max: int, kept: str) -> None:
    """A column is shortened to 16 characters, then minor ones go, then the last ones."""
    headings = ("name", "labels", "state", "reason")
    shown = columns_shown(headings, [30, 30, 30, 30], width_max)
    assert "".join("abcd"[at] for at in shown) == kept


def test_csv_has_no_formulas() -> None:
    """A name that somebody else chose must not run in the reader's spreadsheet."""
    assert (
        written([{"name": "=1+1", "n": -1.5, "at": "@x"}], "csv") == "name,n,at\n'=1+1,-1.5,'@x\n"
    )


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": ""}, False)],
)
def test_colours_follow_the_environment(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe has no colours unless FORCE_COLOR is set; NO_COLOR wins."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert is_coloured() is coloured


def test_mistyped_name_is_answered_by_the_name_that_was_meant(run: Run) -> None:
    """The names of the fleet are known to the server."""
    assert "Did you mean web-1?" in run("vm", "show", "wbe-1").err
    assert "Did you mean" not in run("vm", "show", "nothing-like-it").err


def test_operation_is_shown_to_people(run: Run) -> None:
    """What, whom, when, and why it waits."""
    run("host", "update", "h1")
    shown = run("operation", "show", "op-1").out
    for text in ("host-update of host h1", "VMs", "web-0", "not before", "waits: "):
        assert text in shown


def test_watched_list_is_printed_again_after_a_change(run: Run, live: Live) -> None:
    """In a pipe, only the lines that are new are printed."""
    stream = ApiClient.lines

    def changed(client: ApiClient, path: str, **query: object) -> Iterator[object]:
        live.fleet(hosts={"h3": {}})
        for entry in stream(client, path, **query):  # type: ignore[arg-type]
            yield entry
            yield {"end": "enough"}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ApiClient, "lines", changed)
        watched = run("host", "list", "-w", "-o", "name")
    assert watched.out.splitlines() == ["h1", "h2", "h3"]


def test_page_of_a_record_is_opened(run: Run, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is printed, too, for machines without a browser."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert run("show", "h1", "--web").out == f"{live.url}/#/hosts/h1\n"
    assert opened == [f"{live.url}/#/hosts/h1"]


def test_duration_without_a_unit_is_repeated_in_words(run: Run) -> None:
    """Who meant minutes sees that it is seconds."""
    assert "interruption: 90 seconds" in run("host", "update", "h1", "--duration", "90").err
    assert "seconds" not in run("host", "update", "h2", "--duration", "90s").err
