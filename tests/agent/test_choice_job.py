"""A rule of the agent, and programs with the SDK, choose when declared work disturbs a VM. T-2."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import forewarn
from forewarn.agent.background_jobs import BackgroundJobs
from forewarn.agent.choice_job import main
from forewarn.agent.config import ConfigInvalid, read_config
from forewarn.agent.core.identity import Identity
from forewarn.agent.hooks import HookRoom
from forewarn.agent.log import Log
from forewarn.agent.settings import AgentSettings
from forewarn_base.clock import SystemClock
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
    form = {"names": ["web-1", "_web-1"], "settings": rule}
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
    main({"names": ["web-1"], "settings": rule})
    assert choices(live)["h2"] == ("release", None)


def test_refused_rule_is_reported(
    live: Live, rule: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the words of the service; nothing is chosen. Source: T-2."""
    main({"names": ["web-1"], "settings": rule | {"time_zone": "Europe/Nowhere"}})
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "Europe/Nowhere" in problem
    assert choices(live)["h2"] == (None, None)


def test_agent_runs_its_rule_in_a_process(
    live: Live, rule: dict[str, object], tmp_path: Path
) -> None:
    """At its interval; what it chose is a line of the log. Source: T-2."""
    jobs = BackgroundJobs(AgentSettings({"choose": rule}), HookRoom(str(tmp_path)), log=Log())
    now_ms = SystemClock().now_ms()
    assert jobs.next_ms(now_ms) is None, "the agent would turn without a pause"
    jobs.choose(Identity("web-1"), now_ms)
    jobs.choose(Identity("web-1"), now_ms + 1000)
    assert jobs.waiting == 1
    wait_until(lambda: not jobs.turn(now_ms) and not jobs.busy)
    assert choices(live)["h2"][0] == "at"
    jobs.choose(Identity("web-1"), now_ms + 3_600_000)
    assert jobs.waiting == 1


def test_program_chooses_by_the_sdk(live: Live, token_file: Path) -> None:
    """It reads declarations and openings, chooses, and learns why it cannot. Source: T-1, T-2."""
    declarations = forewarn.Declarations(live.url, token_file=token_file)
    [declared] = declarations.declared()
    assert (declared["id"], declared["severity"]) == ("m-1", "routine")
    [opening, *_] = declarations.openings("m-1", "web-1")
    [result] = declarations.choose("m-1", "web-1", {"at": opening["latest"]})
    assert (result["possible"], result["host"]) == (True, "h2")
    assert choices(live)["h2"] == ("at", opening["latest"])
    with pytest.raises(forewarn.ChoiceNotAccepted, match="past"):
        declarations.choose("m-1", "web-1", {"at": "2020-01-01T00:00:00Z"})
    (token_file.parent / "empty").write_text("\n")
    for name in ("empty", "missing"):
        client = forewarn.Declarations(live.url, token_file=token_file.parent / name)
        with pytest.raises(forewarn.DeclarationsUnavailable, match="cannot be read"):
            client.declared()
    with pytest.raises(forewarn.ChoiceNotAccepted, match="token"):
        forewarn.Declarations(live.url, token="fw_no_token").declared()


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
