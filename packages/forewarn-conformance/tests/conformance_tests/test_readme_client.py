"""The client of the README in all stories: killed, with a wrong clock, misconfigured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance_tests.test_client_suite import CLIENTS, results_of
from forewarn_conformance.client_run import ClientOptions, stories_named
from forewarn_conformance.run import Result, Verdict
from forewarn_server.cli.main import main
from tests.waiting import LIMIT_S

HERE = Path(__file__).parent
TEXT = CLIENTS["README.md 1"]
WAYS: dict[str, tuple[str, ...]] = {
    "five minutes ahead": (str(HERE / "wrong_clock.py"), "300"),
    "five minutes behind": (str(HERE / "wrong_clock.py"), "-300"),
    "killed": (str(HERE / "killed.py"),),
}
#: What is wrong with the client: words of it -> what they are instead.
MISTAKES = {
    "endpoint": ("recover, state_dir", 'recover, endpoint="localhost:8169", state_dir'),
    "arity": ("def prepare(event):", "def prepare():"),
    "directory": ('"state")).run()', '"state") + "/marks").run()'),
}
TOLD = {
    "endpoint": "'localhost:8169' is not an endpoint",
    "arity": "prepare must be a function with the event as its only argument",
    "directory": "cannot be used",
}


def results_for(way: str, tmp_path: Path) -> list[Result]:
    """Run the client in a way through every story."""
    client = tmp_path / "client.py"
    client.write_text(TEXT)
    options = ClientOptions((sys.executable, *WAYS[way], str(client)))
    return results_of([(way, name, options) for name in names_for(way)])[way]


def names_for(way: str) -> list[str]:
    """Return the stories; one measures polls, and each start of a client begins with several."""
    left_out = {"quiet"} if way == "killed" else set()
    return [each.name for each in stories_named([]) if each.name not in left_out]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="processes are not stopped there")
@pytest.mark.parametrize(
    "way",
    [each if each == "killed" else pytest.param(each, marks=pytest.mark.nightly) for each in WAYS],
)
def test_client_of_the_readme_passes_every_story(way: str, tmp_path: Path) -> None:
    """Neither a wrong clock nor SIGKILL at any moment makes it miss a duty. C-9, C-11, V-4."""
    results = results_for(way, tmp_path)
    assert [each for each in results if each.verdict is not Verdict.PASSED] == []
    assert len(results) == len(names_for(way))


def mistaken(directory: Path, mistake: str) -> Path:
    """Write the client with a mistake."""
    client = directory / "client.py"
    before, after = MISTAKES[mistake]
    assert before in TEXT
    client.write_text(TEXT.replace(before, after))
    return client


@pytest.mark.parametrize("mistake", MISTAKES)
def test_misconfigured_client_ends_with_an_error(tmp_path: Path, mistake: str) -> None:
    """Its supervisor notices, and the last line says what to correct."""
    client = mistaken(tmp_path, mistake)
    (tmp_path / "marks").write_text("")
    done = subprocess.run(
        [sys.executable, str(client)],
        env={**os.environ, "CONFORMANCE_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert TOLD[mistake] in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_suite_says_once_what_is_wrong_with_a_client(
    tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All stories would fail alike."""
    client = mistaken(tmp_path, mistake)
    assert main(["conformance", "client", "--json", "--", sys.executable, str(client)]) == 1
    first, *others = json.loads(capsys.readouterr().out)["checks"]
    assert "ended with status 1" in first["reason"]
    assert TOLD[mistake] in first["reason"]
    assert {check["verdict"] for check in others} == {"skipped"}


def test_wrong_endpoint_in_the_environment_ends_the_client(tmp_path: Path) -> None:
    """It exits with an error, and not with 0 behind the traceback of a thread."""
    client = tmp_path / "client.py"
    client.write_text(TEXT)
    done = subprocess.run(
        [sys.executable, str(client)],
        env={**os.environ, "FOREWARN_ENDPOINT": "https://169.254.169.254"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "it must begin with http:// or unix:/" in done.stderr.splitlines()[-1]
