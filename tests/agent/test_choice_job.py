"""A rule of the agent, and programs with the SDK, choose when declared work disturbs a VM. T-2."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import forewarn
from forewarn.agent.background_jobs import FIRST_CHOICE_MS, BackgroundJobs
from forewarn.agent.choice_job import main
from forewarn.agent.cli import main as agent
from forewarn.agent.config import ConfigInvalid, read_config
from forewarn.agent.core.identity import Identity
from forewarn.agent.hooks import HookRoom
from forewarn.agent.log import Log
from forewarn.agent.sdk import declarations
from forewarn.agent.settings import AgentSettings
from forewarn_base import exit_codes
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.waiting import wait_until

SUNDAYS = {"weekdays": ["sun"], "from": "02:00", "to": "05:00", "time_zone": "Europe/Berlin"}


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with a declared maintenance of h1 and h2, on which shop has VMs."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as service:
        operator(service, "PUT", "/v1/topology", FLEET)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 600}
        operator(service, "POST", "/v1/maintenances", form)
        operator(service, "POST", "/v1/maintenances/m-1/declare", {})
        service.planned()
        yield service


def operator(live: Live, method: str, path: str, form: object = None) -> Json:
    """Return the answer to an operator's call."""
    reply = live.call(method, path, form, headers={"Authorization": f"Bearer {TOKEN}"})
    assert reply.status < 300, reply
    return reply.json


def choices(live: Live) -> dict[str, tuple[str | None, str | None]]:
    """Return decision and start of shop's choice for each host."""
    live.planned()
    every = operator(live, "GET", "/v1/declarations/m-1")["declaration"]["resources"]
    own = [each for each in every if each["owner"] == "shop"]
    return {each["host"]: (each["decision"], each["chosen_start"]) for each in own}


@pytest.fixture
def token_file(live: Live, tmp_path: Path) -> Path:
    """A file with a token of shop."""
    file = tmp_path / "token"
    file.write_text(live.add_token("shop-agent", Role.OWNER, "shop") + "\n")
    return file


@pytest.fixture
def rule(live: Live, token_file: Path) -> dict[str, object]:
    """The table `[choose]` of a configuration."""
    form = {"url": live.url, "token_file": str(token_file), "interval_s": 3600}
    return {**form, "otherwise": "last", **SUNDAYS}


def test_rule_chooses_the_next_sunday_night_for_its_own_vm(
    live: Live, rule: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the VM has another case; hosts of other VMs wait. Source: T-2, T-16."""
    form = {"name": "WEB-1", "names": ["_web-1", "web-1"], "settings": rule}
    assert main(form) == 0
    [chosen] = json.loads(capsys.readouterr().out)["chosen"]
    assert chosen.endswith("for h2")
    before = choices(live)
    assert before == {"h1": (None, None), "h2": ("at", "2027-01-17T01:00:00Z")}
    main(form)
    assert choices(live) == before, "a choice that stands is replaced by nobody's rule"


def test_rule_leaves_the_choice_of_a_person_alone(live: Live, rule: dict[str, object]) -> None:
    """A person's choice wins. Source: T-2."""
    release = {"choices": [{"vm": "web-1", "release": True}]}
    operator(live, "POST", "/v1/declarations/m-1/choices", release)
    main({"name": "web-1", "names": ["web-1"], "settings": rule})
    assert choices(live)["h2"] == ("release", None)


def test_refused_rule_is_reported(
    live: Live, rule: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the words of the service; nothing is chosen. Source: T-2."""
    main({"name": "web-1", "names": ["web-1"], "settings": rule | {"time_zone": "Europe/Nowhere"}})
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "Europe/Nowhere" in problem
    assert choices(live)["h2"] == (None, None)


def test_agent_runs_its_rule_in_a_process(
    live: Live, rule: dict[str, object], tmp_path: Path
) -> None:
    """At its interval; what it chose is a line of the log. Source: T-2."""
    jobs, now_ms = new_jobs(rule, tmp_path), SystemClock().now_ms()
    assert jobs.next_ms(now_ms) is None, "the agent would turn without a pause"
    jobs.choose(Identity("web-1"), now_ms)
    assert jobs.waiting == 0, "a fleet that starts would ask at once"
    first_ms = jobs.next_ms(now_ms)
    assert first_ms is not None
    assert 0 < first_ms - now_ms <= FIRST_CHOICE_MS
    now_ms = first_ms
    jobs.choose(Identity("web-1"), now_ms)
    jobs.choose(Identity("web-1"), now_ms + 1000)
    assert jobs.waiting == 1
    wait_until(lambda: not jobs.turn(now_ms) and not jobs.busy)
    assert choices(live)["h2"][0] == "at"
    jobs.choose(Identity("web-1"), now_ms + 3_600_000)
    assert jobs.waiting == 1


def new_jobs(rule: dict[str, object], directory: Path) -> BackgroundJobs:
    """Return the jobs of an agent with a rule."""
    settings = AgentSettings({"choose": rule})
    return BackgroundJobs(settings, HookRoom(str(directory)), log=Log(), ids=Ids(seed=1))


def looked(jobs: BackgroundJobs, vm: str) -> str:
    """Return why the rule has chosen nothing, once it has looked."""
    now_ms = SystemClock().now_ms()
    jobs.choose(Identity(vm), now_ms)
    jobs.choose(Identity(vm), jobs.next_ms(now_ms) or 0)
    wait_until(lambda: not jobs.turn(now_ms) and not jobs.busy)
    return jobs.choice_problem


def test_token_of_another_owner_is_named_once(
    live: Live, rule: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the log and in the status, until the rule can choose. Source: T-2."""
    jobs = new_jobs(rule, tmp_path)
    problem = "The owner of the token has no VM db-0"
    assert looked(jobs, "db-0").startswith(problem)
    looked(jobs, "db-0")
    assert capfd.readouterr().err.count(problem) == 1
    assert looked(jobs, "web-1") == ""
    assert choices(live)["h2"][0] == "at"


def declare_again(live: Live, how: str, **form: object) -> None:
    """Replace the declared maintenance by one of h2 with a short hand-back window."""
    operator(live, "POST", "/v1/maintenances/m-1/cancel", {"reason": "over"})
    draft = {"cause": "host-reboot", "hosts": ["h2"], "duration": 600}
    operator(live, "POST", "/v1/maintenances", draft)
    operator(live, "POST", f"/v1/maintenances/m-2/{how}", {"hand_back": "1d", **form})
    live.planned()


@pytest.mark.parametrize("otherwise", ["last", "nothing"])
def test_emergency_is_named(
    live: Live, rule: dict[str, object], tmp_path: Path, otherwise: str
) -> None:
    """A rule can choose no time in an emergency, but release. Source: T-2, T-6."""
    declare_again(live, "declare-emergency", reason="fire")
    problem = looked(new_jobs(rule | {"otherwise": otherwise}, tmp_path), "web-1")
    assert problem.startswith("m-2: it is an emergency")
    assert looked(new_jobs(rule | {"otherwise": "release"}, tmp_path), "web-1") == ""
    [declared] = operator(live, "GET", "/v1/declarations?vm=web-1")["declarations"]
    assert [each["decision"] for each in declared["resources"]] == ["release"]


def test_window_without_an_opening_is_named(
    live: Live, rule: dict[str, object], tmp_path: Path
) -> None:
    """Else nobody would learn that the VM waits for its hand-back deadline. Source: T-2."""
    declare_again(live, "declare", severity="urgent")
    problem = looked(new_jobs(rule | {"otherwise": "nothing"}, tmp_path), "web-1")
    assert problem.startswith("m-2: no opening is within the window")


def test_program_chooses_by_the_sdk(live: Live, token_file: Path) -> None:
    """It reads declarations and openings, chooses, and learns why it cannot. Source: T-1, T-2."""
    client = forewarn.Declarations(live.url, token_file=token_file)
    [declared] = client.declared()
    assert (declared["id"], declared["severity"]) == ("m-1", "routine")
    [opening, *_] = client.openings("m-1", "web-1")
    [result] = client.choose("m-1", "web-1", {"at": opening["latest"]})
    assert (result["possible"], result["host"]) == (True, "h2")
    assert choices(live)["h2"] == ("at", opening["latest"])
    with pytest.raises(forewarn.ChoiceNotAccepted, match="past"):
        client.choose("m-1", "web-1", {"at": "2020-01-01T00:00:00Z"})
    (token_file.parent / "empty").write_text("\n")
    for name in ("empty", "missing"):
        client = forewarn.Declarations(live.url, token_file=token_file.parent / name)
        with pytest.raises(forewarn.DeclarationsUnavailable, match="cannot be read"):
            client.declared()
    with pytest.raises(forewarn.ChoiceNotAccepted, match="token"):
        forewarn.Declarations(live.url, token="fw_no_token").declared()


def test_answer_that_was_cut_is_named(monkeypatch: pytest.MonkeyPatch, live: Live) -> None:
    """It is not taken for the answer of another server. Source: T-1."""
    monkeypatch.setattr(declarations, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(forewarn.DeclarationsUnavailable, match="was cut off"):
        forewarn.Declarations(live.url, token=TOKEN).declared()


def test_token_is_not_sent_in_plain_text(live: Live) -> None:
    """Nor is an answer of another server taken for one of the API. Source: P-4."""
    with pytest.raises(ValueError, match="must be https"):
        forewarn.Declarations("http://ops.example.org:8470")
    with pytest.raises(forewarn.DeclarationsUnavailable):
        forewarn.Declarations("http://127.0.0.1:1").declared()
    with pytest.raises(forewarn.DeclarationsUnavailable):
        forewarn.Declarations(f"http://{live.metadata_url.removeprefix('http://')}").declared()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('url = "http://ops.example.org"', "must be https"),
        ('otherwise = "perhaps"', "otherwise"),
        ("interval_s = 1", "must be 60 to 86400"),
        ('weekdays = ["sunday"]', "weekdays: must be a list of mon, tue"),
        ("weekdays = []", "weekdays: must be"),
        ('from = "2:00"', "from: must be a time of day"),
        ('to = "24:30"', "to: must be a time of day"),
        ('hosts = "h1"', "hosts is unknown"),
    ],
)
def test_wrong_rule_is_named(tmp_path: Path, change: str, problem: str) -> None:
    """The agent does not start. Source: T-2."""
    file = tmp_path / "agent.toml"
    lines = [
        'url = "https://ops.example.org"',
        'token_file = "t"',
        'from = "02:00"',
        'to = "05:00"',
    ]
    kept = [each for each in lines if each.split()[0] != change.split(maxsplit=1)[0]]
    file.write_text("\n".join(["[choose]", *kept, change, ""]))
    with pytest.raises(ConfigInvalid, match=problem):
        read_config(str(file))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Europe/Nowhere"])
def test_check_judges_the_rule_without_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], zone: str
) -> None:
    """Also the time zone and the token's file, long before a host waits for a choice. T-2."""
    file = tmp_path / "agent.toml"
    lines = ["[choose]", 'url = "https://ops.example.org"', f'token_file = "{tmp_path}/none"']
    lines += ['from = "02:00"', 'to = "05:00"', 'weekdays = "sun"', f'time_zone = "{zone}"', ""]
    file.write_text("\n".join(["[agent]", f'state_dir = "{tmp_path}"', *lines]))
    known = zone == "Europe/Berlin"
    assert agent(["check", "--config", str(file)]) == (exit_codes.OK if known else exit_codes.USAGE)
    error = "token_file: " if known else "'Europe/Nowhere' is not a time zone"
    assert error in capsys.readouterr().err
