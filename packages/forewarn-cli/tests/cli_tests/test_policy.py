"""`forewarn policy` and `forewarn policy windows`, against a real service."""

import json
from pathlib import Path

from forewarn_base.exit_codes import REFUSED, USAGE
from forewarn_cli.policy import _moved_end
from tests.api.live import Live
from tests.cli.conftest import Run
from tests.waiting import wait_until

FILE = """
pause = "PT1M"

[windows.nights]
time_zone = "Europe/Berlin"
from = "22:00"
to = "04:00"
"""


def test_policy_is_checked_applied_and_shown(run: Run, live: Live, tmp_path: Path) -> None:
    """A file is tried without a change, then applied; what is shown is that file."""
    file = tmp_path / "policy.toml"
    file.write_text(FILE)
    checked = run("policy", "check", str(file))
    assert checked.out == "+ pause = PT1M\n+ windows.nights\n"
    assert "nothing was changed" in checked.err
    assert live.get("/v1/policy") == {}
    assert "The policy is empty" in run("policy").err
    applied = run("policy", "apply", str(file))
    assert applied.err == "the policy has 1 window, 1 other member\n"
    shown = run("policy", "show")
    assert 'from = "22:00"' in shown.out
    file.write_text(shown.out)
    assert run("policy", "apply", str(file), "--json").json["changed"] == []
    assert "nothing was changed" in run("policy", "apply", str(file)).err
    assert run("policy", "show", "--json").json["pause"] == "PT1M"


def test_changes_of_a_policy_are_listed_one_by_one(run: Run, live: Live, tmp_path: Path) -> None:
    """Each window, budget and value has a line with its sign, before the policy is applied."""
    night, rack = {"from": "22:00"}, {"for": "rack", "limit": 2}
    windows = {"a": night, "b": night, "c": night}
    live.call(
        "PUT", "/v1/policy", {"canary": 1, "pause": 60, "windows": windows, "budgets": [rack]}
    )
    file = tmp_path / "policy.json"
    windows = {"b": {"from": "23:00"}, "c": night, "d": night}
    zone = {"for": "zone", "limit": "10%", "name": "1"}
    file.write_text(json.dumps({"canary": 2, "windows": windows, "budgets": [zone]}))
    assert run("policy", "apply", str(file)).out.splitlines() == [
        "- pause",
        "~ canary = 2",
        "- budgets: for rack, limit 2",
        "+ budgets: for zone, limit 10%, name 1",
        "- windows.a",
        "~ windows.b",
        "+ windows.d",
    ]


def test_policy_that_moves_an_end_says_so_first(run: Run, live: Live, tmp_path: Path) -> None:
    """The end of each maintenance by the new policy is shown with the present one. Source: F-2."""
    number = run("maintenance", "create", "--all", "--json").json["maintenance"]["id"]
    file = tmp_path / "policy.json"
    file.write_text('{"pause": "PT2H"}')
    checked = run("policy", "check", str(file)).out.splitlines()
    assert checked[0] == "+ pause = PT2H"
    assert checked[1].startswith(f"{number} ends ")
    assert ", before: " in checked[1]
    assert run("policy", "apply", str(file)).out.splitlines()[1].startswith(f"{number} ends ")
    shown = f"/v1/maintenances/{number}"
    wait_until(lambda: live.get(shown)["maintenance"]["expected_end"], what="the new plan")
    file.write_text('{"freezes": [{"from": "2020-01-01T00:00:00Z", "to": "2099-01-01T00:00:00Z"}]}')
    closed = run("policy", "check", str(file)).out
    assert f"{number} has no host that can be done, before: " in closed
    assert f"{number}: 2 hosts cannot be done by this policy" in closed


def test_end_that_stays_unknown_has_not_moved() -> None:
    """A maintenance without a plan stays so under the new policy: nothing is printed."""
    each = {"id": "m-1", "expected_end": None, "new_end": None, "new_blocked": 0}
    assert list(_moved_end(each, 0)) == []


def test_policy_of_confirmations_counts_them(run: Run, tmp_path: Path) -> None:
    """Only what the policy has is counted."""
    (tmp_path / "p.toml").write_text("confirm = ['fail-host']\n")
    checked = run("policy", "check", str(tmp_path / "p.toml"))
    assert "the policy has 1 confirmed act; nothing" in checked.err


def test_wrong_policy_says_where(run: Run, tmp_path: Path) -> None:
    """A file that cannot be read or is refused is told by its place."""
    (tmp_path / "p.toml").write_text("[windows.w]\nfrom = 'noon'\n")
    refused = run("policy", "check", str(tmp_path / "p.toml"))
    assert (refused.status, "the policy.windows.w.from must be" in refused.err) == (REFUSED, True)
    assert run("policy", "apply", str(tmp_path / "p.txt")).status == USAGE
    missing = run("policy", "apply", str(tmp_path / "none.toml"))
    assert (missing.status, "No such file" in missing.err) == (USAGE, True)


def test_window_show_lists_open_time_in_80_columns(run: Run, live: Live) -> None:
    """Each span has its weekday, local time, offset and length. Source: F-7."""
    assert run("policy", "windows").out.splitlines()[1].startswith("(always)")
    live.call(
        "PUT",
        "/v1/policy",
        {"windows": {"nights": {"time_zone": "Europe/Berlin", "from": "22:00", "to": "04:00"}}},
    )
    shown = run("policy", "windows", "--days", "3")
    lines = shown.out.splitlines()
    assert len(lines) in {4, 5}
    assert all(len(line) <= 80 for line in lines)
    assert "22:00 +0" in lines[2]
    assert "nights: times of Europe/Berlin; every host" in shown.err
    assert len(run("policy", "windows", "--days", "3", "--json").json["spans"]) == len(lines) - 1


def test_policy_that_is_none_is_said_with_its_file(run: Run, tmp_path: Path) -> None:
    """The server reads the file, but it does not know how it is called."""
    file = tmp_path / "bad.toml"
    file.write_bytes(b'pause = "\xff"\n')
    refused = run("policy", "apply", str(file))
    reason = "the text is not UTF-8 from byte 9 on"
    assert refused.err.startswith(
        f"forewarn: The policy {file} cannot be read: {reason}. [file-malformed]\n"
    )
    assert "Correct the file" in refused.err
