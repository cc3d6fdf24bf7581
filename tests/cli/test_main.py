"""The command itself: help, version, exit statuses, odd ends."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.agent.cli import DEFAULT_STATUS
from forewarn_base import exit_codes
from forewarn_base.errors import every_error
from forewarn_base.version import version
from forewarn_core.rules.blockers import Code, every_code
from forewarn_emulator.options import METADATA_ADDRESS
from forewarn_emulator.run_command import AZURE_ADDRESS, OPTIONS
from forewarn_server.cli.application import root
from forewarn_server.cli.main import main
from forewarn_server.cli.nouns import NOUNS, RARE_NAMES
from tests.api.live import Live
from tests.cli.conftest import Run
from tests.waiting import LIMIT_S
from tools.product import PYTHONPATH

COMMAND = (sys.executable, "-m", "forewarn_server.cli.main")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`forewarn --help` is the table of commands."""
    assert main(["--help"]) == exit_codes.OK
    text = capsys.readouterr().out
    for name in NOUNS.keys() - RARE_NAMES:
        assert f"\n    {name} " in text
    assert set(NOUNS) <= set(re.findall(r"[\w-]+", text))


def test_no_command_lists_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """`forewarn` alone is answered by the table of commands."""
    assert main([]) == exit_codes.USAGE
    assert "\n    maintenance " in capsys.readouterr().err


@pytest.mark.parametrize("name", NOUNS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's module is there and says what it takes."""
    assert main([name, "--help"]) == exit_codes.OK
    assert f"forewarn {name}" in capsys.readouterr().out


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints one line."""
    assert main(["--version"]) == exit_codes.OK
    told = capsys.readouterr().out
    assert told.startswith("forewarn 0.")
    assert main(["version"]) == exit_codes.OK
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    "words", [("version", "-o", "json"), ("-o", "json", "version"), ("--version", "--json")]
)
def test_version_has_every_form(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it as any other answer."""
    assert main(words) == exit_codes.OK
    answer = json.loads(capsys.readouterr().out)
    packages = {each["name"]: each["version"] for each in answer.pop("packages")}
    assert answer == {"name": "forewarn", "version": version()}
    assert packages["forewarn-base"] == version()
    assert list(packages) == sorted(packages)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("node",),
        ("host", "frob"),
        ("operation", "why"),
        ("event", "--odd"),
        ("vm", "add", "v", "--host", "h", "--tag", "no-value"),
    ],
)
def test_wrong_command_line_is_2(words: tuple[str, ...]) -> None:
    """A command line that says nothing sensible ends with the status of usage."""
    assert main(words) == exit_codes.USAGE


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("hots list", "There is no command 'hots'; did you mean `forewarn host`?"),
        ("why h1", "There is no command 'why'; did you mean `forewarn operation why`?"),
        ("--sever x", "There is no option --sever; did you mean --server?"),
        (
            "store",
            "The action is missing; choose one of backup, verify, restore, upgrade, compact.",
        ),
        ("host rebot h", "There is no action 'rebot'; did you mean reboot?"),
        ("history --action=host.fails", "there is no action 'host.fails'; did you mean host.fail"),
        ("host list --zon=a", "There is no option --zon; did you mean --zone?"),
        ("emulator clock advance -5m", "There is no option -5m."),
        ("vm reboot v --wait --timeout=-3", "argument --timeout: '-3' must be a positive number"),
        ("vm reboot v --wait --timeout=nan", "argument --timeout: 'nan' must be a positive number"),
        ("host list -z", "There is no option -z; the options are --state, --limit, "),
        ("host list h", "Unexpected argument 'h'."),
        ("operation retry", "The following arguments are required: ID; for example: "),
        ("vm reboot v --source user", "argument --source: there is no source 'user'; did you mean"),
    ],
)
def test_wrong_command_line_is_explained(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what is wrong, and the remedy names the help of the command typed."""
    assert main(typed.split()) == exit_codes.USAGE
    error, remedy = capsys.readouterr().err.splitlines()
    assert said.lower() in error.lower()
    assert error.endswith("[command-line-invalid]")
    program = remedy.split("`")[1].removesuffix(" --help")
    assert f"forewarn {typed}".startswith(program.partition(" list")[0])


@pytest.mark.parametrize("words", [("host", "--jsno", "--json"), ("--json", "hots")])
def test_errors_are_json_with_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs read the code of an error instead of its sentence."""
    assert main(words) == exit_codes.USAGE
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "command-line-invalid"
    assert set(error) == {"code", "message", "advice"}


def test_error_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Every code that an error prints can be looked up without the documentation."""
    assert main(["explain", "already-asked"]) == exit_codes.OK
    assert "already under way" in capsys.readouterr().out
    assert main(["explain", "already-askd"]) == exit_codes.USAGE
    assert "Did you mean already-asked? Copy" in capsys.readouterr().err


@pytest.mark.parametrize("code", every_code())
def test_blocker_code_is_explained(code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    """`operation why` prints codes in brackets, too, and none is that of an error."""
    assert main(["explain", code.value]) == exit_codes.OK
    assert "what ends it" in capsys.readouterr().out
    assert code.value not in {each.code for each in every_error()}


def test_help_imports_little() -> None:
    """What only some commands need is not imported for the others."""
    program = "import sys\nfrom forewarn_server.cli.main import main\nmain(['--help'])\n"
    program += "print(*sorted(sys.modules), file=sys.stderr)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=True,
    ).stderr.split()
    heavy = {"http.client", "asyncio", "dataclasses", "starlette", "yaml", "logging", "ssl"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("agent", "--help"), ("agent", "check", "--help")]
)
def test_agent_and_help_need_no_package(words: tuple[str, ...]) -> None:
    """A bare installation has the agent: the standard library is enough."""
    ran = bare(*words)
    assert ran.returncode == 0, ran.stderr


def test_operators_command_without_its_packages_says_what_to_install() -> None:
    """A bare installation names the package and the extra of the command line."""
    ran = bare("host", "list")
    assert ran.returncode == exit_codes.REFUSED
    assert "`forewarn host` needs the package cyclopts" in ran.stderr
    assert "pip install './forewarn[cli]'" in ran.stderr


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `forewarn WORDS...` without any installed package."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "forewarn_server.cli.main", *words],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_closed_pipe_is_calm(live: Live) -> None:
    """Who reads only the first line leaves no traceback behind."""
    live.fleet(hosts={f"host-{n}": {"zone": "z" * 200} for n in range(1000)})
    process = subprocess.Popen(
        [*COMMAND, "host", "list", "--server", live.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    process.stdout.close()
    complaint = process.stderr.read()
    assert process.wait(LIMIT_S) == exit_codes.PIPE_CLOSED
    assert complaint == b""
    process.stderr.close()


def test_interrupt_is_calm(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Ctrl-C ends a command without a traceback."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("forewarn_server.cli.api_client.ApiClient.get", interrupt)
    stopped = run("host", "list")
    assert (stopped.status, stopped.err) == (exit_codes.INTERRUPTED, "\n")


def test_all_commands_share_one_parser() -> None:
    """Every command can be put into one application, as completion and the reference need it."""
    assert set(NOUNS) <= set(root())


def test_no_two_programs_share_a_default_port() -> None:
    """What may run on one machine at once can, without an option for it."""
    places = [METADATA_ADDRESS, OPTIONS.operator_listen, AZURE_ADDRESS, DEFAULT_STATUS]
    assert len({place.rpartition(":")[2] for place in places}) == len(places) == 4


@pytest.mark.parametrize("words", [("host", "list"), ("host", "list", "--json")])
def test_full_disk_behind_the_output_is_an_error(live: Live, words: tuple[str, ...]) -> None:
    """Output that cannot be written ends with a code and a remedy, without a traceback."""
    environment = {**os.environ, "FOREWARN_SERVER": live.url}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            (*COMMAND, *words),
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    assert ran.returncode == exit_codes.REFUSED
    assert "cannot be written: No space left on device. [output-unwritable]" in ran.stderr or (
        '"code": "output-unwritable"' in ran.stderr
    )
    assert "Traceback" not in ran.stderr


def test_help_names_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    """`forewarn --help` has the variables for the server, the token and the TLS files."""
    main(["--help"])
    text = capsys.readouterr().out
    for name in ("FOREWARN_SERVER", "FOREWARN_TOKEN", "FOREWARN_CA", "FOREWARN_CERTIFICATE"):
        assert name in text
