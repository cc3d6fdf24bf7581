"""`forewarn declaration`: what is declared, and choices of owners."""

from pathlib import Path

import pytest

from forewarn_base.exit_codes import OK, REFUSED, USAGE
from forewarn_cli.declarations import ChoiceMalformed, choices_of
from tests.api.live import FLEET, Live
from tests.cli.conftest import Run


@pytest.fixture
def number(live: Live, run: Run) -> str:
    """The id of a declared maintenance of one host."""
    created = run("--json", "maintenance", "create", "h2", "--reason", "kernel")
    name: str = created.json["maintenance"]["id"]
    assert run("maintenance", "declare", name, "--hand-back", "20d").status == OK
    live.planned()
    return name


def test_declaration_is_listed_and_shown(run: Run, number: str) -> None:
    """With its reason, its deadline and each resource. Source: T-1."""
    listed = run("declaration", "list").out
    assert number in listed
    assert "kernel" in listed
    shown = run("declaration", "show", number).out
    assert "hand back until" in shown
    assert "h2" in shown


def test_choice_is_repeated_in_local_time_and_utc(live: Live, run: Run, number: str) -> None:
    """Nobody chooses a time of another zone by mistake. Source: T-16."""
    done = run("declaration", "choose", number, "--host", "h2", "--at", "2027-01-20T02:00:00+01:00")
    assert done.status == OK
    assert "2027-01-20T01:00:00Z" in done.out
    live.planned()
    assert "chosen" in run("declaration", "show", number).out


@pytest.mark.parametrize("place", [("--host", "h2"), ("--vm", "web-1")], ids=["host", "vm"])
def test_opening_is_chosen_by_its_number(
    live: Live, run: Run, number: str, place: tuple[str, str]
) -> None:
    """The number of the list for the same host or VM. Source: T-2."""
    [opening] = run("--json", "declaration", "openings", number, *place).json["openings"]
    chosen = run("declaration", "choose", number, *place, "--opening", "1")
    assert chosen.status == OK, f"T-2: opening 1 of {place} is refused: {chosen.err}"
    live.planned()
    [resource] = run("--json", "declaration", "show", number).json["declaration"]["resources"]
    assert resource["chosen_start"] == opening["start"]
    missing = run("declaration", "choose", number, "--host", "h2", "--opening", "9")
    assert "[opening-unknown]" in missing.err


def test_choices_are_read_from_a_file(run: Run, number: str, tmp_path: Path) -> None:
    """A dry run says which are possible, and changes nothing. Source: T-2."""
    file = tmp_path / "choices"
    file.write_text("# ours\nhost h2 2027-06-01T00:00:00Z\n")
    tried = run("declaration", "choose", number, "--file", str(file), "--dry-run")
    assert (tried.status, "not possible" in tried.out) == (REFUSED, True)
    assert "opening:" in tried.out
    file.write_text("host h2 release\n")
    assert run("declaration", "choose", number, "--file", str(file)).status == OK
    file.write_text("# host h2 release\n")
    assert "has no choice" in run("declaration", "choose", number, "--file", str(file)).err


def test_release_hands_vms_back(live: Live, run: Run, number: str) -> None:
    """The work is announced with its notice. Source: T-2."""
    assert run("declaration", "release", number, "--host", "h2").status == OK
    live.planned()
    [resource] = run("--json", "declaration", "show", number).json["declaration"]["resources"]
    assert resource["state"] == "announced"


@pytest.mark.parametrize("text", ["host h2", "rack r1 now", "host h2 now please"])
def test_malformed_line_of_choices_is_refused(text: str) -> None:
    """With its number. Source: T-2."""
    with pytest.raises(ChoiceMalformed, match="Line 2"):
        choices_of(f"\n{text}\n")


def test_calendar_is_printed_for_a_file(run: Run, number: str) -> None:
    """With the lines of the API. Source: T-1."""
    printed = run("declaration", "calendar").out
    assert printed.startswith("BEGIN:VCALENDAR")
    assert f"Last day to choose a time for {number}" in printed


def test_deferral_is_asked_and_answered(run: Run, number: str) -> None:
    """The owner asks, an operator grants, and the owner reads both. Source: T-4."""
    asked = run(
        *("declaration", "defer", number, "--host", "h2"),
        *("--until", "2027-02-20T00:00:00Z", "--reason", "closing"),
    )
    assert asked.status == OK
    assert "host h2: asked until" in asked.out
    assert "an operator decides by" in asked.out
    assert "closing" in run("deferral", "list").out
    granted = run("deferral", "grant", number, "--owner", "shop", "--reason", "by telephone")
    assert "granted" in granted.out
    assert "by telephone" in run("declaration", "show", number).out


def test_deferral_is_withdrawn(run: Run, number: str) -> None:
    """Only while nobody has decided. Source: T-4."""
    until = ("--until", "2027-02-20T00:00:00Z", "--reason", "closing")
    assert run("declaration", "defer", number, "--host", "h2", *until).status == OK
    assert "withdrawn" in run("deferral", "withdraw", number, "--host", "h2").out
    assert "[deferral-undecided]" in run("deferral", "withdraw", number, "--vm", "web-1").err


def test_refused_deferral_has_an_exit_status(run: Run, number: str, tmp_path: Path) -> None:
    """The policy refuses at once, with the reason. Source: T-4."""
    policy = tmp_path / "policy.toml"
    policy.write_text('deferral_limit = "1d"\ndeferral_decision = "0s"\n')
    assert run("policy", "apply", str(policy)).status == OK
    refused = run(
        *("declaration", "defer", number, "--vm", "web-1"),
        *("--until", "2027-02-20T00:00:00Z", "--reason", "closing"),
    )
    assert refused.status == REFUSED
    assert "the request for a deadline of 2027-02-" in refused.out
    assert "was refused: the policy" in refused.out
    assert "the policy allows deadlines until" in refused.out
    assert run("deferral", "refuse", number, "--owner", "shop", "--reason", "no").status != OK


def test_emergency_is_declared_with_its_reason(live: Live, run: Run) -> None:
    """The command says that a review is open. Source: T-6."""
    created = run("--json", "maintenance", "create", "h2")
    name = created.json["maintenance"]["id"]
    declare = ("maintenance", "declare", name, "--severity", "emergency")
    assert "needs a reason" in run(*declare).err
    assert run("maintenance", "declare", name, "--waive", "notice").status != OK
    declared = run(*declare, "--hand-back", "20m", "--reason", "leak", "--waive", "budgets")
    assert declared.status == OK
    assert "review" in declared.err
    live.settle()
    assert "only now and release" in run("declaration", "openings", name, "--host", "h2").err
    late = ("--host", "h2", "--until", "2027-01-20T02:00:00Z", "--reason", "closing")
    assert "declaration choose --now" in run("declaration", "defer", name, *late).err
    at = run("declaration", "choose", name, "--host", "h2", "--at", "4h")
    assert "Choose with --now" in at.err
    shown = run("declaration", "show", name).out
    assert "emergency" in shown
    assert "budgets" in shown


def test_wrong_start_is_named_by_its_option(run: Run, number: str) -> None:
    """The person has typed no member of a request. Source: T-2."""
    wrong = run("declaration", "choose", number, "--host", "h2", "--at", "tomorrow")
    assert "--at must be" in wrong.err
    assert "choices" not in wrong.err


def test_rule_chooses_for_hosts_without_a_choice(
    live: Live, run: Run, number: str, tmp_path: Path
) -> None:
    """As often as it runs; a wrong rule is refused with its member. Source: T-2."""
    file = tmp_path / "rule.toml"
    file.write_text('weekdays = ["sun"]\nfrom = "02:00"\nto = "05:00"\notherwise = "last"\n')
    command = ("declaration", "choose", number, "--rule", str(file))
    assert "2027-01-17T02:00:00Z" in run(*command, "--dry-run").out
    assert run(*command).status == OK
    live.planned()
    assert "Every host has a choice" in run(*command).err
    file.write_text('weekday = "sun"\n')
    assert "weekday" in run(*command, "--host", "h2").err
    file.write_text('weekdays = ["sunday"]\n')
    assert f"{file}: weekdays[0] must be" in run(*command, "--host", "h2").err
    file.write_text("weekdays = sunday\n")
    assert "[choice-rule-malformed]" in run(*command).err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("choose", "--file", "none", "--host", "h2"), "--file cannot be combined with --host"),
        (("choose", "--host", "h2", "--opening", "1", "--at", "4h"), "--at and --opening"),
        (("choose", "--host", "h2"), "--at, --now, --opening, --file and --rule"),
        (("choose", "--host", "h2", "--vm", "web-1", "--now"), "--host and --vm"),
        (("choose", "--group", "web", "--opening", "2"), "--opening needs --host or --vm"),
        (("choose", "--vm", "web-1", "--owner", "shop", "--now"), "--owner needs --host"),
        (("choose", "--rule", "none", "--approve"), "--approve"),
        (("openings",), "exactly one of --host and --vm"),
        (("openings", "--host", "h2", "--vm", "web-1"), "exactly one of --host and --vm"),
        (("release",), "exactly one of --host, --group, --vm and --failure-domain"),
    ],
)
def test_contradicting_options_are_refused(
    run: Run, number: str, words: tuple[str, ...], named: str
) -> None:
    """Options are named, and none of them is dropped. Source: T-2."""
    command, *options = words
    done = run("declaration", command, number, *options)
    assert (done.status, "[options-contradict]" in done.err) == (USAGE, True)
    assert named in done.err
    [resource] = run("--json", "declaration", "show", number).json["declaration"]["resources"]
    assert resource["state"] == "open"


def test_lines_for_the_same_vms_are_refused(run: Run, number: str, tmp_path: Path) -> None:
    """Both are named by their numbers; so is a line with a wrong time. Source: T-2."""
    file = tmp_path / "choices"
    file.write_text("# ours\nhost h2 2027-01-20T00:00:00Z\n\nvm web-1 release\n")
    twice = run("declaration", "choose", number, "--file", str(file), "--dry-run")
    assert twice.status != OK
    assert "Line 2 and line 4 both choose for host h2 and owner shop" in twice.err
    file.write_text("# ours\n\nhost h2 tomorrow\n")
    wrong = run("declaration", "choose", number, "--file", str(file))
    assert "Line 3: at must be" in wrong.err


def test_operator_names_the_owner_on_a_shared_host(live: Live, run: Run) -> None:
    """The answer then is about that owner alone. Source: T-2."""
    name = run("--json", "maintenance", "create", "h1").json["maintenance"]["id"]
    run("maintenance", "declare", name, "--hand-back", "20d")
    live.planned()
    choose = ("declaration", "choose", name, "--host", "h1", "--at", "2027-01-20T02:00:00Z")
    refused = run(*choose)
    assert "[owner-unnamed]" in refused.err
    assert "shop" in refused.err
    done = run(*choose, "--owner", "shop")
    assert "only if the other owners of the host choose the same time or release" in done.out
    live.planned()
    resources = run("--json", "declaration", "show", name).json["declaration"]["resources"]
    assert {each["owner"]: each["decision"] for each in resources} == {"shop": "at", "": None}
    assert "only if" not in run(*choose, "--owner", "").out
    assert "[owner-unnamed]" in run(*choose, "--owner", "bank").err


def test_host_that_is_not_declared_is_named(run: Run, number: str) -> None:
    """It exists, so that no other name is suggested. Source: T-1."""
    for words in (
        ("choose", number, "--host", "h1", "--now"),
        ("openings", number, "--vm", "db-0"),
    ):
        refused = run("declaration", *words)
        assert "is not part of" in refused.err
        assert "Did you mean" not in refused.err


def test_choice_that_a_deferral_withdraws_is_named(live: Live, run: Run, number: str) -> None:
    """An answer lists only what it decides. Source: T-4."""
    run("declaration", "choose", number, "--host", "h2", "--at", "2027-01-20T02:00:00Z")
    live.planned()
    until = ("--until", "2027-02-05T00:00:00Z", "--reason", "closing")
    asked = run("declaration", "defer", number, "--host", "h2", *until)
    assert "no longer counts" not in asked.out
    granted = run("deferral", "grant", number, "--owner", "shop")
    assert "2027-01-20T02:00:00Z" in granted.out
    assert "for h2 (shop) no longer counts; choose again" in granted.out


def test_work_that_starts_at_any_time_has_an_earliest_start(run: Run, number: str) -> None:
    """Source: T-2."""
    done = run("declaration", "choose", number, "--host", "h2", "--now", "--dry-run")
    assert "now, from 20" in done.out


def test_choosing_now_says_when_the_work_starts(live: Live, run: Run, number: str) -> None:
    """By the plan, which is made at once. Source: T-2."""
    done = run("declaration", "choose", number, "--host", "h2", "--now")
    assert done.status == OK
    assert "the work starts once its VMs approve, at the latest at 20" in done.out, done
    live.planned()
    [resource] = run("--json", "declaration", "show", number).json["declaration"]["resources"]
    assert (resource["state"], resource["start"][:-5] in done.out) == ("announced", True)


def test_past_time_is_refused_as_past(run: Run, number: str) -> None:
    """Not for its notice. Source: T-2."""
    past = run("declaration", "choose", number, "--host", "h2", "--at", "2020-01-20T02:00:00Z")
    assert "this time is past" in past.err


def test_ended_maintenance_is_refused_with_its_state(run: Run) -> None:
    """It exists, so nothing says that it does not. Source: T-1."""
    created = run("--json", "maintenance", "create", "h2")
    name = created.json["maintenance"]["id"]
    assert run("maintenance", "cancel", name, "--yes").status == OK
    assert f"{name} is cancelled" in run("maintenance", "declare", name).err
    assert f"{name} is cancelled" in run("deferral", "grant", name, "--owner", "shop").err


def test_declaring_says_until_when_owners_choose(run: Run) -> None:
    """And how many. Source: T-1."""
    created = run("--json", "maintenance", "create", "h1")
    name = created.json["maintenance"]["id"]
    declared = run("maintenance", "declare", name).out
    assert "Hand back until" in declared
    assert "2 owners asked" in declared


def test_test_group_is_named_held_and_taken_back(live: Live, run: Run) -> None:
    """Each command prints the order that holds, and `show` has it. Source: T-8."""
    live.fleet(
        hosts=FLEET["hosts"],
        groups={**FLEET["groups"], "trial": {"owner": "shop"}},
        vms={**FLEET["vms"], "trial-0": {"host": "h2", "group": "trial"}},
    )
    name = run("--json", "maintenance", "create", "h1", "h2").json["maintenance"]["id"]
    assert run("maintenance", "declare", name).status == OK
    owner = ("--owner", "shop")
    named = run("declaration", "test-first", name, "--group", "trial", *owner)
    assert named.out == "group trial of shop on h2, observed for 1 d\n"
    reason = ("--reason", "errors on h2")
    held = run("declaration", "hold", name, *owner, *reason)
    assert "its other hosts are held: errors on h2" in held.out
    shown = run("declaration", "show", name).out
    assert "test first" in shown
    assert "held" in shown
    assert "are held" not in run("declaration", "resume", name, *owner).out
    assert run("declaration", "test-first", name, "--none", *owner).status == OK
    assert "[order-refused]" in run("declaration", "hold", name, *owner, *reason).err
    assert run("declaration", "test-first", name, *owner).status == USAGE
    unnamed = run("declaration", "test-first", name, "--group", "trial")
    assert "--owner must be one of the owners of VMs on the declared hosts: shop." in unnamed.err


def test_member_of_a_request_is_named_as_its_option(run: Run, number: str) -> None:
    """Whoever types a command reads which option to correct, with the possible values."""
    other = run("declaration", "hold", number, "--reason", "errors", "--owner", "shp")
    assert "--owner must be one of the owners of VMs on the declared hosts: " in other.err
    named = run("host", "reboot", "a b")
    assert "HOST must be 1 to 128 letters" in named.err
