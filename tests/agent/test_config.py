"""The configuration: what is accepted, what is refused with which words, what it means."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.agent import main as agent_main
from forewarn.agent.cli import STARTER, main
from forewarn.agent.commands import hook_command
from forewarn.agent.config import ConfigInvalid, read_config
from forewarn.agent.config_check import oddities
from forewarn.agent.core.rules import TIMEOUT_S, Match
from forewarn.agent.permissions import ConfigWritable
from forewarn.agent.preparation_catalog import PREPARATIONS
from forewarn.agent.settings import AgentSettings
from forewarn.agent.startup import load
from forewarn_base import exit_codes
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_server.cli.main import main as forewarn


def settings_of(path: Path, text: str) -> AgentSettings:
    """Return the settings of a configuration."""
    path.write_text(text)
    return AgentSettings(json.loads(json.dumps(read_config(str(path)))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    return tmp_path / "agent.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agent", "is not TOML"),
        (f"a = {'[' * 10_000}", "nested too deeply"),
        ("a." * 9 + "a = 1", "has a name with more than 8 parts"),
        ("[agnet]", "[agnet] is unknown"),
        ("[agent]\nport = 1", "port is unknown"),
        ("[agent]\nstatus_listen = ''", "status_listen is unknown"),
        ("[agent]\ninterval_s = 0.01", "less than 0.05"),
        ("[agent]\ninterval_s = true", "cannot be True"),
        ("[agent]\nname = 3", "cannot be 3"),
        ("[agent]\naliases = [3]", "cannot be [3]"),
        ("[agent]\napi_version = '2016-01-01'", "must be one of"),
        ("[agent]\nlog = 'xml'", "must be"),
        ("[agent]\nendpoint = 'https://x'", "is not an endpoint"),
        ("[status]\nlisten = '8471'", "ADDRESS:PORT"),
        ("[status]\ncert = 'x'", "set both cert and key"),
        ("step = 3", "must be a table"),
        ("step.a = 3", "must be a table"),
        ("[step.a]", "has no command"),
        ("[step.a]\nprepare = 'x'", "must be a list of words"),
        ("[step.a]\nprepare = []", "must be a list of words"),
        ("[step.a]\nprepare = ['x']\nport = 1", "port is unknown"),
        ("[step.a]\nprepare = ['x']\non_failure = 'x'", "must be one of"),
        ("[step.a]\nuse = 'x'", "must be one of"),
        ("[step.a]\nuse = 'nomad'\nignore_system_jobs = 'yes'", "must be true or false"),
        ("[step.a]\nuse = 'nomad'\naddress = '127.0.0.1:4646'", "must begin with http://"),
        ("[step.a]\nuse = 'ray'\nnode = 5", "node: must be a text"),
        ("[step.a]\nuse = 'dask'\nworkers = [1]", "must be a name or a list"),
        ("[step.a]\nuse = 'signal'\nargument = 'x'\nbefore_s = '60'", "must be a number"),
        ("[step.a]\nuse = 'webhook'\nurl = 'http://x'\ntries = 1.5", "must be a whole number"),
        ("[step.a]\nuse = 'haproxy'", "is missing"),
        ("[step.a]\nuse = 'consul'\nport = 1", "not known to consul"),
        ("rule = 3", "written as [[rule]]"),
        ("[[rule]]\nkind = 'x'", "kind is unknown"),
        ("[[rule]]\naction = 'x'", "must be one of"),
        ("[[rule]]\nsteps = ['a']", "there is no step 'a'"),
        ("[[rule]]\nsteps = 'a'", "must be a list"),
        ("[[rule]]\nsteps = [1]", "there is no step 1"),
        ("[[rule]]\nsteps = [[{a = 1}]]", "there is no step {'a': 1}"),
        ("[step.a]\nuse = 'systemd'\nunits = ['x']\naction = 'isolate'", "must be one of stop"),
        ("[notify]\nwebhok = 'http://x'", "[notify]: webhok is unknown"),
        ("[notify]\nlevel = 'warn'", "level: must be one of info"),
        ("[notify]\nwebhook = 3", "webhook: cannot be 3"),
        ("[coordination]\nvia = 'files'", "via: must be one of status"),
        ("[coordination]\nport = '8471'", "port: cannot be '8471'"),
        ("[coordination]\npeer = {}", "[coordination]: peer is unknown"),
        ("[step.a]\nprepare=['x']\n[[rule]]\nsteps = ['a', ['a']]", "named twice"),
        ("[[rule]]\nduration_s = 3", "[LEAST, GREATEST]"),
        ("[[rule]]\nabout = 'me'", "this, others or any"),
        ("[[rule]]\ntype = 3", "cannot be 3"),
    ],
)
def test_mistake_is_refused_with_its_place(path: Path, text: str, words: str) -> None:
    """Nothing is guessed; the first mistake is named."""
    path.write_text(text)
    with pytest.raises(CallerError) as caught:
        read_config(str(path))
    assert words in str(caught.value)
    with pytest.raises(ForewarnError) as told:
        load(str(path))
    assert words in str(told.value)


def test_missing_file_is_refused(path: Path) -> None:
    """An agent without a configuration would approve what nobody has looked at."""
    with pytest.raises(ConfigInvalid, match="does not exist"):
        read_config(str(path))


def test_starter_is_usable_and_shows_the_defaults(path: Path) -> None:
    """What `init` writes approves nothing until there are steps; it shows the defaults."""
    starter = STARTER.format(uses=", ".join(PREPARATIONS))
    empty = settings_of(path, "")
    first = settings_of(path, starter).rules[0]
    assert (first.action, first.match == Match()) == ("notify", True)
    head = starter.partition("[status]")[0]
    spoken = settings_of(path, head.replace("# ", "", 1).replace("\n# ", "\n").partition("\n\n")[2])
    for name in ("interval_s", "wait_s", "freeze_tolerated_s", "state_dir", "hooks_dir", "log"):
        assert getattr(spoken, name) == getattr(empty, name)


def test_rules_mean_what_is_written(path: Path) -> None:
    """Every setting of a rule and a step arrives where it belongs."""
    settings = settings_of(
        path,
        """
        [step.drain]
        prepare = ["drain"]
        recover = ["undrain"]
        timeout_s = 7
        on_failure = "abort"
        [step.node]
        use = "kubernetes"
        node = "n"
        [step.last]
        recover = ["last"]
        [[rule]]
        name = "worse"
        type = ["Reboot", "Redeploy"]
        source = "Platform"
        notice_s = [60, 900]
        description = "host"
        then = "hold"
        steps = [["drain", "node"], "last"]
        coordination = "all"
        stand_in_s = 30
        """,
    )
    (rule,) = settings.rules
    drain, node = rule.steps[0]
    assert [len(group) for group in rule.steps] == [2, 1]
    assert (drain.timeout_s, drain.on_failure, drain.repeatable) == (7.0, "abort", False)
    assert (node.repeatable, node.does, node.undoes) == (True, True, True)
    assert (rule.steps[1][0].does, rule.steps[1][0].undoes) == (False, True)
    assert json.loads(node.spec)["settings"] == {"node": "n"}
    assert (rule.then, rule.coordination, rule.stand_in_s) == ("hold", "all", 30.0)
    assert rule.match.types == ("Reboot", "Redeploy")
    assert (rule.match.sources, rule.match.notice_s) == (("Platform",), (60, 900))


def test_drop_in_overrides_and_its_rules_come_first(path: Path) -> None:
    """What an administrator adds wins over what a package brought."""
    drop_ins = path.parent / "agent.toml.d"
    drop_ins.mkdir()
    (drop_ins / "50-x.toml").write_text("[agent]\nname='b'\n[[rule]]\nname='own'\n")
    settings = settings_of(path, "[agent]\nname='a'\ninterval_s=2\n[[rule]]\nname='shipped'\n")
    assert (settings.name, settings.interval_s) == ("b", 2.0)
    assert [rule.name for rule in settings.rules] == ["own", "shipped"]


@pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
def test_hook_directories_become_steps(path: Path) -> None:
    """Executable files, by name; what is hidden, a backup or not executable is left alone."""
    hooks = path.parent / "hooks"
    for name, mode in (
        ("prepare.d/20-b", 0o755),
        ("prepare.d/10-a", 0o755),
        ("recover.d/10-a", 0o755),
        ("approve.d/ask", 0o755),
        ("cancel.d/30-c", 0o755),
        ("prepare.d/.hidden", 0o755),
        ("prepare.d/10-a~", 0o755),
        ("prepare.d/readme", 0o644),
    ):
        file = hooks / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(mode)
    settings = settings_of(path, f"[agent]\nhooks_dir = '{hooks}'\n")
    rule = settings.rules[1]
    assert [[step.name for step in group] for group in rule.steps] == [["10-a"], ["20-b"], ["30-c"]]
    assert [check.name for check in rule.checks] == ["ask"]
    assert json.loads(rule.steps[0][0].spec) == {
        "prepare": [str(hooks / "prepare.d/10-a")],
        "recover": [str(hooks / "recover.d/10-a")],
    }


def test_check_explains_and_init_writes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands for people: a starter file once, and every kind of event explained."""
    assert main(["init", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"config": str(path)}
    assert main(["init", "--config", str(path)]) == 1
    assert main(["init", "--config", str(path / "below")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["check", "--config", str(path), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)["events"]
    assert {"Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"} == {
        e["type"] for e in explained
    }
    assert main(["check", "--config", str(path)]) == 0
    assert "sends notifications only\n" in capsys.readouterr().out
    path.write_text('[[rule]]\naction = "approve"\n', "utf-8")
    assert main(["check", "--config", str(path)]) == 0
    assert "approves at once as leader\n" in capsys.readouterr().out
    assert main(["check", "--config", str(path.parent / "none")]) == 2
    assert main(["status", "--address", "127.0.0.1:1"]) == 3
    path.write_text('[status]\nlisten = "127.0.0.1:2"\n', "utf-8")
    assert main(["status", "--config", str(path)]) == 3
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_init_follows_no_link(path: Path) -> None:
    """The directory may be the agent's user's, who would have root make a file elsewhere."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.with_name("elsewhere"))
    assert main(["init", "--config", str(path)]) == 1
    assert not path.with_name("elsewhere").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
def test_check_warns_of_what_cannot_work(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usable configuration may name programs and files that are not there; each is told."""
    hooks = path.parent / "hooks"
    (hooks / "prepare.d").mkdir(parents=True)
    (hooks / "prepare.d" / "10-drain").write_text("#!/bin/sh\n")
    (hooks / "prepare.d" / ".hidden").write_text("")
    (hooks / "data").write_text("")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    path.write_text(
        f"""
[agent]
hooks_dir = "{hooks}"
[notify]
apprise = ["json://x"]
webhook_secret_file = "{hooks}/none"
[step.a]
prepare = ["{hooks}/none"]
recover = ["no-such-program-at-all"]
cancel = ["{hooks}/data"]
[step.b]
prepare = ["sh", "-c", "true"]
recover = ["below/here"]
[step.c]
use = "consul"
token_file = "{hooks}/none"
"""
    )
    assert main(["check", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [
        f"Step a, prepare: {hooks}/none does not exist.",
        "Step a, recover: there is no program no-such-program-at-all in PATH.",
        f"Step a, cancel: {hooks}/data is not executable.",
        f"Step c, token_file: {hooks}/none cannot be read.",
        f"{hooks}/prepare.d/10-drain is not executable and is ignored.",
        f"[notify], webhook_secret_file: {hooks}/none cannot be read.",
        "[notify] apprise: Apprise is not installed (there is no program apprise in PATH).",
    ]
    assert main(["check", "--config", str(path)]) == 0
    assert capsys.readouterr().err.count("warning: ") == 7


@pytest.mark.parametrize(
    ("started", "typed"),
    [
        ("/usr/lib/forewarn/forewarn-agent.pyz", "python3 /usr/lib/forewarn/forewarn-agent.pyz"),
        ("/src/forewarn/agent/__main__.py", "python3 -m forewarn.agent"),
        ("/usr/bin/forewarn", "forewarn agent"),
    ],
    ids=["archive", "module", "command"],
)
@pytest.mark.parametrize("action", ["run", "check"])
def test_missing_configuration_is_answered_with_what_helps(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: str,
    typed: str,
    action: str,
) -> None:
    """Advice can be typed as the agent was started; the same mistake has one exit status."""
    monkeypatch.setattr("sys.argv", [started, action])
    assert agent_main.main([action, "--config", str(path)]) == exit_codes.USAGE
    said = capsys.readouterr().err
    assert said == (
        f"{path} does not exist. "
        f"Write one with `{typed} init`, or name another file with --config.\n"
    )


@pytest.mark.parametrize("action", ["run", "check"])
def test_unusable_configuration_has_one_exit_status(path: Path, action: str) -> None:
    """A supervisor sees the same, however the agent was started."""
    path.write_text("[agent]\nnonsense = 1\n")
    words = [action, "--config", str(path)]
    assert (agent_main.main(words), forewarn(["agent", *words])) == (
        exit_codes.USAGE,
        exit_codes.USAGE,
    )


def test_hook_files_on_windows_are_known_by_their_ending(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There every file counts as executable, a readme too."""
    hooks = path.parent / "hooks"
    (hooks / "prepare.d").mkdir(parents=True)
    for name in ("drain.cmd", "readme.txt", "stop.EXE", "save"):
        (hooks / "prepare.d" / name).write_text("")
    path.write_text(f"[agent]\nhooks_dir = '{hooks}'\n")
    monkeypatch.setattr("sys.platform", "win32")
    settings = AgentSettings(read_config(str(path)))
    assert [step.name for group in settings.rules[1].steps for step in group] == [
        "drain.cmd",
        "stop.EXE",
    ]


def test_node_is_marked_only_if_configured(path: Path) -> None:
    """Condition types are checked at the start, and conditions are off by default. Source: K-2."""
    types = '[kubernetes.condition_types]\nMine = "announced"\n'
    assert settings_of(path, types).kubernetes == {}
    on = f"[kubernetes]\nconditions = true\n{types}"
    assert settings_of(path, on).kubernetes["condition_types"] == {"Mine": "announced"}
    with pytest.raises(ConfigInvalid, match="Mine"):
        settings_of(path, on.replace("announced", "soon"))
    with pytest.raises(ConfigInvalid, match="nodes is unknown"):
        settings_of(path, '[kubernetes]\nnodes = "n"\n')


def test_drain_may_last_until_the_event(path: Path) -> None:
    """NotBefore ends it; a check right before the approval is short. Source: K-3."""
    settings = settings_of(path, '[step.node]\nuse = "kubernetes"\n')
    rule = settings.rules[-2]
    ((step,),), (check,) = rule.steps, rule.checks
    assert (step.timeout_s, check.timeout_s) == (86_399, TIMEOUT_S)
    assert hook_command(check.spec, "approve")[-3:] == ("do", "kubernetes", "approve")


@pytest.mark.skipif(sys.platform == "win32", reason="nothing can be saved without fork")
def test_running_agent_keeps_neither_parser_nor_checks() -> None:
    """What only the start needs is not in the memory of the agent."""
    program = (
        "import sys; from forewarn.agent.startup import load; load(sys.argv[1], must_exist=False);"
        "from forewarn.agent import runner; print(*sys.modules)"
    )
    command = [sys.executable, "-c", program, "/nonexistent/agent.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"tomllib", "forewarn.agent.config", "argparse", "asyncio", "ssl", "http.client"}
    heavy |= {"dataclasses", "subprocess", "threading", "logging", "datetime", "pathlib"}
    site = {"pathlib", "threading"}  # what an editable installation brings with it
    assert (heavy - site).isdisjoint(done.stdout.split())


@pytest.mark.parametrize("what", ["agent.toml", "prepare.d", "prepare.d/drain"])
def test_what_others_can_write_is_refused(tmp_path: Path, what: str) -> None:
    """Who can write a hook or the configuration can run commands as the agent."""
    config, hooks = tmp_path / "agent.toml", tmp_path / "prepare.d"
    config.write_text(f'[agent]\nhooks_dir = "{tmp_path}"\n', "utf-8")
    hooks.mkdir()
    (hooks / "drain").write_text("#!/bin/sh\n", "utf-8")
    (hooks / "drain").chmod(0o755)
    (tmp_path / what).chmod(0o775)
    with pytest.raises(ConfigWritable, match=what):
        read_config(str(config))
    with config.open("a", encoding="utf-8") as file:
        file.write("check_permissions = false\n")
    assert read_config(str(config))["steps"]


def test_secret_over_plain_http_is_warned_of(path: Path) -> None:
    """A signature proves who spoke; anybody on the way can still read it."""
    path.write_text(
        '[notify]\nwebhook = "http://user:pass@example.net/hook"\n'
        'webhook_secret_file = "/dev/null"\n',
        "utf-8",
    )
    warnings = [one for one in oddities(read_config(str(path))) if "plain HTTP" in one]
    assert len(warnings) == 1
    assert "pass" not in warnings[0]
